package am_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/thalweg/thalweg/am"
	"github.com/thalweg/thalweg/am/container"
	"github.com/thalweg/thalweg/am/control"
	"github.com/thalweg/thalweg/am/submit"
	"github.com/thalweg/thalweg/am/worker"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/connector/datagen"
	"github.com/thalweg/thalweg/runtime/rpc"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/yarnrpc/client"
	"github.com/thalweg/thalweg/yarnrpc/identity"
	"github.com/thalweg/thalweg/yarnrpc/yarn"
	"github.com/thalweg/thalweg/yarnrpc/yarnfake"
)

// TestMain plays all programs of an application: the fake cluster's NodeManagers start copies of this binary under the names of the
// product's own, and those start it in the roles of a job.
func TestMain(m *testing.M) {
	program := func(run func(context.Context, func(string) string) error) {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		if err := run(ctx, os.Getenv); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	switch {
	case os.Getenv(rpc.EnvRole) != "":
		stream.Main("life", build)
	case filepath.Base(os.Args[0]) == am.MasterBinary:
		program(am.Run)
	case filepath.Base(os.Args[0]) == am.TaskManagerBinary:
		program(worker.Run)
	}
	goleak.VerifyTestMain(m)
}

// build is the job; its argument says how it goes.
func build(env *stream.Environment) error {
	kind := ""
	if a := env.Args(); len(a) > 0 {
		kind = a[0]
	}
	if kind == "badplan" {
		return errors.New("the topic has no name")
	}
	opts := []datagen.Option{datagen.Count(5)}
	if kind == "endless" {
		opts = []datagen.Option{datagen.RatePerSecond(10)}
	}
	src := datagen.Source(func(n int64) int64 { return n + 1 }, opts...)
	env.FromSource(src, stream.NoWatermarks[int64](), "numbers").UID("numbers").Map(func(n int64) int64 {
		switch kind {
		case "panic":
			panic("boom on purpose")
		case "stuck":
			fmt.Println("it hangs")
			select {} // a deadlock
		}
		return n * 2
	}).UID("double").Print().UID("print")
	return nil
}

// cluster is a fake YARN with a staging folder on this machine.
type cluster struct {
	t     *testing.T
	fake  *yarnfake.Cluster
	yarn  *client.Client
	root  string // staging
	lib   string
	self  string
	extra config.Configuration
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	dir := t.TempDir()
	c := &cluster{t: t, root: filepath.Join(dir, "staging"), lib: filepath.Join(dir, "lib")}
	var err error
	if c.self, err = os.Executable(); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(c.lib, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{am.MasterBinary, am.TaskManagerBinary} {
		if err := os.Symlink(c.self, filepath.Join(c.lib, name)); err != nil {
			t.Fatal(err)
		}
	}
	c.fake, err = yarnfake.Start(yarnfake.WithRunner(yarnfake.Processes(nil, nil)), yarnfake.WithDir(filepath.Join(dir, "nodes")), yarnfake.WithNodes(2, yarn.Resource{MemoryMB: 8192, VCores: 16}),
		yarnfake.WithConf(map[string]string{"fs.defaultFS": "file:///"}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.fake.Close() })
	if c.yarn, err = client.New(c.fake.Conf()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.yarn.Close() })
	return c
}

func (c *cluster) submit(args ...string) (*submit.Result, error) {
	c.t.Helper()
	who, err := identity.New(c.fake.Conf(), identity.WithUser("tester"))
	if err != nil {
		c.t.Fatal(err)
	}
	files, err := container.FileSystems(c.fake.Conf(), who, nil, zerolog.Nop())
	if err != nil {
		c.t.Fatal(err)
	}
	conf := config.Configuration{
		"yarn.staging-directory": "file://" + c.root, "heartbeat.interval": "200 ms", "yarn.heartbeat.interval": "50 ms", "yarn.heartbeat.container-request-interval": "10 ms",
		"restart-strategy.type": "none", "yarn.application.name": c.t.Name(), "taskmanager.memory.process.size": "256mb", "resourcemanager.previous-worker.recovery.timeout": "2 min",
	}
	maps.Copy(conf, c.extra)
	return submit.Submit(c.t.Context(), submit.Request{
		YARN: c.yarn, FS: files, Hadoop: c.fake.Conf(), Config: conf, User: "tester", Artifact: c.self, Args: args, LibDir: c.lib, Logger: zerolog.Nop(),
	})
}

func (c *cluster) await(what string, cond func() bool) {
	c.t.Helper()
	deadline := time.NewTimer(3 * time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-deadline.C:
			c.t.Fatalf("timed out waiting for %s\n%s", what, c.logs())
		case <-tick.C:
		}
	}
}

func (c *cluster) get(id yarn.ApplicationID) control.Application {
	c.t.Helper()
	a, err := control.Get(c.t.Context(), c.yarn, id)
	if err != nil {
		c.t.Fatal(err)
	}
	return a
}

