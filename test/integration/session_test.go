package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/thalweg/thalweg/connector/kafka/kafkatest"
	"github.com/thalweg/thalweg/test/rig"
)

// session is a session of this run, with programs that differ.
type session struct {
	t        *testing.T
	app      string
	programs []string
}

func startSession(t *testing.T, programs int, flags ...string) *session {
	t.Helper()
	s := &session{t: t}
	dir := t.TempDir()
	for i := range programs {
		out := filepath.Join(dir, fmt.Sprintf("guest%d", i))
		cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags", fmt.Sprintf("-s -w -X main.variant=%d", i), "-o", out, "./testdata/programs/guest")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		s.programs = append(s.programs, out)
	}
	name := kafkatest.Name(prefix + strings.ToLower(t.Name()))
	r := thalweg(t, nil, append([]string{"session", "start", "-d", "-o", "json", "-nm", name}, flags...)...)
	if r.code != 0 {
		t.Fatal(r)
	}
	var e struct{ ApplicationID string }
	lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &e); err != nil || e.ApplicationID == "" {
		t.Fatalf("no application id: %v\n%s", err, r)
	}
	s.app = e.ApplicationID
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if _, err := cluster.YarnCLI(ctx, "application", "-kill", s.app); err != nil {
			t.Log(err)
		}
	})
	return s
}

// do runs an action in the session and returns the last line of its output.
func (s *session) do(args ...string) string {
	s.t.Helper()
	r := thalweg(s.t, nil, append(args, "-o", "json", "-Dyarn.application.id="+s.app)...)
	if r.code != 0 {
		s.t.Fatal(r)
	}
	lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
	return lines[len(lines)-1]
}

// run starts a job of a program and returns its id.
func (s *session) run(program int, kind string, flags ...string) string {
	s.t.Helper()
	line := append([]string{"run", "-t", "yarn-session", "-d", "-o", "json", "-Dyarn.application.id=" + s.app}, flags...)
	r := thalweg(s.t, nil, append(line, s.programs[program], kind)...)
	var e struct{ JobID string }
	lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &e); r.code != 0 || err != nil || e.JobID == "" {
		s.t.Fatalf("%v\n%s", err, r)
	}
	return e.JobID
}

// jobs are the states of the session's jobs, by id; RUNNING with all tasks only.
func (s *session) jobs() map[string]string {
	s.t.Helper()
	var l struct {
		Jobs []struct {
			ID    string `json:"jid"`
			State string
			Tasks map[string]int
			Why   string `json:"lastFailure"`
		}
	}
	if err := json.Unmarshal([]byte(s.do("list")), &l); err != nil {
		s.t.Fatal(err)
	}
	out := map[string]string{}
	for _, j := range l.Jobs {
		out[j.ID] = j.State
		switch {
		case j.State == "RUNNING" && j.Tasks["running"] < j.Tasks["total"]:
			out[j.ID] = "STARTING"
		case j.State == "FAILED":
			out[j.ID] += ": " + j.Why
		}
	}
	return out
}

func (s *session) await(state string, ids ...string) {
	s.t.Helper()
	var now map[string]string
	defer func() {
		if s.t.Failed() {
			s.t.Log(now)
		}
	}()
	until(s.t, patience, fmt.Sprintf("%v %s", ids, state), func() (bool, error) {
		now = s.jobs()
		return !slices.ContainsFunc(ids, func(id string) bool { return !strings.HasPrefix(now[id], state) }), nil
	})
}

// master is the process of the session's application master.
func (s *session) master() int {
	s.t.Helper()
	if cluster.External {
		notOurs(s.t, s.app)
	}
	number := strings.TrimPrefix(s.app, "application")
	for _, p := range cluster.Containers() {
		name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", p))
		env, eerr := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p))
		if err == nil && eerr == nil && strings.HasPrefix(string(name), "thalweg-appmast") && strings.Contains(string(env), number) {
			return p
		}
	}
	s.t.Fatal("no master")
	return 0
}

// size is what a process holds: resident memory in KiB, open files, threads.
func size(t *testing.T, pid int) (rss, files, threads int) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		f := strings.Fields(line)
		switch f[0] {
		case "VmRSS:":
			rss, _ = strconv.Atoi(f[1])
		case "Threads:":
			threads, _ = strconv.Atoi(f[1])
		}
	}
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	return rss, len(list), threads
}

func (s *session) stop() {
	s.t.Helper()
	if line := s.do("session", "stop"); !strings.Contains(line, `"finalStatus":"SUCCEEDED"`) {
		s.t.Error(line)
	}
}

