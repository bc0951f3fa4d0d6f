package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/thalweg/thalweg/am/control"
	"github.com/thalweg/thalweg/yarnrpc/client"
	yarnpb "github.com/thalweg/thalweg/yarnrpc/proto/yarn"
	"github.com/thalweg/thalweg/yarnrpc/yarn"
)

// stage is an application whose job goes through the given states, one a look. After the last one it stays, or ends when end is called.
type stage struct {
	mu       sync.Mutex
	states   []string // "RUNNING 2": running after two restarts; "RESTARTING -1": for another parallelism
	final    yarnpb.FinalApplicationStatusProto
	ended    bool
	url      string
	refused  error
	shown    int
	problem  string        // of the job in every state
	lookedAt chan struct{} // closed with the last state
}

func newStage(t *testing.T, states ...string) *stage {
	s := &stage{states: states, final: yarnpb.FinalApplicationStatusProto_APP_SUCCEEDED, lookedAt: make(chan struct{})}
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	s.url = h.URL
	return s
}

func (s *stage) end(f yarnpb.FinalApplicationStatusProto) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended, s.final = true, f
}

func (s *stage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case r.Method == http.MethodPatch:
		s.ended, s.final = true, yarnpb.FinalApplicationStatusProto_APP_KILLED
		w.WriteHeader(http.StatusAccepted)
	case r.URL.Path == "/jobs/"+id:
		state, restarts := s.states[s.shown], 0
		if before, n, ok := strings.Cut(state, " "); ok {
			state = before
			_, _ = fmt.Sscan(n, &restarts)
		}
		if s.shown++; s.shown == len(s.states) {
			s.shown--
			select {
			case <-s.lookedAt:
			default:
				close(s.lookedAt)
			}
		}
		fmt.Fprintf(w, `{"jid":%q,"state":%q,"restarts":%d,"problem":%q,"rescaling":%t}`, id, state, restarts, s.problem, restarts < 0) //nolint:errcheck // a test
	case r.URL.Path == "/jobs/"+id+"/exceptions":
		_, _ = w.Write([]byte(`{"exceptionHistory":{"entries":[{"exceptionName":"x","stacktrace":"boom\nat main.go:7","taskName":"Map (1/2)"}]}}`))
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func (s *stage) Report(context.Context, yarn.ApplicationID) (*yarnpb.ApplicationReportProto, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := yarnpb.YarnApplicationStateProto_RUNNING
	r := &yarnpb.ApplicationReportProto{ApplicationId: yarn.ApplicationID{ClusterTimestamp: 1, ID: 1}.Proto(), OriginalTrackingUrl: &s.url}
	if s.ended {
		state = yarnpb.YarnApplicationStateProto_FINISHED
		if s.final == yarnpb.FinalApplicationStatusProto_APP_KILLED {
			state = yarnpb.YarnApplicationStateProto_KILLED
		}
		r.FinalApplicationStatus, r.Diagnostics = s.final.Enum(), proto.String("what YARN says")
	}
	r.YarnApplicationState = state.Enum()
	return r, s.refused
}

func (s *stage) Applications(context.Context, client.Filter) ([]*yarnpb.ApplicationReportProto, error) {
	return nil, errors.New("not asked for")
}

func (s *stage) Kill(context.Context, yarn.ApplicationID, string) error {
	s.end(yarnpb.FinalApplicationStatusProto_APP_KILLED)
	return nil
}

// console is a command line at a terminal, whose other end the test holds.
type console struct {
	c          *cli
	out, err   safe
	keys       *os.File
	interrupts chan os.Signal
}

type safe struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safe) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

func (s *safe) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func newConsole(t *testing.T) *console {
	k := &console{interrupts: make(chan os.Signal, 2)}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	k.keys = w
	t.Cleanup(func() { _, _ = w.Close(), r.Close() })
	k.c = newCLI(&k.out, &k.err, func(string) string { return "" })
	k.c.tty, k.c.in, k.c.inTTY = true, r, true
	return k
}

// follow starts to follow the stage; the function returned waits for the end.
func (k *console) follow(t *testing.T, s *stage) func() (string, string, error) {
	f := &follower{c: k.c, app: yarn.ApplicationID{ClusterTimestamp: 1, ID: 1}, job: id, start: time.Now(), yarn: s, interrupts: k.interrupts, quick: time.Millisecond}
	done := make(chan error, 1)
	go func() { done <- f.follow(t.Context()) }()
	return func() (string, string, error) {
		select {
		case err := <-done:
			return k.out.String(), k.err.String(), err
		case <-time.After(time.Minute):
			t.Fatalf("does not end: %s", k.err.String())
			return "", "", nil
		}
	}
}

func (k *console) await(t *testing.T, text string) {
	t.Helper()
	k.awaitN(t, text, 1)
}

