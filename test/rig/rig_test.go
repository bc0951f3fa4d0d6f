package rig_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/thalweg/thalweg/test/rig"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// lines sends the rig's progress to the test's log.
type lines struct{ t *testing.T }

func (l lines) Write(b []byte) (int, error) {
	l.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

func start(t *testing.T, opts rig.Options) *rig.Cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("starts real daemons")
	}
	opts.Dir = filepath.Join(t.TempDir(), "cluster")
	opts.Progress = lines{t}
	c, err := rig.Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		if err := c.Stop(ctx); err != nil {
			t.Error(err)
		}
		if left := c.Left(); len(left) > 0 {
			t.Errorf("processes %v are left", left)
		}
	})
	return c
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func eventually(t *testing.T, what string, f func() error) {
	t.Helper()
	deadline := time.Now().Add(90 * time.Second)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", what, err)
		}
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		}
	}
}

// TestClusterLivesThroughRestartsAndLeavesNothing takes a whole cluster through its life with the stock clients as witnesses.
func TestClusterLivesThroughRestartsAndLeavesNothing(t *testing.T) {
	c := start(t, rig.Options{})
	ctx := t.Context()
	ok := must[string](t)

	// HDFS holds what it was given.
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, []byte("hello\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ok(c.HdfsCLI(ctx, "dfs", "-put", file, "/tmp/f"))
	// YARN shows both nodes, with their sizes.
	if out := ok(c.YarnCLI(ctx, "node", "-list")); strings.Count(out, " RUNNING") != 2 || !strings.Contains(out, "Total Nodes:2") {
		t.Errorf("yarn node -list: %s", out)
	}
	if out := ok(c.YarnCLI(ctx, "queue", "-status", "small")); !strings.Contains(out, "State : RUNNING") {
		t.Errorf("yarn queue -status small: %s", out)
	}
	// Kafka takes records and knows transactions of version 2.
	ok(c.KafkaCLI(ctx, "kafka-topics", "--create", "--topic", "t", "--partitions", "3"))
	ok(c.CLI(ctx, "one\ntwo\n", "kafka-console-producer", "--bootstrap-server", c.KafkaBootstrap, "--topic", "t"))
	if out := ok(c.KafkaCLI(ctx, "kafka-features", "describe")); !strings.Contains(strings.Join(strings.Fields(out), " "), "transaction.version SupportedMinVersion: 0 SupportedMaxVersion: 2 FinalizedVersionLevel: 2") {
		t.Errorf("kafka-features: %s", out)
	}
	if _, err := c.KafkaCLI(ctx, "kafka-topics", "--describe", "--topic", "missing"); err == nil {
		t.Error("a missing topic was made up")
	}

	// A second Start changes nothing.
	before := pids(t, c)
	again, err := rig.Start(ctx, rig.Options{Dir: c.Dir})
	if err != nil {
		t.Fatal(err)
	}
	if again.KafkaBootstrap != c.KafkaBootstrap || !slices.Equal(before, pids(t, again)) {
		t.Errorf("a second start changed the cluster: %v, then %v", before, pids(t, again))
	}

	// A container survives the restart of its NodeManager and of the ResourceManager.
	app := submit(t, c, "echo started; echo to stderr >&2; while [ ! -e "+filepath.Join(c.Dir, "end")+" ]; do sleep 0.2; done; echo ended")
	eventually(t, "container runs", func() error { return appState(c, app, "ACCEPTED", 1) })
	container := containers(c)
	for _, d := range []string{rig.NodeManager1, rig.NodeManager2, rig.ResourceManager} {
		if err := c.Restart(ctx, d); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Kill9(ctx, rig.Kafka); err != nil {
		t.Fatal(err)
	}
	if err := c.StartDaemon(ctx, rig.Kafka); err != nil {
		t.Fatal(err)
	}
	if err := c.Restart(ctx, rig.NameNode); err != nil {
		t.Fatal(err)
	}
	eventually(t, "application is known after the restarts", func() error { return appState(c, app, "ACCEPTED", 1) })
	if now := containers(c); len(container) == 0 || !slices.Equal(container, now) {
		t.Errorf("containers were %v, are %v", container, now)
	}
	if out := ok(c.YarnCLI(ctx, "application", "-status", app)); !strings.Contains(out, "ACCEPTED") {
		t.Errorf("yarn application -status: %s", out)
	}
	if out := ok(c.KafkaCLI(ctx, "kafka-console-consumer", "--topic", "t", "--from-beginning", "--max-messages", "2", "--timeout-ms", "30000")); strings.Count(out, "\n") != 2 {
		t.Errorf("records after the restart: %q", out)
	}
	eventually(t, "file is readable after the restart", func() error {
		out, err := c.HdfsCLI(ctx, "dfs", "-cat", "/tmp/f")
		if err == nil && out != "hello\n" {
			err = fmt.Errorf("got %q", out)
		}
		return err
	})

	// Its end is seen, and its logs are collected in HDFS.
	if err := os.WriteFile(filepath.Join(c.Dir, "end"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "application ends", func() error { return appState(c, app, "FAILED", 0) })
	eventually(t, "logs are aggregated", func() error {
		out, err := c.Command(ctx, "yarn", "logs", "-applicationId", app, "-appOwner", "dr.who").CombinedOutput()
		if err == nil && (!strings.Contains(string(out), "started") || !strings.Contains(string(out), "to stderr")) {
			err = fmt.Errorf("got %s", out)
		}
		return err
	})

	// Containers that run at the end are ended with the cluster.
	last := submit(t, c, "trap '' TERM; while true; do sleep 0.2; done")
	eventually(t, "last container runs", func() error { return appState(c, last, "ACCEPTED", 1) })
	if err := c.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if left := c.Left(); len(left) > 0 {
		t.Errorf("processes %v are left", left)
	}
	for _, s := range c.Status(ctx) {
		if s.PID != 0 || s.Ready == nil {
			t.Errorf("after stop: %+v", s)
		}
	}
	if err := c.Stop(ctx); err != nil { // again
		t.Error(err)
	}
}

func TestTwoClustersDoNotTouchEachOther(t *testing.T) {
	a := start(t, rig.Options{Daemons: []string{rig.Kafka}})
	b := start(t, rig.Options{Daemons: []string{rig.Kafka}, KafkaConfig: map[string]string{"transaction.max.timeout.ms": "60000"}})
	if a.KafkaBootstrap == b.KafkaBootstrap {
		t.Fatalf("both brokers are at %s", a.KafkaBootstrap)
	}
	must[string](t)(a.KafkaCLI(t.Context(), "kafka-topics", "--create", "--topic", "only-in-a"))
	if out := must[string](t)(b.KafkaCLI(t.Context(), "kafka-topics", "--list")); strings.Contains(out, "only-in-a") {
		t.Errorf("the other broker has the topic: %s", out)
	}
	if err := b.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	must[string](t)(a.KafkaCLI(t.Context(), "kafka-topics", "--describe", "--topic", "only-in-a"))
}

// Two test processes, here two calls, share a cluster; the last one stops it, and one that was up before stays up.
func TestSharedClusterEndsWithItsLastUser(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real daemons")
	}
	ctx := t.Context()
	opts := rig.Options{Dir: filepath.Join(t.TempDir(), "cluster"), Daemons: []string{rig.Kafka}}
	share := func() (*rig.Cluster, func()) {
		c, release, err := rig.Shared(ctx, opts)
		if err != nil {
			t.Fatal(err)
		}
		return c, func() {
			if err := release(context.WithoutCancel(ctx)); err != nil {
				t.Error(err)
			}
		}
	}
	a, releaseA := share()
	b, releaseB := share()
	if a.PID(rig.Kafka) == 0 || a.PID(rig.Kafka) != b.PID(rig.Kafka) {
		t.Errorf("brokers %d and %d", a.PID(rig.Kafka), b.PID(rig.Kafka))
	}
	releaseA()
	if b.PID(rig.Kafka) == 0 {
		t.Error("the first to leave has stopped the cluster")
	}
	releaseB()
	if left := b.Left(); len(left) > 0 {
		t.Errorf("processes %v are left", left)
	}
	own, err := rig.Start(ctx, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := own.Stop(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	})
	_, release := share()
	release()
	if own.PID(rig.Kafka) == 0 {
		t.Error("a cluster that was up before was stopped")
	}
}

func TestADaemonThatDiesIsNamedWithItsReason(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real daemons")
	}
	dir := filepath.Join(t.TempDir(), "cluster")
	_, err := rig.Start(t.Context(), rig.Options{Dir: dir, Daemons: []string{rig.ResourceManager},
		YARNSite: map[string]string{"yarn.resourcemanager.scheduler.class": "no.such.Scheduler"}})
	if err == nil || !strings.Contains(err.Error(), "resourcemanager") || !strings.Contains(err.Error(), "no.such.Scheduler") || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v, want one line with the daemon and the class", err)
	}
	c, err := rig.Attach(dir)
	if err != nil {
		t.Fatal(err)
	}
	if left := c.Left(); len(left) > 0 {
		t.Errorf("processes %v are left", left)
	}
}

