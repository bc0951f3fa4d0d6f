package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/thalweg/thalweg/am"
	"github.com/thalweg/thalweg/internal/version"
	"github.com/thalweg/thalweg/runtime/rest"
	rmclient "github.com/thalweg/thalweg/yarnrpc/am"
	yarnpb "github.com/thalweg/thalweg/yarnrpc/proto/yarn"
	"github.com/thalweg/thalweg/yarnrpc/yarnfake"
)

// fakeSession is a session whose jobs are FINISHED, or FAILED when their first argument is "fail".
type fakeSession struct {
	protocol int
	last     atomic.Pointer[rest.JobRequest]
	over     chan struct{}
}

func (s *fakeSession) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	say := func(format string, args ...any) { fmt.Fprintf(w, format, args...) } //nolint:errcheck // a test
	switch p := r.URL.Path; {
	case p == "/config":
		say(`{"flink-version":"0.0.9","protocol":%d,"session":true}`, s.protocol)
	case p == "/overview":
		say(`{"taskmanagers":1,"slots-total":2,"slots-available":1,"jobs-running":1}`)
	case strings.HasPrefix(p, "/programs/"):
		say(`{"offset":1,"complete":true}`)
	case p == "/jobs" && r.Method == http.MethodPost:
		var q rest.JobRequest
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		if len(q.Args) > 0 && q.Args[0] == "bad" {
			w.WriteHeader(http.StatusUnprocessableEntity)
			say(`{"errors":["the program did not build its job graph: no topic"]}`)
			return
		}
		s.last.Store(&q)
		say(`{"jobid":%q,"name":"job"}`, q.JobID)
	case strings.HasSuffix(p, "/exceptions"):
		say(`{"exceptionHistory":{"entries":[{"exceptionName":"e","stacktrace":"boom","taskName":"Map"}]}}`)
	case strings.HasPrefix(p, "/jobs/"):
		state := "FINISHED"
		if q := s.last.Load(); q != nil && len(q.Args) > 0 && q.Args[0] == "fail" {
			state = "FAILED"
		}
		say(`{"jid":%q,"state":%q,"vertices":[]}`, strings.Split(p, "/")[2], state)
	case p == "/cluster" && r.Method == http.MethodDelete:
		say(`{}`)
		close(s.over)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func fakeSessions(t *testing.T, s *fakeSession) map[string]string {
	t.Helper()
	s.over = make(chan struct{})
	var f *yarnfake.Cluster
	ready := make(chan struct{})
	var err error
	f, err = yarnfake.Start(yarnfake.WithConf(map[string]string{"fs.defaultFS": "file:///"}), yarnfake.WithRunner(func(ctx context.Context, l yarnfake.Launch) (int32, string) {
		<-ready
		web := httptest.NewServer(s)
		defer web.Close()
		m, err := rmclient.FromCredentials(f.Conf(), l.Credentials)
		if err != nil {
			return 1, err.Error()
		}
		defer m.Close() //nolint:errcheck // end of the test
		if _, err := m.Register(ctx, rmclient.Registration{Host: "h", RPCPort: -1, TrackingURL: web.URL}); err != nil {
			return 1, err.Error()
		}
		select {
		case <-s.over:
		case <-ctx.Done():
			return 1, "killed"
		}
		if err := m.Finish(ctx, yarnpb.FinalApplicationStatusProto_APP_SUCCEEDED, "the session was shut down", ""); err != nil {
			return 1, err.Error()
		}
		return 0, ""
	}))
	if err != nil {
		t.Fatal(err)
	}
	close(ready)
	t.Cleanup(func() { _ = f.Close() })
	dir := t.TempDir()
	if err := f.ConfDir(dir); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HADOOP_CONF_DIR", dir)
	lib, conf := t.TempDir(), t.TempDir()
	for _, n := range []string{am.MasterBinary, am.TaskManagerBinary} {
		if err := os.WriteFile(filepath.Join(lib, n), []byte(n), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text := "yarn:\n  staging-directory: file://" + t.TempDir() + "\ntaskmanager.numberOfTaskSlots: 3\n"
	if err := os.WriteFile(filepath.Join(conf, "config.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return map[string]string{"THALWEG_LIB_DIR": lib, "THALWEG_CONF_DIR": conf}
}

// The session of a user is found without being named; a job in it brings its own options, and its end is that of the command.
func TestSessionCommands(t *testing.T) {
	s := &fakeSession{protocol: version.Protocol}
	env := fakeSessions(t, s)
	self := job(t)
	if _, errs, code := thalweg(t, env, "run", "-t", "yarn-session", self); code != exitUsage || !strings.Contains(errs, "runs: thalweg session start -d starts one") {
		t.Errorf("no session: exit %d %q", code, errs)
	}
	if out, errs, code := thalweg(t, env, "session", "list"); code != 0 || !strings.Contains(out, "No session runs") {
		t.Errorf("exit %d %q %q", code, out, errs)
	}
	out, errs, code := thalweg(t, env, "session", "start", "-d", "-nm", "lab", "-jm", "512", "-tm", "1g", "-s", "2")
	if code != 0 || !strings.Contains(out, "(lab)") || !strings.Contains(out, "Takes jobs after") {
		t.Fatalf("exit %d %q %q", code, out, errs)
	}
	if out, _, code := thalweg(t, env, "session", "list"); code != 0 || !strings.Contains(out, "lab") || !strings.Contains(out, "2, 1 free") {
		t.Errorf("exit %d %q", code, out)
	}
	out, errs, code = thalweg(t, env, "run", "-t", "yarn-session", "-p", "4", "-Duser.own=1", "-Dclient.timeout=1min", self, "good", "-p")
	if code != 0 || !strings.Contains(out, "ended: FINISHED") {
		t.Fatalf("exit %d %q %q", code, out, errs)
	}
	q := s.last.Load()
	if fmt.Sprint(q.Config) != "map[parallelism.default:4 user.own:1]" || strings.Join(q.Args, " ") != "good -p" || len(q.JobID) != 32 || len(q.Program.SHA256) != 64 {
		t.Errorf("submitted: %+v", q)
	}
	if out, errs, code := thalweg(t, env, "run", "-t", "yarn-session", self, "fail"); code != exitFailed || !strings.Contains(out, "ended: FAILED") || !strings.Contains(errs, "boom") {
		t.Errorf("exit %d %q %q", code, out, errs)
	}
	for want, args := range map[string][]string{
		"the session refuses the job: the program did not build its job graph: no topic":              {"run", "-t", "yarn-session", "-d", self, "bad"},
		"taskmanager.numberOfTaskSlots, yarn.tags are of a whole session":                             {"run", "-t", "yarn-session", "-Dyarn.tags=x", "-Dtaskmanager.numberOfTaskSlots=2", self},
		"there is no session application_1_0001: the ResourceManager does not know it":                {"run", "-t", "yarn-session", "-Dyarn.application.id=application_1_0001", self},
		"-t is --target, and sessions run on YARN":                                                    {"session", "start", "-t", "/some/folder"},
		"-s 0: want 1 slot at least":                                                                  {"session", "start", "-s", "0"},
		`there is no action "nosuch"`:                                                                 {"session", "nosuch"},
		"it is thalweg session start|attach|list|stop here":                                           {"yarn-session", "-d"},
		"session start: application_1_0001 runs already: thalweg session attach stays in front of it": {"session", "start", "-d", "-id", "application_1_0001"},
		"a session is found on YARN: -id APPLICATION":                                                 {"session", "stop", "-m", "h:1"},
	} {
		if out, errs, code := thalweg(t, env, args...); code != exitUsage || !strings.Contains(errs, want) {
			t.Errorf("%v: exit %d %q %q; want %q", args, code, out, errs, want)
		}
	}
	if out, errs, code := thalweg(t, env, "session", "stop", "-o", "json"); code != 0 || !strings.Contains(out, `"finalStatus":"SUCCEEDED"`) {
		t.Errorf("exit %d %q %q", code, out, errs)
	}
}

// A session of another release is refused with both versions, whatever the program is.
func TestSessionOfAnotherRelease(t *testing.T) {
	s := &fakeSession{protocol: 99}
	env := fakeSessions(t, s)
	if _, errs, code := thalweg(t, env, "session", "start", "-d"); code != 0 {
		t.Fatal(errs)
	}
	if _, errs, code := thalweg(t, env, "run", "-t", "yarn-session", "-d", job(t)); code != exitUsage || !strings.Contains(errs, "version 0.0.9 with protocol 99") || !strings.Contains(errs, version.Version) {
		t.Errorf("exit %d %q", code, errs)
	}
	if out, errs, code := thalweg(t, env, "session", "stop"); code != 0 {
		t.Errorf("%q %q", out, errs)
	}
}

// What is typed in front of a session, or comes through a pipe, ends it or leaves it.
func TestAttachedSession(t *testing.T) {
	s := &fakeSession{protocol: version.Protocol}
	env := fakeSessions(t, s)
	if _, errs, code := thalweg(t, env, "session", "start", "-d"); code != 0 {
		t.Fatal(errs)
	}
	for typed, want := range map[string]string{"help\nquit\n": "goes on"} {
		if out, errs, code := attached(t, env, typed); code != 0 || !strings.Contains(errs, want) || !strings.Contains(errs, "shut the session down with its jobs") || !strings.Contains(out, "1 jobs run; 1 TaskManagers, 1 of 2 slots free") {
			t.Errorf("%q: exit %d %q %q", typed, code, out, errs)
		}
	}
	if out, errs, code := attached(t, env, "stop\n"); code != 0 || !strings.Contains(out, "has ended: the session was shut down") {
		t.Errorf("stop: exit %d %q %q", code, out, errs)
	}
}

// attached runs session attach with an input.
func attached(t *testing.T, env map[string]string, typed string) (out, errs string, code int) {
	t.Helper()
	in, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.WriteString(typed); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	defer in.Close() //nolint:errcheck // a test
	var o, e strings.Builder
	c := newCLI(&o, &e, func(k string) string { return env[k] })
	c.in = in
	code = c.execute(t.Context(), c.root(), []string{"session", "attach"})
	return o.String(), e.String(), code
}
