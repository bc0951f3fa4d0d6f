package operator

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sort"
	"sync"
	"testing"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/checkpoint/storage"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/mem"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/state/canonical"
)

// services are a task's services with a clock that tests move.
type services struct {
	mu      sync.Mutex // of mails
	now     int64
	skew    int64 // of now, by which it was set forward
	blocked int64
	mails   []func() error
	timers  []struct {
		at     int64
		steady bool // of Uptime
		fn     func() error
	}
	failed error
	sent   [][]byte
	life   context.Context // nil for one without an end
}

func (s *services) Post(fn func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mails = append(s.mails, fn)
}

func (s *services) Now() int64                             { return s.now }
func (s *services) Uptime() int64                          { return s.now - s.skew }
func (s *services) Backpressured() int64                   { return s.blocked }
func (s *services) Fail(err error)                         { s.failed = err }
func (s *services) SendEvent(_ graph.OperatorID, b []byte) { s.sent = append(s.sent, b) }
func (s *services) Wake()                                  {}
func (s *services) Context() context.Context {
	if s.life != nil {
		return s.life
	}
	return context.Background()
}
func (s *services) At(ms int64, fn func() error) {
	s.timers = append(s.timers, struct {
		at     int64
		steady bool
		fn     func() error
	}{ms, false, fn})
}

func (s *services) After(ms int64, fn func() error) {
	s.timers = append(s.timers, struct {
		at     int64
		steady bool
		fn     func() error
	}{s.Uptime() + ms, true, fn})
}

// due is how long the timer i has still to wait, in milliseconds.
func (s *services) due(i int) int64 {
	if s.timers[i].steady {
		return s.timers[i].at - s.Uptime()
	}
	return s.timers[i].at - s.now
}

// set sets the clock forward by so many milliseconds, or back, and fires what is due.
func (s *services) set(t testing.TB, by int64) {
	t.Helper()
	s.skew += by
	s.advance(t, s.now+by)
}

// advance moves the clock and fires what is due, in order.
func (s *services) advance(t testing.TB, to int64) {
	t.Helper()
	s.now = to
	for {
		sort.SliceStable(s.timers, func(i, j int) bool { return s.due(i) < s.due(j) })
		if len(s.timers) == 0 || s.due(0) > 0 {
			return
		}
		fn := s.timers[0].fn
		s.timers = s.timers[1:]
		if err := fn(); err != nil {
			t.Fatal(err)
		}
	}
}

// tally counts what is counted, by the counters' names.
type tally map[string]*counter

type counter struct{ n int64 }

func (c *counter) Add(n int64) { c.n += n }

func (m tally) Counter(name string) connector.Counter {
	if m[name] == nil {
		m[name] = &counter{}
	}
	return m[name]
}

func (tally) Gauge(string, func() float64) {}

type noMetrics struct{}

type noCounter struct{}

func (noCounter) Add(int64)                        {}
func (noMetrics) Counter(string) connector.Counter { return noCounter{} }
func (noMetrics) Gauge(string, func() float64)     {}

// element is one output: a record, or a watermark.
type element[R any] struct {
	v    R
	ts   int64
	mark bool
}

// sink collects the output of an operator.
type sink[R any] struct{ got []element[R] }

func (s *sink[R]) Process(v R, m Meta) error {
	s.got = append(s.got, element[R]{v: v, ts: m.TS})
	return nil
}
func (s *sink[R]) Watermark(ts int64) error {
	s.got = append(s.got, element[R]{ts: ts, mark: true})
	return nil
}
func (s *sink[R]) Idle(bool) error { return nil }

// take returns the records since the last call.
func (s *sink[R]) take() []R {
	var out []R
	for _, e := range s.got {
		if !e.mark {
			out = append(out, e.v)
		}
	}
	s.got = nil
	return out
}

// instance is one subtask of an operator under test.
type instance[T, R any] struct {
	op   Operator
	in   Receiver[T]
	out  *sink[R]
	svc  *services
	ctx  *Context
	part int // index and count of subtasks
	of   int
}

// harness runs one operator at a parallelism, with snapshots, restores and rescaling, without a cluster.
type harness[T, R any] struct {
	t     testing.TB
	f     Factory
	conf  config.Configuration
	max   int
	dir   string
	reg   *fs.Registry
	tasks []*instance[T, R]
	hash  func(T) uint32
	id    int64
	now   int64
	side  func() map[string]any // side outputs of a subtask; nil for none
	input func(Operator) Receiver[T]
	tally tally // of all subtasks, over restarts
	log   zerolog.Logger
}