func (c *cluster) ended(id yarn.ApplicationID) control.Application {
	c.t.Helper()
	var a control.Application
	c.await("the end of "+id.String(), func() bool { a = c.get(id); return a.Ended() })
	return a
}

// logs are the last lines of all log files, for failures.
func (c *cluster) logs() string {
	var b strings.Builder
	_ = filepath.Walk(c.fake.Dir(), func(p string, info os.FileInfo, err error) error {
		if err == nil && strings.Contains(p, "/logs/") && info.Mode().IsRegular() {
			text, _ := os.ReadFile(p)
			lines := strings.Split(strings.TrimSpace(string(text)), "\n")
			fmt.Fprintf(&b, "== %s\n%s\n", p, strings.Join(lines[max(0, len(lines)-15):], "\n"))
		}
		return nil
	})
	return b.String()
}

// cleaned waits until no application has a folder below the staging root: the master removes it after it has unregistered.
func (c *cluster) cleaned() {
	c.t.Helper()
	c.await("clean staging folder", func() bool {
		found, err := filepath.Glob(filepath.Join(c.root, "application_*"))
		return err == nil && len(found) == 0
	})
}

func (c *cluster) find(pattern string) []string {
	var out []string
	_ = filepath.Walk(c.fake.Dir(), func(p string, info os.FileInfo, err error) error {
		if ok, _ := filepath.Match(pattern, filepath.Base(p)); err == nil && ok && info.Mode().IsRegular() && strings.Contains(p, "/logs/") {
			out = append(out, p)
		}
		return nil
	})
	return out
}

// output is what all workers have printed.
func (c *cluster) output() (out string) {
	c.t.Helper()
	for _, p := range c.find("taskmanager.out") {
		b, err := os.ReadFile(p)
		if err != nil {
			c.t.Fatal(err)
		}
		out += string(b)
	}
	return out
}

func TestJobThatEndsWell(t *testing.T) {
	c := newCluster(t)
	r, err := c.submit("good")
	if err != nil {
		t.Fatal(err)
	}
	a := c.ended(r.ID)
	if !a.Succeeded() {
		t.Fatalf("%+v\n%s", a, c.logs())
	}
	c.cleaned()
	out := c.output()
	for _, want := range []string{"2", "4", "6", "8", "10"} {
		if !strings.Contains(out, want) {
			t.Errorf("taskmanager.out lacks %s: %q", want, out)
		}
	}
	if len(c.find("jobmanager.log")) != 1 || len(c.find("taskmanager.log")) != 1 {
		t.Errorf("logs: %v", c.find("*.log"))
	}
	// A second submission of the same programs sends nothing.
	again, err := c.submit("good")
	if err != nil {
		t.Fatal(err)
	}
	if r.Sent == 0 || again.Sent != 0 {
		t.Errorf("sent %d bytes, then %d", r.Sent, again.Sent)
	}
	if a := c.ended(again.ID); !a.Succeeded() {
		t.Errorf("%+v", a)
	}
}

// FLINK-12302, FLINK-2226: what YARN shows is what happened.
func TestFailuresAreTold(t *testing.T) {
	for kind, want := range map[string]string{"panic": "boom on purpose", "badplan": "the topic has no name"} {
		t.Run(kind, func(t *testing.T) {
			c := newCluster(t)
			r, err := c.submit(kind)
			if err != nil {
				t.Fatal(err)
			}
			a := c.ended(r.ID)
			if a.State != "FINISHED" || a.Final != "FAILED" || !strings.Contains(a.Diagnostics, want) {
				t.Errorf("%+v\n%s", a, c.logs())
			}
			c.cleaned()
			if n := c.fake.Stats(r.ID).Attempts; n != 1 {
				t.Errorf("%d attempts for what no attempt can do better", n)
			}
		})
	}
}

func (c *cluster) running(r *submit.Result) *control.Target {
	c.t.Helper()
	var target *control.Target
	c.await("running job", func() bool {
		found, err := control.FindJob(c.t.Context(), c.yarn, config.Configuration{"yarn.application.id": r.ID.String()}, "")
		if err != nil {
			return false
		}
		j, err := found.REST.Job(c.t.Context(), found.Job.ID)
		found.REST.Close()
		if err != nil || j.State != "RUNNING" {
			return false
		}
		for _, v := range j.Vertices {
			if v.Status != "RUNNING" {
				return false
			}
		}
		target = found
		return true
	})
	return target
}