// Jobs of several programs share TaskManagers: one that panics and one that takes memory without bound end alone, the others are not even
// restarted; all go on after the death of the application master; idle TaskManagers are given back.
func TestSession(t *testing.T) {
	s := startSession(t, 3, "-jm", "512m", "-tm", "640m", "-s", "4", "-Dresourcemanager.taskmanager-timeout=2s")
	var good []string
	for i := range s.programs {
		good = append(good, s.run(i, "endless"))
	}
	s.await("RUNNING", good...)
	s.await("FAILED: ", s.run(0, "panic", "-Drestart-strategy.type=none"))
	leak := s.run(1, "leak", "-Drestart-strategy.type=none")
	s.await("FAILED: ", leak)
	if why := s.jobs()[leak]; !strings.Contains(why, "taskmanager.memory.process.size") || !strings.Contains(why, "the others go on") {
		t.Errorf("why it was killed: %s", why)
	}
	for _, id := range good {
		if text, err := getText(t.Context(), cluster.ResourceManagerWeb+"/proxy/"+s.app+"/jobs/"+id); err != nil || !strings.Contains(text, `"restarts":0`) || !strings.Contains(text, `"state":"RUNNING"`) {
			t.Errorf("job %s was touched: %v %s", id, err, text)
		}
	}
	path := s.do("stop", good[0], "-p", "hdfs:///savepoints")
	if !strings.Contains(path, `"location":"hdfs:`) {
		t.Errorf("stopped: %s", path)
	}
	s.await("FINISHED", good[0])
	r := thalweg(t, nil, "run", "-t", "yarn-session", "-d", "-Dyarn.application.id="+s.app, "-Dtaskmanager.numberOfTaskSlots=2", s.programs[0])
	if r.code != 2 || !strings.Contains(r.stderr, "taskmanager.numberOfTaskSlots is of a whole session") {
		t.Error(r)
	}
	env, conf := as(rig.Bob)
	r = thalweg(t, env, append(append([]string{"run", "-t", "yarn-session", "-d", "-Dyarn.application.id=" + s.app}, conf...), s.programs[0])...)
	if r.code != 2 || !strings.Contains(r.stderr, "its jobs would run as") {
		t.Error(r)
	}

	first := s.master()
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(t, patience, "the next attempt", func() (bool, error) {
		list := thalweg(t, nil, "session", "list", "-o", "json", "-Dyarn.application.name=")
		return strings.Contains(list.stdout, s.app) && !strings.Contains(list.stdout, `"error"`), nil
	})
	s.await("RUNNING", good[1:]...)
	s.await("FAILED: ", leak)
	for _, id := range good[1:] {
		s.do("cancel", id)
	}
	s.await("CANCELED", good[1:]...)
	until(t, patience, "idle TaskManagers given back", func() (bool, error) {
		text, err := getText(t.Context(), cluster.ResourceManagerWeb+"/proxy/"+s.app+"/overview")
		return strings.Contains(text, `"taskmanagers":0`), err
	})
	s.stop()
	r = thalweg(t, nil, "run", "-t", "yarn-session", "-d", "-Dyarn.application.id="+s.app, s.programs[0])
	if r.code != 2 || !strings.Contains(r.stderr, "has ended") || !strings.Contains(r.stderr, "thalweg session start") {
		t.Error(r)
	}
}

// Jobs come and go, and leave nothing in the application master but their last states.
func TestSessionStaysSmall(t *testing.T) {
	s := startSession(t, 2, "-jm", "512m", "-tm", "256m", "-Djobstore.max-capacity=5")
	cycle := func(n int) {
		for i := range n {
			id := s.run(i%2, "endless")
			s.await("RUNNING", id)
			s.do("cancel", id)
		}
	}
	cycle(6)
	pid := s.master()
	rss, files, threads := size(t, pid)
	cycle(14)
	rss2, files2, threads2 := size(t, pid)
	t.Logf("resident %d KiB, then %d; files %d, then %d; threads %d, then %d", rss, rss2, files, files2, threads, threads2)
	if rss2 > rss+16<<10 || files2 > files+3 || threads2 > threads+4 {
		t.Errorf("it grows: resident %d KiB, then %d; files %d, then %d; threads %d, then %d", rss, rss2, files, files2, threads, threads2)
	}
	if n := len(s.jobs()); n > 6 {
		t.Errorf("%d jobs are kept, want 5 that have ended at most", n)
	}
	s.stop()
}
