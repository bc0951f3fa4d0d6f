// Package connectortest drives connectors without a cluster and holds the conformance suites that each of them passes, and that yours can:
//
//	func TestMySource(t *testing.T) {
//		connectortest.TestSource(t, connectortest.SourceSuite[Order]{
//			New:  func() connector.Source[Order] { return mysource.Source(...) },
//			Key:  func(o Order) string { return o.ID },
//			Want: []string{"o1", "o2", ...},
//		})
//	}
//
// Layer L1.
//
// SourceRun and SinkRun stand for a job: they play the enumerator's loop, the tasks and the checkpoint coordinator, on the test's own
// goroutine, with the order guarantees that package connector documents. TestSource and TestSink are the suites.
package connectortest

import (
	"context"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/local"
	"github.com/thalweg/thalweg/fs/mem"
	"github.com/thalweg/thalweg/internal/guard"
)

// Record is what a source emitted.
type Record[T any] struct {
	Value     T
	Timestamp int64
	Subtask   int
	Split     string // empty when it belongs to none
}

// SourceCheckpoint is a checkpoint of a source.
type SourceCheckpoint struct {
	ID         int64
	Enumerator []byte
	Splits     []connector.Split
	Emitted    int // number of records emitted before it
}

// SourceRun is one attempt of a job that consists of a source.
type SourceRun[T any] struct {
	tb      testing.TB
	src     connector.Source[T]
	par     int
	ctx     context.Context
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	enum    connector.Enumerator
	readers []*readerRun[T]
	mails   chan func()
	err     error // of faults
	faults  []fault
	// violation is the last rule that was broken.
	violation *connector.ContractError
	nextID    int64
	// MaxPoll is the max given to Poll, 100 by default.
	MaxPoll int
	Records []Record[T]
	Metrics []*Metrics
	// patience bounds Until and UntilFailed.
	patience time.Duration
	pauses   *rand.Rand // pauses and resumes splits at random, when the reader can
	moved    int        // what readers and enumerator did: records, splits, ends, events
}

// patience is how long a run waits for what must come.
var patience = 2 * time.Minute

type readerRun[T any] struct {
	run      *SourceRun[T]
	sub      int
	r        connector.Reader[T]
	ended    bool
	released map[string]bool
	outs     map[string]bool
	assigned map[string]bool
	paused   map[string]bool
	noMore   bool
}

// StartSource starts an attempt, restored from a checkpoint when from is not nil. It is closed with the test.
func StartSource[T any](tb testing.TB, src connector.Source[T], parallelism int, from *SourceCheckpoint) *SourceRun[T] {
	tb.Helper()
	r := &SourceRun[T]{tb: tb, src: src, par: parallelism, mails: make(chan func(), 1024), MaxPoll: 100, nextID: 1, patience: patience}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	var restored []byte
	if from != nil {
		restored, r.nextID = from.Enumerator, from.ID+1
	}
	tb.Cleanup(r.Close)
	enum, err := src.Enumerator(enumContext[T]{r}, restored)
	if err != nil {
		tb.Fatalf("make enumerator: %v", err)
	}
	r.enum = enum
	per := make([][]connector.Split, parallelism)
	if from != nil {
		for i, s := range from.Splits {
			per[i%parallelism] = append(per[i%parallelism], s)
		}
	}
	for sub := range parallelism {
		m := &Metrics{}
		rd, err := src.Reader(connector.ReaderContext{
			Subtask: sub, Parallelism: parallelism, Restored: len(per[sub]), Logger: Logger(tb), Metrics: m, CheckpointingEnabled: true,
			RequestSplit: func() { r.mails <- func() { r.enum.HandleSplitRequest(sub) } },
			SendEvent:    func(b []byte) { r.mails <- func() { r.fromReader(sub, b) } },
			Files:        files(),
		})
		if err != nil {
			tb.Fatalf("make reader %d: %v", sub, err)
		}
		if rd == nil {
			tb.Fatal(r.violated("reader", "Reader returned nil"))
		}
		for _, other := range r.readers {
			if one(rd, other.r) {
				tb.Fatal(r.violated("reader", "Reader returned the same reader for subtasks %d and %d; each needs its own", other.sub, sub))
			}
		}
		if err := rd.Start(r.ctx); err != nil {
			tb.Fatalf("start reader %d: %v", sub, err)
		}
		r.Metrics = append(r.Metrics, m)
		run := &readerRun[T]{run: r, sub: sub, r: rd, released: map[string]bool{}, outs: map[string]bool{}, assigned: map[string]bool{}, paused: map[string]bool{}}
		r.readers = append(r.readers, run)
		if len(per[sub]) == 0 { // a task polls as soon as it runs, whenever splits come
			run.poll()
		}
	}
	for sub, ss := range per {
		if len(ss) == 0 {
			continue
		}
		if err := r.readers[sub].add(ss); err != nil {
			tb.Fatalf("restore splits of reader %d: %v", sub, err)
		}
	}
	if err := enum.Start(r.ctx); err != nil {
		tb.Fatalf("start enumerator: %v", err)
	}
	for sub := range parallelism {
		enum.AddReader(sub)
	}
	return r
}

