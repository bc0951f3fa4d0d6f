package integration

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/thalweg/thalweg/connector/kafka/kafkatest"
	"github.com/thalweg/thalweg/test/eos"
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
			t.Parallel()
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

// attempts are the attempts of all tasks of the job, by vertex and subtask.
func (j *job) attempts(s jobState) map[string]int {
	j.t.Helper()
	all := map[string]int{}
	for _, v := range s.Vertices {
		var r struct {
			Subtasks []struct {
				Subtask int `json:"subtask"`
				Attempt int `json:"attempt"`
			} `json:"subtasks"`
		}
		if err := j.rest("/jobs/"+j.id+"/vertices/"+v.ID, &r); err != nil {
			j.t.Fatal(err)
		}
		for _, t := range r.Subtasks {
			all[fmt.Sprintf("%s %d", v.Name, t.Subtask)] = t.Attempt
		}
	}
	return all
}

// The application master is killed while records flow, and the next one: the tasks go on as they are, also while there is none, and the results are exact.
func TestTasksGoOnWithoutTheApplicationMaster(t *testing.T) {
	for _, backend := range []string{"hashmap", "pebble"} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			k := kafkaCluster(t)
			s := spec(24_000)
			s.Step = 20 * time.Millisecond
			in, out, txn := k.Topic(t, s.Partitions), k.Topic(t, 1), kafkatest.Name("txn")+"-"
			e := eos.Cluster{Brokers: k.Brokers}
			j := submit(t, []string{"-p", "2", "-Dexecution.checkpointing.interval=1s", "-Dyarn.application-attempts=4", "-Dstate.backend.type=" + backend,
				"-Dyarn.application-attempt-failures-validity-interval=1s"}, totals, totalsArgs(in, out, txn)...)
			before := j.awaitRunning()
			workers, attempts := j.workers(), j.attempts(before)
			done := j.awaitCheckpoint(0)
			j.awaitReported(3)
			written := make(chan error, 1)
			go func() { written <- e.Write(t.Context(), in, s, 0, s.Records, 600) }()
			end := func() int64 {
				ends, err := e.Ends(t.Context(), out)
				if err != nil {
					t.Fatal(err)
				}
				return ends[0]
			}
			until(t, patience, "output", func() (bool, error) { return end() > 0, nil })
			for range 2 {
				done = j.awaitCheckpoint(done)
				masters := j.masters()
				if len(masters) != 1 {
					t.Fatalf("masters %v", masters)
				}
				if err := syscall.Kill(masters[0], syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
				until(t, patience, "its end", func() (bool, error) { return len(j.masters()) == 0, nil })
				began, last, changed := time.Now(), end(), time.Now()
				var grown int
				var longest time.Duration
				for len(j.masters()) == 0 {
					if n := end(); n > last {
						longest = max(longest, time.Since(changed))
						last, changed = n, time.Now()
						grown++
					}
				}
				t.Logf("no application master for %s; output grew %d times meanwhile, and stood still for %s at most", time.Since(began).Round(10*time.Millisecond), grown, longest.Round(10*time.Millisecond))
				if grown == 0 {
					t.Error("no output while there was no application master")
				}
				done = j.awaitCheckpoint(done)
				t.Logf("a checkpoint of the next one after %s", time.Since(began).Round(10*time.Millisecond))
				after := j.awaitRunning()
				if now := j.attempts(after); !maps.Equal(now, attempts) {
					t.Errorf("attempts %v, were %v", now, attempts)
				}
				if after.Restarts != 0 || after.Adopted != len(attempts) {
					t.Errorf("%d restarts, %d tasks adopted", after.Restarts, after.Adopted)
				}
			}
			now := j.workers()
			slices.Sort(workers)
			if slices.Sort(now); !slices.Equal(now, workers) {
				t.Errorf("workers %v, were %v", now, workers)
			}
			var failures struct {
				History struct {
					Entries []any `json:"entries"`
				} `json:"exceptionHistory"`
			}
			if err := j.rest("/jobs/"+j.id+"/exceptions", &failures); err != nil || len(failures.History.Entries) > 0 {
				t.Errorf("failures %v, %v", failures, err)
			}
			if err := <-written; err != nil {
				t.Fatal(err)
			}
			if err := e.WriteSentinels(t.Context(), in, s); err != nil {
				t.Fatal(err)
			}
			want := expected(s, s.Records)
			until(t, patience, "all results", func() (bool, error) { return len(allCommitted(t, k, out)) >= len(want), nil })
			j.awaitCheckpoint(j.awaitCheckpoint(0)) // whatever could come twice would be there by now
			same(t, "everything committed", allCommitted(t, k, out), want)
			j.do("cancel")
			j.awaitEnd()
			noOpenTransactions(t, k, txn)
		})
	}
}