func TestMistakesAreOneLine(t *testing.T) {
	for name, tc := range map[string]struct {
		err  func() error
		want string
	}{
		"no cluster": {func() error { _, err := rig.Attach(t.TempDir()); return err }, "make cluster-up"},
		"no such daemon": {func() error {
			_, err := rig.Start(t.Context(), rig.Options{Dir: t.TempDir(), Daemons: []string{"zookeeper"}})
			return err
		}, "namenode"},
		"a folder with blanks": {func() error {
			_, err := rig.Start(t.Context(), rig.Options{Dir: filepath.Join(t.TempDir(), "a b")})
			return err
		}, "THALWEG_CLUSTER_DIR"},
		"no Java": {func() error {
			t.Setenv("JAVA_HOME", "")
			t.Setenv("PATH", t.TempDir())
			_, err := rig.Start(t.Context(), rig.Options{Dir: t.TempDir()})
			return err
		}, "apt-get install"},
	} {
		err := tc.err()
		if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want one line with %q", name, err, tc.want)
		}
	}
}

func pids(t *testing.T, c *rig.Cluster) []int {
	t.Helper()
	var out []int
	for _, s := range c.Status(t.Context()) {
		if s.Ready != nil {
			t.Errorf("%s: %v", s.Daemon, s.Ready)
		}
		out = append(out, s.PID)
	}
	return out
}