// one reports whether both are one pointer to something that has a size.
func one(a, b any) bool {
	v, w := reflect.ValueOf(a), reflect.ValueOf(b)
	return v.Kind() == reflect.Pointer && v.Type() == w.Type() && v.Pointer() == w.Pointer() && v.Type().Elem().Size() > 0
}

// Logger writes to the test's log at warning level, until the test ends.
func Logger(tb testing.TB) zerolog.Logger {
	w := &testWriter{tb: tb}
	tb.Cleanup(func() { w.mu.Lock(); w.done = true; w.mu.Unlock() })
	return zerolog.New(w).Level(zerolog.WarnLevel)
}

type testWriter struct {
	tb   testing.TB
	mu   sync.Mutex
	done bool
}

func (w *testWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.done {
		w.tb.Logf("%s", p)
	}
	return len(p), nil
}

// Err is the error that failed the attempt.
func (r *SourceRun[T]) Err() error { return r.err }

// Ended reports whether all readers reached the end of input.
func (r *SourceRun[T]) Ended() bool {
	for _, rd := range r.readers {
		if !rd.ended {
			return false
		}
	}
	return true
}

// SubtaskEnded reports whether one reader reached the end of input.
func (r *SourceRun[T]) SubtaskEnded(sub int) bool { return r.readers[sub].ended }

// Step plays one turn: waiting mails, then one Poll of each reader. It reports whether anything may be waiting still.
func (r *SourceRun[T]) Step() bool {
	busy := false
	for more := true; more; {
		select {
		case fn := <-r.mails:
			fn()
			busy = true
		default:
			more = false
		}
	}
	for _, rd := range r.readers {
		if rd.ended || r.err != nil {
			continue
		}
		if r.pauses != nil {
			busy = rd.pauseSome() || busy
		}
		more, failed := rd.poll()
		if failed {
			return false
		}
		busy = more || busy
	}
	return busy
}

// poll plays one Poll; busy says that the reader wants the next at once.
func (rd *readerRun[T]) poll() (busy, failed bool) {
	r := rd.run
	before := len(r.Records)
	st, err := rd.r.Poll(rd, r.MaxPoll)
	if err != nil {
		r.fail(err)
		return false, true
	}
	if n := len(r.Records) - before; n > r.MaxPoll {
		r.violated("poll-max", "Poll emitted %d records of at most %d", n, r.MaxPoll)
	}
	return rd.took(st), false
}

// Until plays until cond holds, the attempt fails or ends, or the deadline passes (then the test fails).
func (r *SourceRun[T]) Until(what string, cond func() bool) {
	r.tb.Helper()
	if !r.Within(r.patience, cond) && r.err == nil {
		r.tb.Fatalf("waited %v for %s: %d records, ended %v", r.patience, what, len(r.Records), r.Ended())
	}
	if r.err != nil && !cond() {
		r.tb.Fatalf("attempt failed while waiting for %s: %v", what, r.err)
	}
}

// UntilFailed plays until the attempt fails and returns its error.
func (r *SourceRun[T]) UntilFailed() error {
	r.tb.Helper()
	if !r.Within(r.patience, func() bool { return r.err != nil }) {
		r.tb.Fatalf("waited %v for a failure: %d records", r.patience, len(r.Records))
	}
	return r.err
}

// Within plays for at most d until cond holds and reports whether it does.
func (r *SourceRun[T]) Within(d time.Duration, cond func() bool) bool {
	deadline := time.NewTimer(d)
	defer deadline.Stop()
	for !cond() {
		if r.err != nil {
			return cond()
		}
		if r.Step() {
			continue
		}
		if cond() {
			return true
		}
		wake, stop := r.anyAvailable()
		select {
		case fn := <-r.mails:
			fn()
		case <-wake:
		case <-deadline.C:
			stop()
			return cond()
		}
		stop()
	}
	return true
}

