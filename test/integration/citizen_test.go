package integration

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/thalweg/thalweg/connector/kafka/kafkatest"
	"github.com/thalweg/thalweg/test/rig"
)

// placed are the TaskManagers of the job by host.
func (j *job) placed() (map[string]int, error) {
	var r struct {
		TaskManagers []struct{ Host string } `json:"taskmanagers"`
	}
	err := j.rest("/taskmanagers", &r)
	out := map[string]int{}
	for _, m := range r.TaskManagers {
		out[m.Host]++
	}
	return out, err
}

// apart finds a node that has TaskManagers of the job and not its master: its daemon and its host.
func (j *job) apart() (node, host string) {
	j.t.Helper()
	var r struct {
		App struct {
			Master string `json:"amHostHttpAddress"`
		}
	}
	until(j.t, patience, "a node without the master", func() (bool, error) {
		if err := getJSON(j.t.Context(), cluster.ResourceManagerWeb+"/ws/v1/cluster/apps/"+j.app, &r); err != nil {
			return false, err
		}
		there, err := j.placed()
		for _, n := range []string{rig.NodeManager1, rig.NodeManager2} {
			h, _, serr := net.SplitHostPort(cluster.NodeManager(n))
			if serr == nil && !strings.HasPrefix(r.App.Master, h+":") && there[h] > 0 {
				node, host = n, h
			}
		}
		return host != "", err
	})
	return node, host
}

// resize sets what the nodes have for containers, in mebibytes.
func resize(t *testing.T, mb int) {
	t.Helper()
	for _, n := range []string{rig.NodeManager1, rig.NodeManager2} {
		if _, err := cluster.YarnCLI(t.Context(), "rmadmin", "-updateNodeResource", cluster.NodeManager(n), strconv.Itoa(mb), "8"); err != nil {
			t.Fatal(err)
		}
	}
}

// A node is decommissioned gracefully under a job: its tasks move to the other one within the limit, by one planned hand-over that counts neither as
// a restart nor as a failure, and every record counts once. That the node goes and comes back disturbs nobody.
func TestDecommission(t *testing.T) {
	first, _, err := net.SplitHostPort(cluster.NodeManager(rig.NodeManager1))
	if err != nil {
		t.Fatal(err)
	}
	if second, _, err := net.SplitHostPort(cluster.NodeManager(rig.NodeManager2)); err != nil || first == second {
		t.Skipf("the nodes have one host, %s (%v): hosts are decommissioned, so make the cluster with THALWEG_RIG_HOSTS=2", first, err)
	}
	resize(t, 1024) // so that the master's node cannot have all TaskManagers
	k := kafkaCluster(t)
	in, out, txn := k.Topic(t, 4), k.Topic(t, 3), kafkatest.Name("txn")+"-"
	s := spec(900)
	s.Partitions = 4
	writeByConsole(t, in, true, consoleLines(s, 0, 300))
	j := submit(t, []string{"-p", "4", "-Dexecution.checkpointing.interval=1s", "-Drestart-strategy.type=none", "-Dtaskmanager.memory.process.size=256mb"}, bin+"/examples/order-totals",
		"--brokers", cluster.KafkaBootstrap, "--in", in, "--out", out, "--group", in, "--txn-prefix", txn, "--window", "1s", "--out-of-orderness", "1s", "--idle", "0")
	if cluster.External {
		notOurs(t, j.app)
	}
	j.awaitRunning()
	j.awaitCheckpoint(0)
	node, host := j.apart()
	resize(t, cluster.NodeMemoryMB())
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		if err := cluster.Exclude(); err != nil {
			t.Error(err)
		}
		if _, err := cluster.YarnCLI(ctx, "rmadmin", "-refreshNodes"); err != nil {
			t.Error(err)
		}
		if cluster.PID(node) == 0 {
			if err := cluster.StartDaemon(ctx, node); err != nil {
				t.Error(err)
			}
		}
	})
	if err := cluster.Exclude(host); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if _, err := cluster.YarnCLI(t.Context(), "rmadmin", "-refreshNodes", "-g", "60", "-server"); err != nil {
		t.Fatal(err)
	}
	var stopped, down time.Duration
	last := time.Now()
	until(t, time.Minute, "the tasks elsewhere", func() (bool, error) {
		st, err := j.state()
		now := time.Now()
		if err == nil && !st.running() {
			down += now.Sub(last)
		}
		last = now
		there, perr := j.placed()
		if err == nil {
			err = perr
		}
		stopped = now.Sub(began)
		return err == nil && st.running() && there[host] == 0 && len(there) > 0, err
	})
	t.Logf("moved %s after the command began, at most %s without running tasks", stopped.Round(10*time.Millisecond), down.Round(10*time.Millisecond))
	writeByConsole(t, in, true, consoleLines(s, 300, 600))
	j.awaitCheckpoint(j.awaitCheckpoint(0))
	var failures struct {
		ExceptionHistory struct{ Entries []any }
	}
	if err := j.rest("/jobs/"+j.id+"/exceptions", &failures); err != nil {
		t.Error(err)
	}
	if st := j.awaitRunning(); st.Restarts != 0 || len(failures.ExceptionHistory.Entries) != 0 {
		t.Errorf("%d restarts, failures %v", st.Restarts, failures.ExceptionHistory.Entries)
	}
	j.awaitContainers(5)

	until(t, 2*time.Minute, "the end of "+node, func() (bool, error) { return cluster.PID(node) == 0, nil })
	if err := cluster.Exclude(); err != nil {
		t.Fatal(err)
	}
	if _, err := cluster.YarnCLI(t.Context(), "rmadmin", "-refreshNodes"); err != nil {
		t.Fatal(err)
	}
	if err := cluster.StartDaemon(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	writeByConsole(t, in, true, append(consoleLines(s, 600, s.Records), closingLines(s)...))
	want := expected(s, s.Records)
	same(t, "read_committed console consumer", results(t, readByConsole(t, out, len(want))), want)
	j.awaitCheckpoint(j.awaitCheckpoint(0))
	same(t, "everything committed", allCommitted(t, k, out), want)
	j.do("cancel")
	j.awaitEnd()
	noOpenTransactions(t, k, txn)
}