// containers are the leaders of the containers' sessions: what a script starts and ends by itself does not count.
func containers(c *rig.Cluster) []int {
	return slices.DeleteFunc(c.Containers(), func(p int) bool {
		b, err := os.ReadFile("/proc/" + strconv.Itoa(p) + "/stat")
		i := bytes.LastIndexByte(b, ')')
		return err != nil || i < 0 || strings.Fields(string(b[i+1:]))[3] != strconv.Itoa(p)
	})
}

// submit runs a shell command as an application that never registers, through the ResourceManager's REST interface.
func submit(t *testing.T, c *rig.Cluster, command string) string {
	t.Helper()
	var created struct {
		ID string `json:"application-id"`
	}
	post(t, c.ResourceManagerWeb+"/ws/v1/cluster/apps/new-application", nil, &created)
	post(t, c.ResourceManagerWeb+"/ws/v1/cluster/apps", map[string]any{
		"application-id": created.ID, "application-name": "test", "application-type": "TEST", "max-app-attempts": 1,
		"resource": map[string]any{"memory": 64, "vCores": 1},
		"am-container-spec": map[string]any{"commands": map[string]any{
			"command": fmt.Sprintf("%s 1><LOG_DIR>/stdout 2><LOG_DIR>/stderr", "bash -c '"+strings.ReplaceAll(command, "'", `'"'"'`)+"'"),
		}},
	}, nil)
	return created.ID
}

func post(t *testing.T, url string, body, into any) {
	t.Helper()
	b, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	out, _ := io.ReadAll(resp.Body)
	if resp.StatusCode/100 != 2 {
		t.Fatalf("POST %s: %s: %s", url, resp.Status, out)
	}
	if into != nil {
		if err := json.Unmarshal(out, into); err != nil {
			t.Fatalf("POST %s: %v: %s", url, err, out)
		}
	}
}

// appState returns nil when the application is in the state with that many running containers.
func appState(c *rig.Cluster, app, state string, running int) error {
	var page struct {
		App struct {
			State       string `json:"state"`
			Running     int    `json:"runningContainers"`
			Diagnostics string `json:"diagnostics"`
		} `json:"app"`
	}
	req, err := http.NewRequest(http.MethodGet, c.ResourceManagerWeb+"/ws/v1/cluster/apps/"+app, http.NoBody)
	if err != nil {
		return err
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if err := json.NewDecoder(resp.Body).Decode(&page); err != nil {
		return err
	}
	if page.App.State != state || (running > 0 && (page.App.Running != running || len(containers(c)) == 0)) {
		return fmt.Errorf("%s is %s with %d containers (%s)", app, page.App.State, page.App.Running, page.App.Diagnostics)
	}
	return nil
}