// anyAvailable returns a channel that closes when a reader may have something; a tick guards against conditions outside of the run.
func (r *SourceRun[T]) anyAvailable() (<-chan struct{}, func()) {
	ctx, cancel := context.WithTimeout(r.ctx, 20*time.Millisecond)
	for _, rd := range r.readers {
		if rd.ended {
			continue
		}
		ch := rd.r.Available()
		r.wg.Go(func() {
			select {
			case <-ch:
				cancel()
			case <-ctx.Done():
			}
		})
	}
	return ctx.Done(), cancel
}

// Checkpoint takes a checkpoint: the enumerator's state first, then all splits that it had assigned reach the readers, then theirs.
func (r *SourceRun[T]) Checkpoint() *SourceCheckpoint {
	r.tb.Helper()
	cp := &SourceCheckpoint{ID: r.nextID, Emitted: len(r.Records)}
	r.nextID++
	var err error
	if cp.Enumerator, err = r.enum.Snapshot(cp.ID); err != nil {
		r.tb.Fatalf("snapshot enumerator: %v", err)
	}
	for _, rd := range r.readers {
		ss, err := rd.r.Snapshot(cp.ID)
		if err != nil {
			r.tb.Fatalf("snapshot reader %d: %v", rd.sub, err)
		}
		cp.Splits = append(cp.Splits, ss...)
	}
	ids := map[string]bool{}
	for _, s := range cp.Splits {
		if ids[s.ID] {
			r.tb.Fatal(r.violated("split-in-one", "split %q is in the state of two readers, or twice in one", s.ID))
		}
		ids[s.ID] = true
	}
	slices.SortFunc(cp.Splits, func(a, b connector.Split) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
	return cp
}

// Complete tells everyone that a checkpoint is complete.
func (r *SourceRun[T]) Complete(cp *SourceCheckpoint) {
	r.tb.Helper()
	r.enum.CheckpointComplete(cp.ID)
	for _, rd := range r.readers {
		if err := rd.r.CheckpointComplete(r.ctx, cp.ID); err != nil {
			r.tb.Fatalf("complete checkpoint at reader %d: %v", rd.sub, err)
		}
	}
}

// Close ends the attempt. It may be called more than once.
func (r *SourceRun[T]) Close() {
	if r.ctx.Err() != nil {
		return
	}
	r.cancel()
	for _, rd := range r.readers {
		if err := guard.Run(rd.r.Close); err != nil {
			r.tb.Errorf("close reader: %v", err)
		}
	}
	if r.enum != nil {
		if err := guard.Run(r.enum.Close); err != nil {
			r.tb.Errorf("close enumerator: %v", err)
		}
	}
	r.wg.Wait()
}

// Values returns the values emitted so far.
func (r *SourceRun[T]) Values() []T {
	vs := make([]T, len(r.Records))
	for i, rec := range r.Records {
		vs[i] = rec.Value
	}
	return vs
}

func (rd *readerRun[T]) Collect(v T, ts int64) error {
	if len(rd.assigned) > 0 {
		return rd.run.violated("split-output", "the reader of subtask %d has splits and emits a record that belongs to none (Output.Collect): its splits would hold the watermark back for ever; use Output.Split", rd.sub)
	}
	return rd.collect("", v, ts)
}

func (rd *readerRun[T]) collect(split string, v T, ts int64) error {
	switch {
	case rd.released[split]:
		return rd.run.violated("split-released", "a record for split %q after its release", split)
	case rd.paused[split]:
		return rd.run.violated("split-paused", "a record for split %q while it is paused", split)
	}
	rd.run.moved++
	rd.run.Records = append(rd.run.Records, Record[T]{v, ts, rd.sub, split})
	return nil
}

// Split implements connector.Output.
func (rd *readerRun[T]) Split(id string) connector.SplitOutput[T] {
	switch {
	case !rd.assigned[id]:
		_ = rd.run.violated("split-known", "the reader of subtask %d asks for the output of split %q, which it was not given", rd.sub, id)
	case rd.outs[id]:
		_ = rd.run.violated("split-once", "the reader of subtask %d asks for the output of split %q again; it has to keep it", rd.sub, id)
	}
	rd.outs[id] = true
	return splitOut[T]{rd, id}
}

// ReleaseSplit implements connector.Output.
func (rd *readerRun[T]) ReleaseSplit(id string) {
	if !rd.assigned[id] {
		_ = rd.run.violated("split-known", "the reader of subtask %d releases split %q, which it was not given", rd.sub, id)
	}
	rd.released[id] = true
}

type splitOut[T any] struct {
	rd *readerRun[T]
	id string
}

func (o splitOut[T]) Collect(v T, ts int64) error { return o.rd.collect(o.id, v, ts) }

type enumContext[T any] struct{ r *SourceRun[T] }

func (c enumContext[T]) Parallelism() int { return c.r.par }

func (c enumContext[T]) Readers() []int {
	var subs []int
	for _, rd := range c.r.readers {
		subs = append(subs, rd.sub)
	}
	return subs
}

func (c enumContext[T]) Assign(sub int, splits ...connector.Split) {
	if rd := c.reader("Assign", sub); rd != nil {
		if rd.noMore {
			c.r.violated("assign-after-no-more", "the enumerator assigned splits to subtask %d after NoMoreSplits", sub)
			return
		}
		c.Fail(rd.add(splits))
	}
}

func (c enumContext[T]) NoMoreSplits(sub int) {
	if rd := c.reader("NoMoreSplits", sub); rd != nil {
		c.r.moved++
		rd.noMore = true
		rd.r.NoMoreSplits()
	}
}

// reader is the reader of a subtask that the enumerator names.
func (c enumContext[T]) reader(call string, sub int) *readerRun[T] {
	if sub < 0 || sub >= c.r.par {
		c.r.violated("subtask", "the enumerator called %s for subtask %d; the source has 0 to %d", call, sub, c.r.par-1)
		return nil
	}
	return c.r.readers[sub]
}

func (c enumContext[T]) Async(period time.Duration, work func(context.Context) (any, error), done func(any, error)) {
	c.r.wg.Go(func() {
		for {
			var res any
			var err error
			broken := panics(func() { res, err = work(c.r.ctx) })
			mail := func() { done(res, err) }
			if broken != nil {
				mail = func() { c.r.fail(broken) }
			}
			select {
			case c.r.mails <- mail:
			case <-c.r.ctx.Done():
				return
			}
			if period <= 0 || broken != nil {
				return
			}
			t := time.NewTimer(period)
			select {
			case <-t.C:
			case <-c.r.ctx.Done():
				t.Stop()
				return
			}
		}
	})
}

func (c enumContext[T]) SendEvent(sub int, payload []byte) {
	rd := c.reader("SendEvent", sub)
	if rd == nil {
		return
	}
	h, ok := rd.r.(connector.EventReader)
	if !ok {
		c.r.violated("events", "the enumerator sends events, but the reader (%T) takes none", rd.r)
		return
	}
	c.r.moved++
	c.Fail(h.HandleEvent(payload))
}

func (c enumContext[T]) Files() *fs.Registry { return files() }

func (r *SourceRun[T]) fromReader(sub int, payload []byte) {
	h, ok := r.enum.(connector.EventEnumerator)
	if !ok {
		r.violated("events", "reader %d sends events, but the enumerator (%T) takes none", sub, r.enum)
		return
	}
	r.moved++
	h.HandleEvent(sub, payload)
}

// files are the file systems of a run: file:// and mem://, one for all runs of a process.
var files = sync.OnceValue(func() *fs.Registry {
	reg := &fs.Registry{}
	local.Register(reg, local.WithoutSync())
	mem.Register(reg)
	return reg
})

// Files are the file systems that SourceRun and SinkRun give to connectors: file:// and mem://.
func Files() *fs.Registry { return files() }

func (c enumContext[T]) Fail(err error) { c.r.fail(err) }

func (c enumContext[T]) Logger() zerolog.Logger { return Logger(c.r.tb) }

// Metrics keeps counters and gauges by name.
type Metrics struct {
	mu       sync.Mutex
	counters map[string]*counter
	gauges   map[string]func() float64
}

type counter struct{ n atomic.Int64 }

func (c *counter) Add(n int64) { c.n.Add(n) }

// Counter implements connector.Metrics.
func (m *Metrics) Counter(name string) connector.Counter {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.counters == nil {
		m.counters = map[string]*counter{}
	}
	if m.counters[name] == nil {
		m.counters[name] = &counter{}
	}
	return m.counters[name]
}

// Gauge implements connector.Metrics.
func (m *Metrics) Gauge(name string, fn func() float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.gauges == nil {
		m.gauges = map[string]func() float64{}
	}
	m.gauges[name] = fn
}

// Value is the value of a counter or gauge, 0 when there is none.
func (m *Metrics) Value(name string) float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.counters[name]; c != nil {
		return float64(c.n.Load())
	}
	if g := m.gauges[name]; g != nil {
		return g()
	}
	return 0
}

// Has reports whether a counter or gauge is registered.
func (m *Metrics) Has(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.counters[name] != nil || m.gauges[name] != nil
}
