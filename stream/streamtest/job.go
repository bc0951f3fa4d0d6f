package streamtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/checkpoint/savepoint"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/local"
	"github.com/thalweg/thalweg/fs/mem"
	"github.com/thalweg/thalweg/internal/logging"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/network"
	"github.com/thalweg/thalweg/runtime/operator"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/stream/internal/bridge"
)

// Job is a program that runs in the test. Its methods, and those of its inputs and outputs, belong to the test's goroutine; a failure of
// the job fails the test at once.
type Job struct{ e *engine } // harnesses embed it: each of its methods is compiled once more in their tests

// Run starts the job, if no push did, and reads its own bounded sources to their end.
func (j *Job) Run() { j.e.t.Helper(); j.e.start() }

// End ends all inputs and runs the job to its end: watermarks reach their maximum, records in flight of asynchronous functions are waited
// for, sinks flush. It may be followed by reading outputs, and nothing else.
func (j *Job) End() { j.e.t.Helper(); j.e.check(j.e.end()) }

// TryEnd is End for a job that is expected to fail.
func (j *Job) TryEnd() error { j.e.t.Helper(); return j.e.end() }

// Now is the processing time.
func (j *Job) Now() time.Time { return time.UnixMilli(j.e.now).UTC() }

// Advance moves the processing time forward, by way of every timer that becomes due: a function sees the time that it asked for.
func (j *Job) Advance(d time.Duration) { j.e.t.Helper(); j.e.advance(d) }

// TryAdvance is Advance to a time that is expected to fail the job: it returns the error of the timer, say.
func (j *Job) TryAdvance(d time.Duration) error { j.e.t.Helper(); return j.e.tryAdvance(d) }

// Await waits, in real time and at most ten seconds, until done reports true: for what goroutines of asynchronous functions answer.
func (j *Job) Await(done func() bool) { j.e.t.Helper(); j.e.await(done) }

// Restart takes a snapshot, ends the job and starts it again from the snapshot with another parallelism (of operators that set none).
func (j *Job) Restart(parallelism int) {
	j.e.t.Helper()
	j.e.start()
	j.e.check(j.e.restartAt(parallelism))
}

// Snapshot takes a savepoint: FromSnapshot starts another job from it. It can be kept as a file for tests of later versions.
func (j *Job) Snapshot() []byte { j.e.t.Helper(); return j.e.savepoint() }

// Counter is the value of a counter, over all subtasks and restarts: of a function's own (its context's Metrics), or of an operator's, such as
// numLateRecordsDropped. A name that no operator has registered fails the test.
func (j *Job) Counter(name string) int64 { j.e.t.Helper(); return j.e.counter(name) }

// Graph is the job graph, for looking at.
func (j *Job) Graph() *graph.JobGraph { return j.e.prog.Graph }

// engine runs a job.
type engine struct {
	t     testing.TB
	build func(*stream.Environment) error
	set   settings
	conf  config.Configuration
	log   zerolog.Logger
	reg   *fs.Registry
	id    string
	dir   string // for the files of state backends; made when there is need

	prog        *graph.Program
	running     bool
	read        bool // the program's own sources, to their end
	failed      error
	runs        int // starts and restarts
	parallelism int
	now         int64
	clock       clock
	mail        mailbox
	net         *network.Environment
	ctx         context.Context //nolint:containedctx // the life of the running subtasks
	cancel      context.CancelFunc
	subtasks    []*subtask // by vertex, in topological order
	at          *subtask   // whose code runs
	enumerators []*enumerator
	inputs      []anyInput
	outputs     []anyOutput
	metrics     metrics
	probes      map[probeID]any
	checkpoints int64
	pushes      int
	next        int      // push after which the job restarts
	restarted   []string // what there was a restart after
}

// Start runs a whole program, the build function that stream.Main gets. Its sources need to be bounded, or to have an Input in their place (see
// Source); sinks that connect to something need an Output. The job starts with the first push, or with Run or End.
func Start(t testing.TB, build func(*stream.Environment) error, opts ...Option) *Job {
	t.Helper()
	s := newSettings(opts)
	s.rescale = true
	return newJob(t, build, s)
}

func newJob(t testing.TB, build func(*stream.Environment) error, s settings) *Job {
	t.Helper()
	j := &engine{t: t, build: build, set: s, conf: config.Configuration{}, now: s.now.UnixMilli(), parallelism: s.parallelism, next: 1,
		log: logging.New(zerolog.NewTestWriter(t), zerolog.WarnLevel), reg: &fs.Registry{}, id: graph.NewID().String()}
	j.mail.wake = make(chan struct{}, 1)
	mem.Register(j.reg)
	local.Register(j.reg)
	for k, v := range s.conf {
		j.conf[k] = v
	}
	// Event time moves with each push (Progress.Tick), whatever the clock.
	config.WatermarkInterval.Set(j.conf, 100*365*24*time.Hour)
	t.Cleanup(func() {
		if err := j.stop(); err != nil && j.failed == nil {
			t.Errorf("streamtest: close: %v", err)
		}
	})
	// The graph is built now, so that inputs and outputs belong to the job, and mistakes are reported at this call.
	if err := j.plan(); err != nil {
		t.Fatalf("streamtest: %v", err)
	}
	for _, w := range j.prog.Graph.Warnings {
		t.Logf("streamtest: warning: %s", w)
	}
	return &Job{j}
}