func (k *console) awaitN(t *testing.T, text string, n int) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for strings.Count(k.err.String(), text) < n {
		if time.Now().After(deadline) {
			t.Fatalf("no %d %q in %q", n, text, k.err.String())
		}
		tick := time.NewTimer(time.Millisecond)
		<-tick.C
	}
}

// A restart is shown with its reason in one line, also one that is over before the next look.
func TestFollowTellsWhyTheJobRestarts(t *testing.T) {
	k, s := newConsole(t), newStage(t, "INITIALIZING", "RESTARTING 1", "INITIALIZING 1", "INITIALIZING 2")
	wait := k.follow(t, s)
	<-s.lookedAt
	k.await(t, "restarted")
	s.end(yarnpb.FinalApplicationStatusProto_APP_FAILED)
	out, errs, err := wait()
	for _, want := range []string{`RESTARTING +after \S+: Map \(1/2\): boom\n`, `restarted +after \S+: Map \(1/2\): boom\n`} {
		if !regexp.MustCompile(want).MatchString(errs) {
			t.Errorf("no %s in %q", want, errs)
		}
	}
	if exitCode(err) != exitFailed || err.Error() != "what YARN says" || !strings.Contains(out, "ended: FAILED") {
		t.Errorf("%q %v", out, err)
	}
}

// A job that changes its parallelism has no failure to tell of.
func TestFollowTellsOfAnotherParallelism(t *testing.T) {
	k, s := newConsole(t), newStage(t, "INITIALIZING", "RESTARTING -1", "INITIALIZING")
	wait := k.follow(t, s)
	<-s.lookedAt
	k.await(t, "RESTARTING")
	s.end(yarnpb.FinalApplicationStatusProto_APP_SUCCEEDED)
	if _, errs, _ := wait(); !strings.Contains(errs, "its parallelism changes") || strings.Contains(errs, "boom") {
		t.Errorf("%q", errs)
	}
}

// The end is noticed while the question waits for an answer.
func TestTheEndEndsTheQuestion(t *testing.T) {
	k, s := newConsole(t), newStage(t, "INITIALIZING")
	wait := k.follow(t, s)
	<-s.lookedAt
	k.interrupts <- os.Interrupt
	k.await(t, "Cancel the job (c)")
	s.end(yarnpb.FinalApplicationStatusProto_APP_SUCCEEDED)
	if out, _, err := wait(); err != nil || !strings.Contains(out, "ended: SUCCEEDED") {
		t.Errorf("%q %v", out, err)
	}
	_ = k.keys.Close() // the reader of the terminal ends
}

func TestAnswersToTheQuestion(t *testing.T) {
	for answer, want := range map[string]string{"c\n": "cancelled at your request", "l\n": "goes on", "": "goes on"} {
		k, s := newConsole(t), newStage(t, "INITIALIZING")
		wait := k.follow(t, s)
		<-s.lookedAt
		k.interrupts <- os.Interrupt
		k.await(t, "Cancel the job (c)")
		if answer == "" {
			k.interrupts <- os.Interrupt
		}
		_, _ = k.keys.WriteString(answer)
		_, errs, err := wait()
		if exitCode(err) != exitInterrupted || !strings.Contains(err.Error(), want) || s.ended != (answer == "c\n") {
			t.Errorf("%q: %v, ended %v, %q", answer, err, s.ended, errs)
		}
		_ = k.keys.Close()
	}
	// To stay, which is told, and to be asked again.
	k, s := newConsole(t), newStage(t, "INITIALIZING")
	wait := k.follow(t, s)
	<-s.lookedAt
	k.interrupts <- os.Interrupt
	k.await(t, "Cancel the job (c)")
	lines := strings.Count(k.err.String(), "0/0 tasks")
	_, _ = k.keys.WriteString("y\n")
	k.await(t, "The run stays attached, and the job goes on.\n")
	k.awaitN(t, "0/0 tasks", lines+1) // it shows how the job goes again
	k.interrupts <- os.Interrupt
	k.awaitN(t, "Cancel the job (c)", 2)
	k.interrupts <- syscall.SIGTERM
	if _, _, err := wait(); exitCode(err) != exitInterrupted {
		t.Error(err)
	}
	_ = k.keys.Close()
}

// Nobody is asked where no terminal is, and by SIGTERM.
func TestWithoutATerminalTheJobIsLeftAlone(t *testing.T) {
	k, s := newConsole(t), newStage(t, "INITIALIZING")
	k.c.inTTY = false
	wait := k.follow(t, s)
	k.interrupts <- os.Interrupt
	if _, errs, err := wait(); exitCode(err) != exitInterrupted || strings.Contains(errs, "Cancel") || s.ended {
		t.Errorf("%q %v", errs, err)
	}
}

