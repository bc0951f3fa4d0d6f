package integration

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/thalweg/thalweg/connector/kafka/kafkatest"
)

// doctor finds a healthy cluster healthy, and names each thing that is not, with what to do.
func TestDoctor(t *testing.T) {
	t.Parallel()
	topic := kafkaCluster(t).Topic(t, 2)
	brokers := strings.Join(kafkaCluster(t).Brokers, ",")
	well := thalweg(t, nil, "doctor", "--bootstrap-server", brokers, "--topic", topic)
	if well.code != 0 || strings.Contains(well.stdout, "fail") || !strings.Contains(well.stdout, "ok    topic "+topic+": 2 partitions") || !strings.Contains(well.stdout, "ok    clock") {
		t.Error(well)
	}
	ill := thalweg(t, nil, "doctor", "-o", "json", "-Dyarn.application.queue=night", "-Dtaskmanager.memory.process.size=900g",
		"-Dexecution.checkpointing.dir=/user/nobody-else/checkpoints", "--bootstrap-server", brokers, "--topic", kafkatest.Name("missing"))
	failed := map[string]string{}
	for l := range strings.Lines(ill.stdout) {
		var f struct{ Check, Status, Text, Do string }
		if err := json.Unmarshal([]byte(l), &f); err != nil {
			t.Fatalf("%v: %s", err, l)
		}
		if f.Status == "fail" {
			failed[strings.Fields(f.Check)[0]] = f.Text + " " + f.Do
		}
	}
	for check, want := range map[string]string{"queue": "night", "containers": "taskmanager.memory.process.size", "topic": "does not exist"} {
		if !strings.Contains(failed[check], want) {
			t.Errorf("%s: %q in %v", check, failed[check], ill)
		}
	}
	if ill.code != 1 {
		t.Error(ill.code)
	}
}
