package integration

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/thalweg/thalweg/connector/kafka/kafkatest"
)

// rescaled runs thalweg rescale --wait and returns how long it took, by its own account.
func (j *job) rescaled(p string) time.Duration {
	j.t.Helper()
	out := j.do("rescale", "-p", p, "--wait", "-o", "json", "-Dclient.timeout=2min")
	var r struct {
		Event       string
		Parallelism map[string]int
		Millis      int64 `json:"durationMs"`
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil || r.Event != "rescaled" {
		j.t.Fatalf("%v: %s", err, out)
	}
	for id, n := range r.Parallelism {
		if fmt.Sprint(n) != p {
			j.t.Errorf("vertex %s has parallelism %d, want %s", id, n, p)
		}
	}
	return time.Duration(r.Millis) * time.Millisecond
}

// awaitContainers waits until YARN counts n containers of the application, its master's included.
func (j *job) awaitContainers(n int) {
	j.t.Helper()
	var last application
	until(j.t, patience, fmt.Sprintf("%d containers", n), func() (ok bool, err error) {
		last, err = j.application()
		return last.Containers == n, err
	})
}

// A job that reads from Kafka and writes to it exactly once changes its parallelism while it runs: containers are asked for and given back, the next
// attempt of the application master keeps what was asked for, and the output is that of a job that never changed.
func TestRescale(t *testing.T) {
	k := kafkaCluster(t)
	in, out, txn := k.Topic(t, 4), k.Topic(t, 3), kafkatest.Name("txn")+"-"
	s := spec(900)
	s.Partitions = 4
	writeByConsole(t, in, true, consoleLines(s, 0, 300))
	j := submit(t, []string{"-p", "2", "-Dexecution.checkpointing.interval=1s", "-Dresourcemanager.taskmanager-timeout=1s"}, bin+"/examples/order-totals",
		"--brokers", cluster.KafkaBootstrap, "--in", in, "--out", out, "--group", in, "--txn-prefix", txn, "--window", "1s", "--out-of-orderness", "1s", "--idle", "0")
	j.awaitRunning()
	j.awaitCheckpoint(0)
	j.awaitContainers(3)
	before := j.taskManagers()

	t.Logf("2 -> 4: %s", j.with(t).rescaled("4"))
	j.awaitContainers(5)
	for _, pid := range before {
		if syscall.Kill(pid, 0) != nil {
			t.Errorf("TaskManager %d has ended", pid)
		}
	}
	writeByConsole(t, in, true, consoleLines(s, 300, 600))
	j.awaitReported(5)

	masters := j.masters()
	if len(masters) != 1 {
		t.Fatalf("masters %v", masters)
	}
	done := j.awaitCheckpoint(0)
	if err := syscall.Kill(masters[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	j.awaitCheckpoint(done)
	if st := j.awaitRunning(); st.Vertices[0].Parallelism != 4 {
		t.Errorf("parallelism %d in the next attempt, want 4", st.Vertices[0].Parallelism)
	}

	t.Logf("4 -> 1: %s", j.rescaled("1"))
	j.awaitContainers(2)
	writeByConsole(t, in, true, append(consoleLines(s, 600, s.Records), closingLines(s)...))
	want := expected(s, s.Records)
	same(t, "read_committed console consumer", results(t, readByConsole(t, out, len(want))), want)
	j.awaitCheckpoint(j.awaitCheckpoint(0))
	same(t, "everything committed", allCommitted(t, k, out), want)

	if r := thalweg(t, nil, "rescale", "-p", "129", "-Dyarn.application.id="+j.app); r.code == 0 || !strings.Contains(r.stderr, "129 is above its max parallelism 128") {
		t.Errorf("above the key groups: %s", r)
	}
	j.do("cancel")
	j.awaitEnd()
	noOpenTransactions(t, k, txn)
}