func TestAYARNThatIsGoneLeavesTheJobAlone(t *testing.T) {
	k, s := newConsole(t), newStage(t, "INITIALIZING")
	s.refused = &client.UnreachableError{Err: errors.New("refused")}
	if _, _, err := k.follow(t, s)(); exitCode(err) != exitUnreachable || !strings.Contains(err.Error(), "application_1_0001 goes on") {
		t.Error(err)
	}
}

func TestAMasterThatDoesNotAnswerIsTold(t *testing.T) { synctest.Test(t, doesNotAnswer) }

func doesNotAnswer(t *testing.T) {
	k := newConsole(t)
	f := &follower{c: k.c, start: time.Now()}
	gone := observation{missed: errors.New("connection refused")}
	f.heard(gone)
	f.heard(gone)
	if got := k.err.String(); got != "" {
		t.Errorf("too early: %q", got)
	}
	f.unheard = f.unheard.Add(-patienceEnds)
	f.heard(gone)
	f.heard(gone)
	f.heard(observation{})
	if got, want := k.err.String(), "no answer for 3s, still trying: connection refused\nthe application master answers again\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// seen is a job with a source, an operator and a window with its sink in it.
func seen(read, sent int64) observation {
	var j control.Job
	j.State = "RUNNING"
	j.Vertices = make([]control.Vertex, 2)
	j.Plan.Nodes = make([]control.PlanNode, 2)
	for i, name := range []string{"a", "b"} {
		j.Vertices[i].ID, j.Plan.Nodes[i].ID = name, name
		j.Vertices[i].Parallelism, j.Vertices[i].Tasks = 1, map[string]int{"RUNNING": 1}
	}
	j.Plan.Nodes[1].Inputs = append(j.Plan.Nodes[1].Inputs, control.PlanInput{ID: "a"})
	j.Vertices[0].Metrics.ReadRecords, j.Vertices[0].Metrics.WriteRecords = read, 7*read // a FlatMap in the source's task
	j.Vertices[1].Metrics.ReadRecords = 7 * read
	return observation{job: &j, sent: sent, sinks: true}
}

// In is what the sources read, out what the sinks were given; rates are since the last line, or over some seconds where lines are close.
func TestTheLineCountsAtTheEdges(t *testing.T) {
	start := time.Now()
	for name, every := range map[string]time.Duration{"plain": plainEvery, "live": liveEvery} {
		var m meter
		for i := range int64(20) { // 1000/s, then 3000/s
			read := i * 1000 * int64(every/time.Second)
			if i > 10 {
				read += (i - 10) * 2000 * int64(every/time.Second)
			}
			o := seen(read, read/100)
			m.observe(o)
			got := m.line(o, start.Add(time.Duration(i)*every))
			want := fmt.Sprintf("RUNNING  2/2 tasks  in %s", count(read))
			switch {
			case i == 0:
				want += "  out 0"
			case i <= 10:
				want += fmt.Sprintf(" (1,000/s)  out %s (10/s)", count(read/100))
			case i > 15 || every >= rateWindow:
				want += fmt.Sprintf(" (3,000/s)  out %s (30/s)", count(read/100))
			default:
				continue // the window holds both
			}
			if got != want {
				t.Errorf("%s, line %d: %q, want %q", name, i, got, want)
			}
		}
		o := seen(5, 0) // the counters start again with the job
		m.observe(o)
		if got := m.line(o, start.Add(time.Hour)); got != "RUNNING  2/2 tasks  in 5  out 0" {
			t.Errorf("%s: %q", name, got)
		}
	}
	o := seen(5, 0)
	o.sinks = false // no sink has reported
	o.job.Restarts = 1234
	if got := new(meter).line(o, start); got != "RUNNING  2/2 tasks  in 5  1,234 restarts" {
		t.Error(got)
	}
}

// A job that is over before anybody has seen it run ends with what it did, as its master told YARN, and not with a line of zeros.
func TestAShortJobEndsWithItsNumbers(t *testing.T) {
	k, s := newConsole(t), newStage(t, "CREATED", "RUNNING")
	wait := k.follow(t, s)
	<-s.lookedAt
	s.end(yarnpb.FinalApplicationStatusProto_APP_SUCCEEDED)
	out, _, err := wait()
	if err != nil || !strings.Contains(out, "ended: SUCCEEDED after ") || !strings.HasSuffix(out, "s: what YARN says\n") {
		t.Errorf("%q, %v", out, err)
	}
	read := control.Vertex{ID: "a", Parallelism: 4}
	for want, v := range map[bool]control.Vertex{false: read, true: {ID: "a", Parallelism: 4, Tasks: map[string]int{"RUNNING": 1}}} {
		if got := begun(&control.Job{State: "RUNNING", Vertices: []control.Vertex{v}}); got != want {
			t.Errorf("%+v: %v", v, got)
		}
	}
	read.Metrics.ReadRecords = 1
	if !begun(&control.Job{State: "RUNNING", Vertices: []control.Vertex{read}}) {
		t.Error("records, and nothing to show")
	}
}