// plan builds the graph for the current parallelism, with the test's inputs and outputs.
func (j *engine) plan() error {
	conf := j.conf.Clone()
	config.Parallelism.Set(conf, j.parallelism)
	config.RuntimeMode.Set(conf, string(stream.Streaming)) // wins over a program that sets BATCH: records move on as they are pushed
	p, err := bridge.Program("test", j.build, conf, j.set.args)
	if err != nil {
		return err
	}
	used := map[string]bool{}
	for _, n := range p.Nodes {
		for _, r := range j.set.replace {
			if !found(n, r.name) || n.Source != (r.what == "source") || r.what == "sink" && n.OutImpl != nil {
				continue
			}
			if err := r.with(n); err != nil {
				return fmt.Errorf("the %s %q at %s cannot be replaced: %w", r.what, r.name, n.CallSite, err)
			}
			used[r.what+r.name] = true
		}
	}
	var missing []string
	for _, r := range j.set.replace {
		if !used[r.what+r.name] {
			missing = append(missing, fmt.Sprintf("the program has no %s with the UID or name %q: it has %s", r.what, r.name, ends(p, r.what)))
		}
	}
	j.inputs, j.outputs = nil, nil
	for _, v := range p.Graph.Vertices {
		for _, o := range v.Operators {
			n := p.Nodes[o.ID]
			c, _ := n.Impl.(interface{ Connector() any })
			switch {
			case c == nil:
			case n.Source && !n.Bounded:
				missing = append(missing, fmt.Sprintf("source %q at %s has no end: put an Input in its place, with streamtest.Source(%q, &input)", n.Name, n.CallSite, nameOf(n)))
			case n.OutImpl == nil && n.Coordinated:
				missing = append(missing, fmt.Sprintf("sink %q at %s connects to something: put an Output in its place, with streamtest.Sink(%q, &output)", n.Name, n.CallSite, nameOf(n)))
			default:
				j.adopt(c.Connector())
			}
		}
	}
	if len(missing) > 0 {
		return errors.New(strings.Join(missing, "\n"))
	}
	j.prog = p
	return nil
}

// ends names the sources or sinks of a program.
func ends(p *graph.Program, what string) string {
	var all []string
	for _, v := range p.Graph.Vertices {
		for _, o := range v.Operators {
			if n := p.Nodes[o.ID]; what == "source" && n.Source || what == "sink" && n.OutImpl == nil {
				all = append(all, strconv.Quote(nameOf(n))+" at "+n.CallSite)
			}
		}
	}
	return cmp.Or(strings.Join(all, ", "), "none")
}

func nameOf(n *graph.Node) string {
	if n.UID != "" {
		return n.UID
	}
	return strings.TrimPrefix(strings.TrimPrefix(n.Name, "Source: "), "Sink: ")
}

// adopt makes inputs and outputs the job's.
func (j *engine) adopt(c any) {
	if s, ok := c.(interface{ input() anyInput }); ok {
		s.input().attach(j)
		j.inputs = append(j.inputs, s.input())
	}
	if s, ok := c.(interface{ output() anyOutput }); ok {
		s.output().attach(j)
		j.outputs = append(j.outputs, s.output())
	}
}

// check fails the test.
func (j *engine) check(err error) {
	if err != nil {
		j.t.Helper()
		j.t.Fatalf("streamtest: the job failed: %v", err)
	}
}

// start starts the job if it does not run yet.
func (j *engine) start() {
	j.t.Helper()
	j.check(j.tryStart())
}

func (j *engine) tryStart() error {
	if j.running || j.failed != nil {
		return nil // what follows tells that it has failed
	}
	var from *metadata.Checkpoint
	if j.set.snapshot != nil {
		c, err := metadata.Decode(j.set.snapshot, snapshotDir)
		if err != nil {
			return j.fail(fmt.Errorf("the snapshot cannot be read: %w", err))
		}
		from = &c
	}
	if err := j.open(from); err != nil {
		return err
	}
	if err := j.settle(); err != nil {
		return err
	}
	return j.readSources(j.pushed)
}