func (h *harness[T, R]) counted(name string) int64 {
	if c := h.tally[name]; c != nil {
		return c.n
	}
	return 0
}

// firstInput is the input of operators that have one.
func firstInput[T any](op Operator) Receiver[T] { return op.Input(0).(Receiver[T]) }

func newHarness[T, R any](t testing.TB, f Factory, backend string, parallelism int, hash func(T) uint32) *harness[T, R] {
	t.Helper()
	return newSideHarness[T, R](t, f, backend, parallelism, hash, nil)
}

// newSideHarness is newHarness with side outputs that are read.
func newSideHarness[T, R any](t testing.TB, f Factory, backend string, parallelism int, hash func(T) uint32, side func() map[string]any) *harness[T, R] {
	t.Helper()
	return newInputHarness[T, R](t, f, backend, parallelism, hash, side, firstInput[T])
}

// newInputHarness is newSideHarness for operators of several inputs: input deals the records out to them.
func newInputHarness[T, R any](t testing.TB, f Factory, backend string, parallelism int, hash func(T) uint32, side func() map[string]any, input func(Operator) Receiver[T]) *harness[T, R] {
	t.Helper()
	dir, err := os.MkdirTemp("", "operator")
	if err != nil {
		t.Fatal(err)
	}
	h := &harness[T, R]{t: t, f: f, max: 128, dir: dir, hash: hash, conf: config.Configuration{"state.backend.type": backend}, reg: &fs.Registry{}, side: side, input: input, tally: tally{}, log: zerolog.Nop()}
	mem.Register(h.reg)
	h.open(parallelism, nil)
	return h
}

func (h *harness[T, R]) open(parallelism int, restore []metadata.Subtask) {
	h.t.Helper()
	h.id++
	h.tasks = nil
	for i := range parallelism {
		svc := &services{now: h.now}
		ctx := &Context{Services: svc, Name: "op", Subtask: i, Parallelism: parallelism, MaxParallelism: h.max, Config: h.conf, Logger: h.log,
			Metrics: h.tally, Mark: &Marker{}, StateDir: h.dir + "/" + string(rune('a'+h.id%26)) + string(rune('a'+i)), StateMemory: 32 << 20,
			StateSource: storage.NewSource(h.reg), Checkpointing: true}
		if h.side != nil {
			ctx.Side = h.side()
		}
		if restore != nil {
			ctx.State = restore[i]
		}
		out := &sink[R]{}
		op, err := h.f.New(ctx, Receiver[R](out))
		if err != nil {
			h.t.Fatal(err)
		}
		if err := Open(context.Background(), op, ctx); err != nil {
			h.t.Fatal(err)
		}
		h.tasks = append(h.tasks, &instance[T, R]{op: op, in: h.input(op), out: out, svc: svc, ctx: ctx, part: i, of: parallelism})
	}
}

func (h *harness[T, R]) close() {
	h.t.Helper()
	for _, i := range h.tasks {
		if err := i.op.Close(); err != nil {
			h.t.Fatal(err)
		}
	}
	if err := os.RemoveAll(h.dir); err != nil {
		h.t.Fatal(err)
	}
}

func (h *harness[T, R]) process(v T, ts int64) {
	h.t.Helper()
	hash := h.hash(v)
	i := h.tasks[state.SubtaskOf(h.max, len(h.tasks), state.GroupOf(hash, h.max))]
	if err := i.in.Process(v, Meta{TS: ts, Hash: hash}); err != nil {
		h.t.Fatal(err)
	}
}

func (h *harness[T, R]) watermark(ts int64) {
	h.t.Helper()
	for _, i := range h.tasks {
		if err := i.in.Watermark(ts); err != nil {
			h.t.Fatal(err)
		}
	}
}

func (h *harness[T, R]) advance(now int64) {
	h.t.Helper()
	h.now = now
	for _, i := range h.tasks {
		i.svc.advance(h.t, now)
	}
}

// set sets the clock forward by so many milliseconds, or back.
func (h *harness[T, R]) set(by int64) {
	h.t.Helper()
	h.now += by
	for _, i := range h.tasks {
		i.svc.set(h.t, by)
	}
}

