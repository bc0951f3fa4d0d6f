package integration

import (
	"context"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/thalweg/thalweg/connector/kafka/kafkatest"
	"github.com/thalweg/thalweg/test/eos"
)

// totalsArgs are the arguments of the totals program.
func totalsArgs(in, out, txn string, more ...string) []string {
	return append([]string{"--brokers", cluster.KafkaBootstrap, "--in", in, "--out", out, "--group", out, "--txn-prefix", txn}, more...)
}

// kill kills a process with SIGKILL and waits until the job runs again.
func (j *job) kill(pid int) {
	j.t.Helper()
	before, err := j.state()
	if err != nil {
		j.t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		j.t.Fatal(err)
	}
	until(j.t, patience, "the restart after a kill", func() (bool, error) {
		st, err := j.state()
		return st.running() && st.Restarts > before.Restarts, err
	})
}

// A memory-only scheduler grants containers that show other vcores than were asked. The number of containers stays the same, however often
// one dies.
func TestContainersStayAsManyAsWanted(t *testing.T) {
	k := kafkaCluster(t)
	in, out, txn := k.Topic(t, 2), k.Topic(t, 1), kafkatest.Name("txn")+"-"
	j := submit(t, []string{"-p", "2", "-Dyarn.containers.vcores=2", "-Dexecution.checkpointing.interval=500ms", "-Dresourcemanager.taskmanager-timeout=2s"}, totals, totalsArgs(in, out, txn)...)
	j.awaitRunning()
	for range 3 {
		pids := j.taskManagers()
		if len(pids) != 2 {
			t.Fatalf("%d TaskManager processes, want 2: %v", len(pids), pids)
		}
		j.kill(pids[0])
		until(t, patience, "two TaskManagers and three containers", func() (bool, error) {
			var r struct {
				TaskManagers []struct{} `json:"taskmanagers"`
			}
			if err := j.rest("/taskmanagers", &r); err != nil {
				return false, err
			}
			a, err := j.application()
			if err == nil && (a.Containers != 3 || len(r.TaskManagers) != 2) {
				err = fmt.Errorf("%d containers, %d TaskManagers", a.Containers, len(r.TaskManagers))
			}
			return err == nil && len(j.taskManagers()) == 2, err
		})
	}
	j.do("cancel")
	if a := j.awaitEnd(); a.Final != "KILLED" {
		t.Errorf("%s/%s: %s", a.State, a.Final, a.Diagnostics)
	}
}

// TaskManagers that always die are not launched for ever: the application fails, and says with which exit code and words they died.
func TestLaunchesThatAlwaysFail(t *testing.T) {
	j := submit(t, []string{"-Dio.tmp.dirs=/proc/no/such/folder", "-Dresourcemanager.start-worker.max-failures=3", "-Dresourcemanager.start-worker.retry-interval=100ms"}, totals, "--collection")
	a := j.awaitEnd()
	if a.Final != "FAILED" || !strings.Contains(a.Diagnostics, "/proc/no/such/folder") || !regexp.MustCompile(`exit code \d+|exitCode`).MatchString(a.Diagnostics) {
		t.Errorf("%s/%s: %s", a.State, a.Final, a.Diagnostics)
	}
}