// What is sent along is in the folder of every container, archives unpacked, and the job's processes have the environment that was set. When the job is
// over and its application gone, its history is still there.
func TestSentAlongAndRemembered(t *testing.T) {
	k := kafkaCluster(t)
	in, out, txn := k.Topic(t, 2), k.Topic(t, 1), kafkatest.Name("txn")+"-"
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "rules", "deep"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "rules", "deep", "a.txt"), "of a folder")
	write(t, filepath.Join(dir, "app.yaml"), "alone")
	if msg, err := exec.CommandContext(t.Context(), "tar", "-czf", filepath.Join(dir, "data.tar.gz"), "-C", dir, "rules").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, msg)
	}
	j := submit(t, []string{"--ship", dir + "/rules", "--ship", dir + "/app.yaml", "-Dyarn.ship-archives=" + dir + "/data.tar.gz", "-Dcontainerized.taskmanager.env.CITIZEN=yes",
		"-Dexecution.checkpointing.interval=500ms"}, totals, totalsArgs(in, out, txn)...)
	j.awaitRunning()
	j.awaitCheckpoint(0)
	workers := j.workers()
	if len(workers) == 0 {
		t.Fatal("no workers")
	}
	for _, pid := range append(workers, j.masters()...) {
		cwd := fmt.Sprintf("/proc/%d/cwd/", pid)
		for name, want := range map[string]string{"rules/deep/a.txt": "of a folder", "app.yaml": "alone", "data.tar.gz/rules/deep/a.txt": "of a folder"} {
			if got, err := os.ReadFile(cwd + name); err != nil || string(got) != want {
				t.Errorf("%s of process %d: %q, %v", name, pid, got, err)
			}
		}
	}
	for _, pid := range workers {
		if env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)); err != nil || !bytes.Contains(env, []byte("CITIZEN=yes\x00")) {
			t.Errorf("the environment of worker %d lacks what was set: %v", pid, err)
		}
	}
	j.do("cancel")
	j.awaitEnd()
	if r := thalweg(t, nil, "history", "list"); r.code != 0 || !hasRow(r.stdout, j.id, "CANCELED", j.app) {
		t.Error(r)
	}
	if r := thalweg(t, nil, "history", "show", j.id); r.code != 0 || !strings.Contains(r.stdout, "State        CANCELED") || !strings.Contains(r.stdout, "/chk-") {
		t.Error(r)
	}
	if r := thalweg(t, nil, "history", "show", "-o", "json", j.id); r.code != 0 || !strings.Contains(r.stdout, `"checkpoints":{`) || strings.Contains(r.stdout, secret) {
		t.Error(r)
	}
	noOpenTransactions(t, k, txn)
}
