package config

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// A job that goes to a session brings what is of its own execution; what makes the session's processes is refused, by name and all at once.
func TestLevelsOfKeys(t *testing.T) {
	c := Configuration{
		"parallelism.default": "2", "execution.checkpointing.interval": "1 s", "state.backend.type": "pebble", "restart-strategy.type": "none", "pipeline.name": "n", "user.own": "1",
		"jobmanager.scheduler": "adaptive", "slot.request.timeout": "1 s", "job.autoscaler.enabled": "true", "security.redaction.additional-keys": "pin", "kafka.sasl.password": "x",
		"taskmanager.numberOfTaskSlots": "4", "jobmanager.memory.process.size": "1 gb", "yarn.application.queue": "q", "high-availability.storageDir": "/x", "containerized.master.env.A": "b",
		"yarn.application.id": "application_1_1", "client.timeout": "1 s", "execution.target": "yarn-session",
	}
	if err := ValidateKeys(c, Passthrough()...); err != nil {
		t.Fatal(err)
	}
	cluster := []string{"containerized.master.env.A", "high-availability.storageDir", "jobmanager.memory.process.size", "taskmanager.numberOfTaskSlots", "yarn.application.queue"}
	if got := c.ClusterKeys(); !slices.Equal(got, cluster) {
		t.Errorf("of the cluster: %v", got)
	}
	got := slices.Sorted(maps.Keys(c.ExecutionLevel()))
	want := []string{"execution.checkpointing.interval", "job.autoscaler.enabled", "jobmanager.scheduler", "kafka.sasl.password", "parallelism.default", "pipeline.name", "restart-strategy.type",
		"security.redaction.additional-keys", "slot.request.timeout", "state.backend.type", "user.own"}
	if !slices.Equal(got, want) {
		t.Errorf("of the job: %v", got)
	}
	text := SessionKeys(cluster[2:4])
	for _, part := range []string{"jobmanager.memory.process.size, taskmanager.numberOfTaskSlots are", "session start -D", "-t yarn-application"} {
		if !strings.Contains(text, part) {
			t.Errorf("%q lacks %q", text, part)
		}
	}
	for _, k := range Keys() {
		if ClusterLevel(k) && ClientLevel(k) {
			t.Errorf("%s is of both", k)
		}
	}
}