func (h *harness[T, R]) take() []R {
	var out []R
	for _, i := range h.tasks {
		out = append(out, i.out.take()...)
	}
	return out
}

// restart snapshots all subtasks, closes them and restores at another parallelism.
func (h *harness[T, R]) restart(parallelism int, canonical bool) {
	h.t.Helper()
	op := metadata.Operator{Parallelism: len(h.tasks), MaxParallelism: h.max}
	sink := storage.NewSink(h.reg, "mem://test/cp/chk-1", "mem://test/cp/shared", 1<<10)
	for _, i := range h.tasks {
		s, err := Take(i.op, i.ctx, Barrier{ID: h.id, Canonical: canonical})
		if err != nil {
			h.t.Fatal(err)
		}
		sub := metadata.Subtask{Index: i.part, Lists: s.Lists}
		for _, k := range s.Keyed {
			hd, err := k.Write(context.Background(), sink)
			if err != nil {
				h.t.Fatal(err)
			}
			sub.Keyed = append(sub.Keyed, hd)
		}
		op.Subtasks = append(op.Subtasks, sub)
		if err := i.op.Close(); err != nil {
			h.t.Fatal(err)
		}
	}
	b, err := metadata.Encode(metadata.Checkpoint{ID: h.id, Operators: []metadata.Operator{op}})
	if err != nil {
		h.t.Fatal(err)
	}
	c, err := metadata.Decode(b, "mem://test/cp/chk-1")
	if err != nil {
		h.t.Fatal(err)
	}
	subs, err := metadata.Redistribute(c.Operators[0], parallelism, h.max)
	if err != nil {
		h.t.Fatal(err)
	}
	h.open(parallelism, subs)
}

// entries lists the entries of a keyed state of all subtasks, whose keys are strings: the key and the namespace of each, sorted. Of maps each entry is one.
func (h *harness[T, R]) entries(table string) (all []string) {
	h.t.Helper()
	for _, i := range h.tasks {
		b, err := i.ctx.Backend()
		if err != nil {
			h.t.Fatal(err)
		}
		id := h.id + 1<<40
		s, err := b.Snapshot(id, true)
		if err != nil {
			h.t.Fatal(err)
		}
		hd, err := s.Write(context.Background(), storage.NewSink(h.reg, "mem://test/entries", "", 1<<40))
		if err != nil {
			h.t.Fatal(err)
		}
		b.CheckpointAborted(id)
		r, err := canonical.NewReader(context.Background(), storage.NewSource(h.reg), h.max, b.Range(), []state.Handle{hd})
		if err != nil {
			h.t.Fatal(err)
		}
		codec := codecOf[string](h.t)
		if err := r.Scan(table, func(e *canonical.Entry) error {
			k, _, err := codec.Decode(e.Key)
			all = append(all, fmt.Sprint(k, " ", e.Namespace))
			return err
		}); err != nil {
			h.t.Fatal(err)
		}
		if err := r.Close(); err != nil {
			h.t.Fatal(err)
		}
	}
	slices.Sort(all)
	return all
}

// twoInputs deals records out to an operator's two inputs. The watermark of the input that leads is always ahead of the other one's, which is
// the operator's own.
type twoInputs[T, A, B any] struct {
	one   Receiver[A]
	two   Receiver[B]
	split func(T) (a A, b B, second bool)
	lead  int
}

func (i *twoInputs[T, A, B]) Process(v T, m Meta) error {
	a, b, second := i.split(v)
	if second {
		return i.two.Process(b, m)
	}
	return i.one.Process(a, m)
}

func (i *twoInputs[T, A, B]) Watermark(ts int64) error {
	marks := [2]func(int64) error{i.one.Watermark, i.two.Watermark}
	if err := marks[i.lead](plus(ts, 7)); err != nil {
		return err
	}
	return marks[1-i.lead](ts)
}

func (i *twoInputs[T, A, B]) Idle(bool) error { return nil }

// inputsOf is the input of a harness for an operator of two inputs.
func inputsOf[T, A, B any](split func(T) (A, B, bool), lead int) func(Operator) Receiver[T] {
	return func(op Operator) Receiver[T] {
		return &twoInputs[T, A, B]{op.Input(0).(Receiver[A]), op.Input(1).(Receiver[B]), split, lead}
	}
}