// A savepoint that was moved restores; a job that fails before its first own checkpoint starts from the savepoint again, not empty.
func TestMovedSavepointAndEarlyDeath(t *testing.T) {
	k := kafkaCluster(t)
	s := spec(600)
	in, out, txn := k.Topic(t, s.Partitions), k.Topic(t, 2), kafkatest.Name("txn")+"-"
	e := eos.Cluster{Brokers: k.Brokers}
	if err := e.Write(t.Context(), in, s, 0, 300, 0); err != nil {
		t.Fatal(err)
	}
	first := submit(t, []string{"-Dexecution.checkpointing.interval=500ms"}, totals, totalsArgs(in, out, txn)...)
	first.awaitRunning()
	first.awaitCheckpoint(1)
	sp := regexp.MustCompile(`hdfs:\S+/savepoint-\S+`).FindString(first.do("stop", "-p", "hdfs:///savepoints"))
	first.awaitEnd()
	_, from := hdfsPath(t, sp)
	moved := "/moved/" + kafkatest.Name("sp") + "/" + path.Base(from)
	for _, c := range [][]string{{"-mkdir", "-p", path.Dir(moved)}, {"-mv", from, moved}} {
		if _, err := cluster.HdfsCLI(t.Context(), append([]string{"dfs"}, c...)...); err != nil {
			t.Fatal(err)
		}
	}
	second := submit(t, []string{"-p", "2", "-Dexecution.checkpointing.interval=10min", "-Dexecution.checkpointing.timeout=1min", "-s", "hdfs://" + moved},
		totals, totalsArgs(in, out, txn)...)
	second.awaitRunning()
	second.kill(second.workers()[0])
	if err := e.Write(t.Context(), in, s, 300, s.Records, 0); err != nil {
		t.Fatal(err)
	}
	if err := e.WriteSentinels(t.Context(), in, s); err != nil {
		t.Fatal(err)
	}
	want := expected(s, s.Records)
	until(t, patience, "all results", func() (bool, error) {
		second.do("checkpoint")
		got := committed(t, k, out)
		return len(got) >= len(want), fmt.Errorf("%d of %d", len(got), len(want))
	})
	same(t, "after the move and the death", committed(t, k, out), want)
	second.do("cancel")
	second.awaitEnd()
	noOpenTransactions(t, k, txn)
}

// The containers of a job are killed between two checkpoints; its transactions are open and hold back readers of the topic, to which somebody
// else writes too. The next run, without state and at another parallelism, aborts them: readers wait for it, not for a time-out.
func TestTransactionsOfAKilledJobAreAborted(t *testing.T) {
	k := kafkaCluster(t)
	s := spec(400)
	in, out, txn := k.Topic(t, s.Partitions), k.Topic(t, 1), kafkatest.Name("txn")+"-"
	e := eos.Cluster{Brokers: k.Brokers}
	if err := e.Write(t.Context(), in, s, 0, s.Records, 0); err != nil {
		t.Fatal(err)
	}
	conf := []string{"-Dexecution.checkpointing.interval=10min", "-Dexecution.checkpointing.timeout=1min"}
	first := submit(t, append(conf, "-p", "4", "-Dyarn.application-attempts=1"), totals, totalsArgs(in, out, txn)...)
	first.awaitRunning()
	until(t, patience, "open transactions with records", func() (bool, error) {
		lag, err := k.StableLag(t.Context(), out)
		return lag > 0, err
	})
	for _, p := range first.processes(func(_, cmd []byte) bool { return !strings.HasPrefix(string(cmd), "/bin/bash") }) { // all at once
		if err := syscall.Kill(p, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Fatal(err)
		}
	}
	if a := first.awaitEnd(); a.Final != "FAILED" {
		t.Errorf("%s/%s", a.State, a.Final)
	}
	k.ProduceRecords(t, &kgo.Record{Topic: out, Value: []byte("somebody else")})
	if lag, err := k.StableLag(t.Context(), out); err != nil || lag == 0 {
		t.Fatalf("the killed job holds nobody back (lag %d, %v): the test shows nothing", lag, err)
	}
	second := submit(t, append(conf, "-p", "2"), totals, totalsArgs(in, out, txn, "--group", "other-"+out, "--start", "latest")...)
	second.awaitRunning()
	until(t, patience, "readers that are not held back", func() (bool, error) {
		lag, err := k.StableLag(t.Context(), out)
		return err == nil && lag == 0, err
	})
	recs := k.Read(t, out, true)
	if len(recs) != 1 || string(recs[0].Value) != "somebody else" {
		t.Errorf("%d committed records, want the one of somebody else", len(recs))
	}
	second.do("cancel")
	second.awaitEnd()
	noOpenTransactions(t, k, txn)
}

