package am_test

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/am/container"
	"github.com/thalweg/thalweg/am/control"
	"github.com/thalweg/thalweg/am/submit"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/runtime/rest"
	"github.com/thalweg/thalweg/yarnrpc/identity"
	"github.com/thalweg/thalweg/yarnrpc/yarn"
)

// testSession is a session on the fake cluster.
type testSession struct {
	*cluster
	id      yarn.ApplicationID
	rest    *control.REST
	program rest.Program
}

func startSession(t *testing.T, extra config.Configuration) *testSession {
	t.Helper()
	c := newCluster(t)
	who, err := identity.New(c.fake.Conf(), identity.WithUser("tester"))
	if err != nil {
		c.t.Fatal(err)
	}
	files, err := container.FileSystems(c.fake.Conf(), who, nil, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	conf := config.Configuration{
		"yarn.staging-directory": "file://" + c.root, "heartbeat.interval": "200 ms", "yarn.heartbeat.interval": "50 ms", "yarn.heartbeat.container-request-interval": "10 ms",
		"restart-strategy.type": "none", "taskmanager.memory.process.size": "256mb", "resourcemanager.previous-worker.recovery.timeout": "2 min",
	}
	for k, v := range extra {
		conf[k] = v
	}
	r, err := submit.Submit(t.Context(), submit.Request{YARN: c.yarn, FS: files, Hadoop: c.fake.Conf(), Config: conf, User: "tester", LibDir: c.lib, Logger: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	s := &testSession{cluster: c, id: r.ID}
	if s.program, err = control.ProgramOf(c.self); err != nil {
		t.Fatal(err)
	}
	s.attach()
	if n, err := s.rest.Upload(t.Context(), c.self, s.program, nil); err != nil || n != s.program.Size {
		t.Fatalf("%d bytes sent, %v\n%s", n, err, c.logs())
	}
	return s
}

// attach finds the master that leads.
func (s *testSession) attach() {
	s.t.Helper()
	if s.rest != nil {
		s.rest.Close()
	}
	_, r, err := control.AwaitSession(s.t.Context(), s.yarn, s.id, time.Minute)
	if err != nil {
		s.t.Fatalf("%v\n%s", err, s.logs())
	}
	s.rest = r
	s.t.Cleanup(r.Close)
}

func (s *testSession) run(conf map[string]string, args ...string) string {
	s.t.Helper()
	a, err := s.rest.SubmitJob(s.t.Context(), rest.JobRequest{Program: s.program, Args: args, Config: conf})
	if err != nil {
		s.t.Fatalf("%v\n%s", err, s.logs())
	}
	return a.JobID
}

func (s *testSession) awaitState(job, state string) {
	s.t.Helper()
	s.await("job "+job+" "+state, func() bool {
		j, err := s.rest.Job(s.t.Context(), job)
		return err == nil && j.State == state && (state != "RUNNING" || j.Runs())
	})
}

// A session runs jobs beside each other: one that panics, one that ends and one that is cancelled leave the others alone, and its containers are
// given back. What a job may not bring, or what cannot be planned, is refused by name.
func TestSession(t *testing.T) {
	s := startSession(t, config.Configuration{"resourcemanager.taskmanager-timeout": "500 ms"})
	endless := s.run(nil, "endless")
	s.awaitState(endless, "RUNNING")
	s.awaitState(s.run(nil, "panic"), "FAILED")
	s.awaitState(s.run(nil, "good"), "FINISHED")
	other := s.run(map[string]string{"parallelism.default": "2"}, "endless")
	s.awaitState(other, "RUNNING")
	if n, err := s.rest.Upload(t.Context(), s.self, s.program, nil); n != 0 || err != nil {
		t.Errorf("%d bytes of a program that is there were sent again, %v", n, err)
	}
	again, err := s.rest.SubmitJob(t.Context(), rest.JobRequest{JobID: other, Program: s.program, Args: []string{"endless"}})
	if err != nil || again.JobID != other {
		t.Errorf("a request that is repeated: %+v, %v", again, err)
	}
	for want, q := range map[string]rest.JobRequest{
		"taskmanager.numberOfTaskSlots": {Program: s.program, Config: map[string]string{"taskmanager.numberOfTaskSlots": "2"}},
		"the topic has no name":         {Program: s.program, Args: []string{"badplan"}},
		"is not here: send it first":    {Program: rest.Program{SHA256: strings.Repeat("a", 64), Size: 9, Name: "x"}},
		"want 64 hex digits":            {Program: rest.Program{SHA256: "../../etc/passwd", Size: 9}},
		"no.such.key":                   {Program: s.program, Config: map[string]string{"no.such.key": "2"}},
		"execution.state-recovery.path": {Program: s.program, Config: map[string]string{"execution.state-recovery.path": "/no/savepoint"}},
	} {
		var status *control.StatusError
		if _, err := s.rest.SubmitJob(t.Context(), q); !errors.As(err, &status) || status.Code/100 != 4 || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
	if err := s.rest.Cancel(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	s.awaitState(other, "CANCELED")
	s.await("idle TaskManagers given back", func() bool { return len(s.fake.Stats(s.id).Live) == 1 })
	s.awaitState(endless, "RUNNING")
	if err := s.rest.ShutDown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if a := s.ended(s.id); !a.Succeeded() || !strings.Contains(a.Diagnostics, "cancelled 1 of its jobs") || !a.Session {
		t.Errorf("%+v\n%s", a, s.logs())
	}
	s.cleaned()
}

// The next attempt goes on with all jobs, of programs that it has to fetch, and knows how those ended that had ended before.
func TestSessionSurvivesItsMaster(t *testing.T) {
	s := startSession(t, nil)
	first, second := s.run(nil, "endless"), s.run(nil, "endless")
	failed := s.run(nil, "panic")
	s.awaitState(first, "RUNNING")
	s.awaitState(second, "RUNNING")
	s.awaitState(failed, "FAILED")
	before := s.fake.Stats(s.id)
	master, ok := s.fake.Master(s.id)
	if !ok {
		t.Fatal("no master")
	}
	if err := s.fake.KillContainer(master, 137, "killed"); err != nil {
		t.Fatal(err)
	}
	s.await("next attempt", func() bool { m, ok := s.fake.Master(s.id); return ok && m != master && s.get(s.id).REST != "" })
	s.attach()
	s.awaitState(first, "RUNNING")
	s.awaitState(second, "RUNNING")
	s.awaitState(failed, "FAILED")
	if cause, err := s.rest.RootCause(t.Context(), failed); err != nil || !strings.Contains(cause, "boom on purpose") {
		t.Errorf("why a job failed before: %q, %v", cause, err)
	}
	if after := s.fake.Stats(s.id); after.Granted != before.Granted {
		t.Errorf("%d containers granted, then %d", before.Granted, after.Granted)
	}
	s.awaitState(s.run(nil, "good"), "FINISHED") // the program is fetched, not sent
	if err := s.rest.ShutDown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if a := s.ended(s.id); !a.Succeeded() {
		t.Errorf("%+v\n%s", a, s.logs())
	}
}

// An application of one job takes no others.
func TestApplicationTakesNoJobs(t *testing.T) {
	c := newCluster(t)
	r, err := c.submit("endless")
	if err != nil {
		t.Fatal(err)
	}
	target := c.running(r)
	defer target.REST.Close()
	var status *control.StatusError
	if _, err := target.REST.SubmitJob(t.Context(), rest.JobRequest{}); !errors.As(err, &status) || status.Code != http.StatusForbidden || !strings.Contains(err.Error(), "thalweg session start") {
		t.Errorf("%v", err)
	}
	var which *control.SelectionError
	if _, err := control.FindSession(t.Context(), c.yarn, config.Configuration{"yarn.application.id": r.ID.String()}, "tester"); !errors.As(err, &which) || !strings.Contains(err.Error(), "no session but the application of one job") {
		t.Errorf("%v", err)
	}
	if err := c.yarn.Kill(context.WithoutCancel(t.Context()), r.ID, "end of the test"); err != nil {
		t.Fatal(err)
	}
	if left, err := filepath.Glob(filepath.Join(c.root, "*", "programs")); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}