func TestCancelledJobIsKilled(t *testing.T) {
	c := newCluster(t)
	r, err := c.submit("endless")
	if err != nil {
		t.Fatal(err)
	}
	target := c.running(r)
	if target.Job.ID != r.JobID {
		t.Errorf("job %s, the client said %s", target.Job.ID, r.JobID)
	}
	var status *control.StatusError
	if _, err := target.REST.TriggerSavepoint(t.Context(), target.Job.ID, control.SavepointRequest{Dir: "ftp://h/x"}); !errors.As(err, &status) || status.Code != 400 || !strings.Contains(err.Error(), "target-directory = ftp://h/x") {
		t.Errorf("a savepoint into a folder that no file system is for: %v", err)
	}
	err = target.REST.Cancel(t.Context(), target.Job.ID)
	target.REST.Close()
	if err != nil {
		t.Fatal(err)
	}
	if a := c.ended(r.ID); a.State != "FINISHED" || a.Final != "KILLED" {
		t.Errorf("%+v\n%s", a, c.logs())
	}
	c.cleaned()
}

// A map function that hangs cannot be asked to end: its worker process is killed, after task.cancellation.timeout.
func TestStuckJobIsCancelled(t *testing.T) {
	c := newCluster(t)
	c.extra = config.Configuration{"task.cancellation.timeout": "200 ms"}
	r, err := c.submit("stuck")
	if err != nil {
		t.Fatal(err)
	}
	target := c.running(r)
	c.await("the function that hangs", func() bool { return strings.Contains(c.output(), "it hangs") })
	err = target.REST.Cancel(t.Context(), target.Job.ID)
	target.REST.Close()
	if err != nil {
		t.Fatal(err)
	}
	if a := c.ended(r.ID); a.State != "FINISHED" || a.Final != "KILLED" {
		t.Errorf("%+v\n%s", a, c.logs())
	}
	var log string
	for _, p := range c.find("jobmanager.log") {
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		log += string(b)
	}
	if !strings.Contains(log, "tasks do not end; their worker is killed") {
		t.Errorf("the worker ended by itself:\n%s", log)
	}
}

// FLINK-8434, FLINK-4152: the containers of the attempt that died serve the next one.
func TestNextAttemptKeepsItsContainers(t *testing.T) {
	c := newCluster(t)
	c.extra = config.Configuration{"parallelism.default": "3"}
	r, err := c.submit("endless")
	if err != nil {
		t.Fatal(err)
	}
	c.running(r)
	before := c.fake.Stats(r.ID)
	master, ok := c.fake.Master(r.ID)
	if !ok || len(before.Live) != 3 {
		t.Fatalf("%v, %+v", ok, before)
	}
	if err := c.fake.KillContainer(master, 137, "killed"); err != nil {
		t.Fatal(err)
	}
	c.await("next attempt", func() bool { m, ok := c.fake.Master(r.ID); return ok && m != master && c.get(r.ID).REST != "" })
	target := c.running(r)
	after := c.fake.Stats(r.ID)
	if fmt.Sprint(after.Live) != fmt.Sprint(before.Live) || after.Granted != before.Granted {
		t.Errorf("containers %v became %v (%d granted, then %d)\n%s", before.Live, after.Live, before.Granted, after.Granted, c.logs())
	}
	if target.Job.ID != r.JobID {
		t.Errorf("another job: %s", target.Job.ID)
	}
	if err := c.yarn.Kill(t.Context(), r.ID, "end of the test"); err != nil {
		t.Fatal(err)
	}
}

// High-availability data that is damaged ends the application, with the reason, instead of one attempt after the other.
func TestDamagedDataEndsTheApplication(t *testing.T) {
	for kind, damage := range map[string]func(t *testing.T, dir string){
		"no token": func(t *testing.T, dir string) {
			found, err := filepath.Glob(filepath.Join(dir, "e1.c*"))
			if err != nil || len(found) != 1 {
				t.Fatalf("%v, %v", found, err)
			}
			if err := os.Remove(found[0]); err != nil {
				t.Fatal(err)
			}
		},
		"garbage": func(t *testing.T, dir string) {
			if err := os.WriteFile(filepath.Join(dir, "job"), []byte("garbage"), 0o600); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(kind, func(t *testing.T) {
			c := newCluster(t)
			r, err := c.submit("endless")
			if err != nil {
				t.Fatal(err)
			}
			c.running(r).REST.Close()
			master, ok := c.fake.Master(r.ID)
			if !ok {
				t.Fatal("no master")
			}
			damage(t, filepath.Join(c.root, r.ID.String(), "ha", "jobs", r.JobID))
			if err := c.fake.KillContainer(master, 137, "killed"); err != nil {
				t.Fatal(err)
			}
			a := c.ended(r.ID)
			if a.State != "FINISHED" || a.Final != "FAILED" || !strings.Contains(a.Diagnostics, "data is damaged; submit the job again") || !strings.Contains(a.Diagnostics, r.JobID) {
				t.Errorf("%+v\n%s", a, c.logs())
			}
			if n := c.fake.Stats(r.ID).Attempts; n != 2 {
				t.Errorf("%d attempts", n)
			}
			c.cleaned()
		})
	}
}