// The master dies: the next attempt has the same containers, and the job goes on from its latest checkpoint.
func TestNextAttemptHasTheSameContainers(t *testing.T) {
	k := kafkaCluster(t)
	in, out, txn := k.Topic(t, 2), k.Topic(t, 1), kafkatest.Name("txn")+"-"
	j := submit(t, []string{"-p", "3", "-Dexecution.checkpointing.interval=500ms"}, totals, totalsArgs(in, out, txn)...)
	j.awaitRunning()
	done := j.awaitCheckpoint(0)
	before := j.taskManagers()
	masters := j.processes(func(env, cmd []byte) bool {
		return strings.HasSuffix(strings.Split(string(cmd), "\x00")[0], "thalweg-appmaster")
	})
	if len(before) != 3 || len(masters) != 1 {
		t.Fatalf("TaskManagers %v, masters %v", before, masters)
	}
	j.awaitReported(1 + len(before))
	if err := syscall.Kill(masters[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	j.awaitCheckpoint(done) // of the new attempt, or the numbers would not go on
	j.awaitRunning()
	after := j.taskManagers()
	slices.Sort(before)
	slices.Sort(after)
	if !slices.Equal(before, after) {
		t.Errorf("TaskManagers were %v, are %v", before, after)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if text, err := cluster.YarnCLI(ctx, "applicationattempt", "-list", j.app); err != nil || !strings.Contains(text, "_000002") {
		t.Errorf("no second attempt: %v\n%s", err, text)
	}
	j.do("cancel")
	if a := j.awaitEnd(); a.Final != "KILLED" {
		t.Errorf("%s/%s: %s", a.State, a.Final, a.Diagnostics)
	}
	noOpenTransactions(t, k, txn)
}

// awaitReported waits until the ResourceManager has heard from the nodes that n containers of the first attempt run. It kills a younger one
// with its application master. It lists a container as RUNNING from its grant on, so the nodes get two heartbeats (1 s each) after that.
func (j *job) awaitReported(n int) {
	j.t.Helper()
	const heartbeats = 2200 * time.Millisecond
	var listed time.Time
	attempt := strings.Replace(j.app, "application_", "appattempt_", 1) + "_000001"
	until(j.t, patience, fmt.Sprintf("%d containers that the ResourceManager knows to run", n), func() (bool, error) {
		text, err := cluster.YarnCLI(j.t.Context(), "container", "-list", attempt)
		if listed.IsZero() && strings.Count(text, "RUNNING") >= n {
			listed = time.Now()
		}
		return !listed.IsZero() && time.Since(listed) >= heartbeats, err
	})
}

// One partition, two subtasks, no discovery: the surplus one has nothing to read for ever. While the other is idle, nothing may become late.
func TestSurplusSubtasksDoNotDecideTheWatermark(t *testing.T) {
	k := kafkaCluster(t)
	in, out, txn := k.Topic(t, 1), k.Topic(t, 1), kafkatest.Name("txn")+"-"
	at := func(customer string, second int) string {
		return fmt.Sprintf(`{"customer_id":%q,"amount_in_cents":10,"occurred_at":"2026-01-01T00:00:%02dZ"}`, customer, second)
	}
	j := submit(t, []string{"-p", "2", "-Dexecution.checkpointing.interval=1s"}, bin+"/examples/order-totals", "--brokers", cluster.KafkaBootstrap, "--in", in, "--out", out,
		"--group", in, "--txn-prefix", txn, "--window", "10s", "--out-of-orderness", "0s", "--idle", "1s", "--discovery", "0")
	j.awaitRunning()
	k.Produce(t, in, 0, at("c", 1))
	n := int64(0)
	for range 4 { // as many seconds
		n = j.awaitCheckpoint(n)
	}
	k.Produce(t, in, 0, at("c", 2), at("~end-", 30))
	until(t, patience, "the window's result", func() (bool, error) { return len(committed(t, k, out)) > 0, nil })
	same(t, "both records are counted", committed(t, k, out), []string{total{"c", time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli(), 20}.String()})
	j.do("cancel")
	j.awaitEnd()
}