// end is Job.TryEnd.
func (j *engine) end() error {
	j.t.Helper()
	if err := j.tryStart(); err != nil {
		return err
	}
	for _, in := range j.inputs {
		in.finish()
	}
	if err := j.settle(); err != nil {
		return err
	}
	for _, s := range j.subtasks {
		if !s.ended {
			return j.fail(fmt.Errorf("%s did not reach the end of its input", s.vertex.Name))
		}
	}
	return nil
}

// advance is Job.Advance.
func (j *engine) advance(d time.Duration) {
	j.t.Helper()
	j.check(j.tryAdvance(d))
}

// tryAdvance is Job.TryAdvance.
func (j *engine) tryAdvance(d time.Duration) error {
	if err := j.tryStart(); err != nil {
		return err
	}
	if j.failed != nil {
		return j.settle()
	}
	to := j.now + d.Milliseconds()
	for {
		at, fn := j.clock.pop(to)
		if fn == nil {
			break
		}
		j.now = max(j.now, at)
		if err := j.guard(fn); err != nil {
			return err
		}
		if err := j.settle(); err != nil {
			return err
		}
	}
	j.now = to
	return j.tick()
}

// guard runs what may run user code.
func (j *engine) guard(fn func() error) (err error) {
	defer j.recovered(&err)
	if err := fn(); err != nil {
		return j.fail(err)
	}
	return nil
}

// recovered turns a panic of user code into the failure of the job, as a task does. It is deferred.
func (j *engine) recovered(err *error) {
	if r := recover(); r != nil {
		*err = j.fail(panicked{operator.Panicked(j.current(), r)})
	}
}

// current describes the operator whose user code runs.
func (j *engine) current() string {
	s := j.at
	if s == nil {
		return j.prog.Graph.Name
	}
	if i := s.mark.Current; i < len(s.ctxs) && s.ctxs[i] != nil {
		return s.ctxs[i].Describe()
	}
	return s.vertex.Name
}

// panicked also tells the stack: nobody logs it here.
type panicked struct{ *operator.PanicError }

func (p panicked) Error() string { return p.PanicError.Error() + "\n" + p.Stack }
func (p panicked) Unwrap() error { return p.PanicError }

// await is Job.Await.
func (j *engine) await(done func() bool) {
	j.t.Helper()
	j.start()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		j.check(j.settle())
		if done() {
			return
		}
		select {
		case <-j.mail.wake:
		case <-deadline.C:
			j.t.Fatalf("streamtest: what Await waits for did not happen within %v", patience)
		}
	}
}

// patience bounds waits for goroutines of the user's.
const patience = 10 * time.Second

// pushed runs what follows from a push.
func (j *engine) pushed() error {
	if err := j.settle(); err != nil {
		return err
	}
	if err := j.tick(); err != nil {
		return err
	}
	if j.pushes++; !j.set.restarts || j.pushes != j.next {
		return nil
	}
	j.next = 2*j.next + 1
	j.restarted = append(j.restarted, fmt.Sprint("push ", j.pushes))
	return j.again()
}

// again restarts the job, and changes its parallelism if that is not the test's.
func (j *engine) again() error {
	p := j.parallelism
	if j.set.rescale {
		p = p%4 + 1
	}
	return j.restartAt(p)
}

func (j *engine) restartAt(parallelism int) error {
	marks := j.marks()
	c, err := j.snapshot()
	if err != nil {
		return err
	}
	if err := j.stop(); err != nil {
		return j.fail(err)
	}
	for _, o := range j.outputs { // asynchronous functions may have answered since
		o.rollback()
	}
	j.parallelism = parallelism
	if err := j.plan(); err != nil {
		return j.fail(err)
	}
	if err := j.open(c); err != nil {
		return err
	}
	if err := j.remark(marks); err != nil {
		return err
	}
	if j.read {
		return j.readSources(j.settle)
	}
	return j.settle()
}

// savepoint is Job.Snapshot.
func (j *engine) savepoint() []byte {
	j.t.Helper()
	j.start()
	c, err := j.snapshot()
	j.check(err)
	b, err := metadata.Encode(*c)
	j.check(err)
	return b
}

// restore checks a checkpoint against the graph and deals it out.
func (j *engine) restore(c *metadata.Checkpoint) (savepoint.Assignment, graph.JobGraph, error) {
	g := *j.prog.Graph
	if c == nil {
		return nil, g, nil
	}
	adopted, err := savepoint.Check(*c, g, config.AllowNonRestored.Value(g.Config))
	if err != nil {
		return nil, g, err
	}
	g = adopted.Apply(g)
	a, err := savepoint.Assign(*c, g)
	return a, g, err
}

// counter is Job.Counter.
func (j *engine) counter(name string) int64 {
	j.t.Helper()
	j.start()
	for _, s := range j.subtasks {
		s.publish()
	}
	n, err := j.metrics.value(name)
	if err != nil {
		j.t.Fatalf("streamtest: %v", err)
	}
	return n
}
