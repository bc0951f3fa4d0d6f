package integration

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/thalweg/thalweg/connector/kafka/kafkatest"
)

// manager is a TaskManager as REST shows it.
type manager struct {
	ID    string `json:"id"`
	PID   int    `json:"pid"`
	Slots int    `json:"slotsNumber"`
	Free  int    `json:"freeSlots"`
}

// managers are the TaskManagers that are registered, when there are n of them, with so many that are idle.
func (j *job) managers(n, idle int) (all []manager) {
	j.t.Helper()
	until(j.t, patience, fmt.Sprintf("%d TaskManagers, %d idle", n, idle), func() (bool, error) {
		var r struct {
			TaskManagers []manager `json:"taskmanagers"`
		}
		err := j.rest("/taskmanagers", &r)
		all = r.TaskManagers
		free := 0
		for _, m := range all {
			if m.Free == m.Slots {
				free++
			}
		}
		return err == nil && len(all) == n && free == idle, err
	})
	return all
}

// A spare TaskManager takes the place of one that is killed, so that the job need not wait for a container; then there is a spare one again,
// and all of them go with the job.
func TestSpareTaskManagerTakesOver(t *testing.T) {
	k := kafkaCluster(t)
	in, out, txn := k.Topic(t, 2), k.Topic(t, 1), kafkatest.Name("txn")+"-"
	j := submit(t, []string{"-p", "2", "-Dslotmanager.redundant-taskmanager-num=1", "-Dexecution.checkpointing.interval=500ms", "-Dresourcemanager.taskmanager-timeout=1s"},
		totals, totalsArgs(in, out, txn)...)
	j.awaitRunning()
	for range 2 {
		j.awaitCheckpoint(0)
		before := j.managers(3, 1)
		victim := slices.IndexFunc(before, func(m manager) bool { return m.Free < m.Slots })
		began := time.Now()
		j.kill(before[victim].PID)
		t.Logf("all tasks ran %s after the kill", time.Since(began).Round(10*time.Millisecond))
		var r struct {
			TaskManagers []manager `json:"taskmanagers"`
		}
		if err := j.rest("/taskmanagers", &r); err != nil {
			t.Fatal(err)
		}
		for _, m := range r.TaskManagers {
			if m.Free < m.Slots && !slices.ContainsFunc(before, func(b manager) bool { return b.ID == m.ID }) {
				t.Errorf("tasks run on %s, which is new; there were %+v", m.ID, before)
			}
		}
	}
	j.managers(3, 1)
	j.awaitContainers(4)
	j.do("cancel")
	if a := j.awaitEnd(); a.Final != "KILLED" {
		t.Errorf("%s/%s: %s", a.State, a.Final, a.Diagnostics)
	}
	noOpenTransactions(t, k, txn)
}

// A worker process that is killed is replaced by one that reads its state from the TaskManager's disk and not from HDFS, on either backend,
// also when HDFS has it in merged files; the results are exact.
func TestKilledWorkersRestoreFromLocalCopies(t *testing.T) {
	k := kafkaCluster(t)
	s := spec(20_000)
	in := wholeInput(t, k, s)
	want := expected(s, s.Records)
	for name, conf := range map[string][]string{
		"hashmap": {"-Dstate.backend.type=hashmap"}, "pebble": {"-Dstate.backend.type=pebble"},
		"pebble merged": {"-Dstate.backend.type=pebble", "-Dexecution.checkpointing.file-merging.enabled=true"},
	} {
		t.Run(name, func(t *testing.T) {
			out, txn := k.Topic(t, 2), kafkatest.Name("txn")+"-"
			killed := filepath.Join(t.TempDir(), "killed") // until then the input does not come to its end
			j := submit(t, append(conf, "-p", "2", "-Dexecution.checkpointing.interval=500ms", "-Dexecution.checkpointing.local-backup.enabled=true",
				"-Dexecution.checkpointing.fs.memory-threshold=0", "-Drestart-strategy.exponential-delay.initial-backoff=200ms"),
				totals, append(totalsArgs(in, out, txn), "--bounded", "--delay", "5ms", "--delay-until", killed)...)
			var last int64
			for range 2 {
				j.awaitRunning()
				last = j.awaitCheckpoint(last)
				workers := j.workers()
				if len(workers) == 0 {
					t.Fatal("no worker process found")
				}
				j.kill(workers[0])
			}
			write(t, killed, "")
			if a := j.awaitEnd(); a.Final != "SUCCEEDED" {
				t.Fatalf("%s/%s: %s", a.State, a.Final, a.Diagnostics)
			}
			same(t, "committed", allCommitted(t, k, out), want)
			noOpenTransactions(t, k, txn)
			until(t, patience, "log aggregation", func() (bool, error) {
				a, err := j.application()
				return a.Aggregation == "SUCCEEDED", err
			})
			text, err := cluster.YarnCLI(t.Context(), "logs", "-applicationId", j.app)
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(text, "state is restored from local copies"); n < 2 {
				t.Errorf("%d restores from local copies, want 2 at least", n)
			}
			if i := strings.Index(text, "read from the checkpoint's folder"); i >= 0 {
				t.Errorf("state was read from HDFS: %.600s", text[max(0, i-300):])
			}
		})
	}
}
