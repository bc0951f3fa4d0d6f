package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/connector"
)

// played is a source whose reader does what a test says.
type played struct {
	poll      func(out connector.Output[int64], max int) (connector.Status, error)
	available chan struct{}
	snapshot  []connector.Split
	nothing   bool // Reader returns nil
	paused    map[string]bool
}

func (p *played) Boundedness() connector.Boundedness { return connector.Unbounded }
func (p *played) Enumerator(connector.EnumeratorContext, []byte) (connector.Enumerator, error) {
	return nil, nil
}
func (p *played) Reader(connector.ReaderContext) (connector.Reader[int64], error) {
	if p.nothing {
		return nil, nil
	}
	return p, nil
}
func (p *played) Start(context.Context) error                     { return nil }
func (p *played) AddSplits([]connector.Split) error               { return nil }
func (p *played) NoMoreSplits()                                   {}
func (p *played) Available() <-chan struct{}                      { return p.available }
func (p *played) Snapshot(int64) ([]connector.Split, error)       { return p.snapshot, nil }
func (p *played) CheckpointComplete(context.Context, int64) error { return nil }
func (p *played) CheckpointAborted(int64)                         {}
func (p *played) Close() error                                    { return nil }
func (p *played) Poll(out connector.Output[int64], max int) (connector.Status, error) {
	return p.poll(out, max)
}

// pausing is played with a reader that can pause splits.
type pausing struct{ played }

func (p *pausing) Reader(connector.ReaderContext) (connector.Reader[int64], error) { return p, nil }
func (p *pausing) PauseSplits(pause, resume []string) {
	for _, id := range pause {
		p.paused[id] = true
	}
	for _, id := range resume {
		delete(p.paused, id)
	}
}

// openSource opens a source that has the given splits.
func openSource(t *testing.T, src connector.Source[int64], wm Watermarks[int64], conf config.Configuration, splits ...string) (*sourceOp, *services, error) {
	t.Helper()
	svc := &services{}
	if conf == nil {
		conf = config.Configuration{}
	}
	ctx := &Context{Services: svc, Name: "Source: orders", Parallelism: 1, MaxParallelism: 128, Logger: zerolog.Nop(), Metrics: noMetrics{}, Mark: &Marker{}, Config: conf}
	op, err := Source(src, wm).New(ctx, Receiver[int64](&sink[int64]{}))
	if err != nil {
		t.Fatal(err)
	}
	o := op.(*sourceOp)
	if err := op.Open(context.Background()); err != nil {
		return o, svc, err
	}
	return o, svc, o.HandleEvent(eventOf(t, assign1(splits...)))
}

func assign1(ids ...string) SourceEvent {
	var e SourceEvent
	for _, id := range ids {
		e.Assign = append(e.Assign, connector.Split{ID: id})
	}
	return e
}

func eventOf(t *testing.T, e SourceEvent) []byte {
	t.Helper()
	b, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestSourcesThatViolateTheirContract: each is told at once, with the source's name and the rule, and no restart is tried.
func TestSourcesThatViolateTheirContract(t *testing.T) {
	ok := make(chan struct{})
	type out = connector.Output[int64]
	poll := func(fn func(out) (connector.Status, error)) *played {
		return &played{available: ok, poll: func(o out, _ int) (connector.Status, error) { return fn(o) }}
	}
	marks := Watermarks[int64]{Enabled: true}
	once := func(p *played, wm Watermarks[int64], splits ...string) error {
		o, _, err := openSource(t, p, wm, nil, splits...)
		if err == nil {
			_, err = o.Poll(10)
		}
		if err == nil {
			_, err = o.Snapshot(Barrier{ID: 1})
		}
		return err
	}
	for rule, err := range map[string]error{
		"reader":      once(&played{nothing: true}, marks),
		"split-id":    once(&played{}, marks, ""),
		"available":   once(&played{poll: func(out, int) (connector.Status, error) { return connector.NothingAvailable, nil }}, marks),
		"poll-status": once(poll(func(out) (connector.Status, error) { return 7, nil }), marks),
		"split-known": once(poll(func(o out) (connector.Status, error) {
			return connector.MoreAvailable, o.Split("other").Collect(1, 1)
		}), marks, "a"),
		"split-released": once(poll(func(o out) (connector.Status, error) {
			s := o.Split("a")
			o.ReleaseSplit("a")
			return connector.MoreAvailable, s.Collect(1, 1)
		}), marks, "a"),
		"split-output":        once(poll(func(o out) (connector.Status, error) { return connector.MoreAvailable, o.Collect(1, 1) }), marks, "a"),
		"split-assigned-once": once(&played{}, marks, "a", "a"),
		"split-in-one": once(&played{available: ok, snapshot: []connector.Split{{ID: "a"}, {ID: "a"}},
			poll: func(out, int) (connector.Status, error) { return connector.NothingAvailable, nil }}, marks, "a"),
	} {
		var ce *connector.ContractError
		var fatal interface{ Fatal() bool }
		if !errors.As(err, &ce) || ce.Rule != rule || !strings.Contains(err.Error(), "Source: orders") || !errors.As(err, &fatal) || !fatal.Fatal() {
			t.Errorf("%s: %v", rule, err)
		}
	}
	splits := func(ids ...string) (s []connector.Split) { return assign1(ids...).Assign }
	idle := func(snapshot ...string) *played {
		p := poll(func(out) (connector.Status, error) { return connector.NothingAvailable, nil })
		p.snapshot = splits(snapshot...)
		return p
	}
	for _, c := range []struct {
		rule, want string
		err        error
	}{
		{"split-known", `holds split "b", which it was not given`, once(idle("a", "b"), marks, "a")},
		{"split-kept", `leaves out split "b"`, once(idle("a"), marks, "a", "b")},
	} {
		var ce *connector.ContractError
		if !errors.As(c.err, &ce) || ce.Rule != c.rule || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("%s: %v", c.rule, c.err)
		}
	}
	released := poll(func(o out) (connector.Status, error) { o.ReleaseSplit("b"); return connector.NothingAvailable, nil })
	released.snapshot = splits("a")
	ended := poll(func(out) (connector.Status, error) { return connector.EndOfInput, nil })
	whole := poll(func(o out) (connector.Status, error) { return connector.MoreAvailable, o.Collect(1, 1) })
	for name, err := range map[string]error{
		"released": once(released, marks, "a", "b"), "ended": once(ended, marks, "a"), "no watermarks": once(whole, Watermarks[int64]{}, "a"),
		"of its own": once(idle("a"), marks), // no enumerator gave it any
	} {
		if err != nil {
			t.Errorf("a good snapshot, %s: %v", name, err)
		}
	}
	o, _, err := openSource(t, poll(func(out) (connector.Status, error) { return connector.NothingAvailable, nil }), marks, nil, "a")
	if err != nil {
		t.Fatal(err)
	}
	var events *connector.ContractError
	if err := o.HandleEvent(eventOf(t, SourceEvent{Custom: []byte("x")})); !errors.As(err, &events) || events.Rule != "events" {
		t.Errorf("an event to a reader that takes none: %v", err)
	}
	o, _, err = openSource(t, poll(func(out) (connector.Status, error) { return connector.EndOfInput, nil }), marks, nil, "a")
	if err == nil {
		_, err = o.Poll(1)
	}
	if err != nil {
		t.Fatal(err)
	}
	var ce *connector.ContractError
	if err := o.HandleEvent(eventOf(t, assign1("b"))); !errors.As(err, &ce) || ce.Rule != "end" {
		t.Errorf("a split after the end: %v", err)
	}
}

// emits is a source that emits one record at the given time to a split with each Poll.
func emits(p *pausing, next func() (string, int64)) {
	outs := map[string]connector.SplitOutput[int64]{}
	p.available, p.paused = make(chan struct{}), map[string]bool{}
	p.poll = func(o connector.Output[int64], _ int) (connector.Status, error) {
		id, ts := next()
		if outs[id] == nil {
			outs[id] = o.Split(id)
		}
		return connector.MoreAvailable, outs[id].Collect(ts, ts)
	}
}

func last(t *testing.T, svc *services) int64 {
	t.Helper()
	for _, b := range slices.Backward(svc.sent) {
		var e SourceEvent
		if err := json.Unmarshal(b, &e); err != nil {
			t.Fatal(err)
		}
		if e.Watermark != nil {
			return *e.Watermark
		}
	}
	return MinWatermark
}

// TestAlignedSourceWaits: a source reads no further than it may, says where it is, and is not idle meanwhile.
func TestAlignedSourceWaits(t *testing.T) {
	p := &pausing{}
	var ts int64
	emits(p, func() (string, int64) { ts += 10; return "a", ts })
	wm := Watermarks[int64]{Enabled: true, Idleness: 1000, Alignment: &Alignment{Group: "g", Drift: 100, Interval: 50}}
	o, svc, err := openSource(t, p, wm, config.Configuration{"pipeline.auto-watermark-interval": "10 ms"}, "a")
	if err != nil {
		t.Fatal(err)
	}
	run := func() (n int) {
		t.Helper()
		for range 100 {
			st, err := o.Poll(1)
			if err != nil {
				t.Fatal(err)
			}
			if st == connector.NothingAvailable {
				break
			}
			n++
		}
		return n
	}
	allow := func(w int64) {
		t.Helper()
		if err := o.HandleEvent(eventOf(t, SourceEvent{Allowed: &w})); err != nil {
			t.Fatal(err)
		}
	}
	if n := run(); n != 1 || last(t, svc) != 9 || o.Available() != nil {
		t.Errorf("before the first announcement: %d records, reported %d", n, last(t, svc))
	}
	allow(55)
	if n := run(); n != 5 || ts != 60 {
		t.Errorf("allowed 55: %d records, the last at %d", n, ts)
	}
	if svc.advance(t, 60); last(t, svc) != 59 {
		t.Errorf("reported %d", last(t, svc))
	}
	svc.advance(t, 5000)
	if o.idle || last(t, svc) != 59 {
		t.Error("idle while it is held")
	}
	allow(59)
	if n := run(); n != 1 {
		t.Errorf("allowed 59: %d records", n)
	}
	allow(MaxWatermark)
	if n := run(); n != 100 {
		t.Errorf("allowed everything: %d records", n)
	}
	svc.advance(t, 5010)
	svc.advance(t, 6500)
	if svc.advance(t, 6600); !o.idle || last(t, svc) != MaxWatermark {
		t.Errorf("without records: idle %v, reported %d", o.idle, last(t, svc))
	}
	if n := run(); n != 100 {
		t.Fatal(n)
	}
	if svc.advance(t, 6700); last(t, svc) == MaxWatermark {
		t.Error("not idle any more, but reported so")
	}
	if err := o.Finish(); err != nil || last(t, svc) != MaxWatermark {
		t.Errorf("at its end: %v, reported %d", err, last(t, svc))
	}
}

// TestSplitsAreAlignedOneByOne: a split that is ahead is paused while the other goes on; a reader that cannot do that is refused, unless the
// job allows it.
func TestSplitsAreAlignedOneByOne(t *testing.T) {
	p := &pausing{}
	fast, slow := int64(0), int64(0)
	emits(p, func() (string, int64) {
		if !p.paused["fast"] {
			fast += 50
			return "fast", fast
		}
		slow++
		return "slow", slow
	})
	wm := Watermarks[int64]{Enabled: true, Alignment: &Alignment{Group: "g", Drift: 100, Interval: 50}}
	o, _, err := openSource(t, p, wm, nil, "fast", "slow")
	if err != nil {
		t.Fatal(err)
	}
	allow := func(w int64) {
		t.Helper()
		if err := o.HandleEvent(eventOf(t, SourceEvent{Allowed: &w})); err != nil {
			t.Fatal(err)
		}
	}
	allow(120)
	for range 50 {
		if _, err := o.Poll(1); err != nil {
			t.Fatal(err)
		}
	}
	if fast != 150 || slow != 47 || !p.paused["fast"] || p.paused["slow"] {
		t.Errorf("fast at %d, slow at %d, paused %v", fast, slow, p.paused)
	}
	if allow(150); len(p.paused) != 0 {
		t.Errorf("paused %v", p.paused)
	}
	for conf, want := range map[string]string{"false": `rule "alignable"`, "true": ""} {
		_, _, err := openSource(t, &p.played, wm, config.Configuration{config.UnalignedSplits.Key: conf}, "a", "b")
		if (err == nil) != (want == "") || want != "" && (!strings.Contains(fmt.Sprint(err), want) || !strings.Contains(err.Error(), config.UnalignedSplits.Key)) {
			t.Errorf("unaligned splits allowed %s: %v", conf, err)
		}
	}
}

// The enumerator hears of each split that it gave and that the reader released, once and before what the reader tells it afterwards.
func TestReleasedSplitsAreReported(t *testing.T) {
	p := &played{poll: func(o connector.Output[int64], _ int) (connector.Status, error) {
		o.ReleaseSplit("a")
		return connector.MoreAvailable, nil
	}}
	o, svc, err := openSource(t, p, Watermarks[int64]{Enabled: true}, nil, "a", "b")
	if err != nil {
		t.Fatal(err)
	}
	before := len(svc.sent)
	if _, err := o.Poll(1); err != nil {
		t.Fatal(err)
	}
	if got := svc.sent[before:]; len(got) != 1 || string(got[0]) != `{"released":["a"]}` {
		t.Errorf("the enumerator was sent %s", got)
	}
}

// refusing is what follows a source, and fails at a record.
type refusing struct {
	further[int64]
	fail func() error
}

func (r refusing) Process(v int64, _ Meta) error {
	if v == 2 {
		return r.fail()
	}
	return nil
}

func (r refusing) ProcessBatch(vs []int64, _ []int64) error {
	for _, v := range vs {
		if err := r.Process(v, Meta{}); err != nil {
			return err
		}
	}
	return nil
}

// A reader that does not return what Collect returned, or recovers what panicked in it, loses no record in silence: the task fails at that Poll.
func TestReaderThatSwallowsFailures(t *testing.T) {
	collect := map[string]func(o connector.Output[int64]){
		"of a split": func(o connector.Output[int64]) {
			s := o.Split("a")
			for v := range int64(4) {
				_ = s.Collect(v, v)
			}
		},
		"of no split": func(o connector.Output[int64]) {
			for v := range int64(4) {
				_ = o.Collect(v, v)
			}
		},
		"in batches": func(o connector.Output[int64]) {
			_ = o.Split("a").(connector.BatchOutput[int64]).CollectBatch([]int64{1, 2}, []int64{1, 2})
		},
	}
	for name, emit := range collect {
		for _, wm := range []Watermarks[int64]{{}, {Time: func(v, _ int64) int64 { return v }}, {Enabled: name != "of no split", Generator: func() Generator[int64] { return observing{newMarked(t)} }}} {
			for what, fail := range map[string]func() error{
				"record 2":                           func() error { return errors.New("record 2") },
				"recovered a panic that came out of": func() error { panic("record 2") },
			} {
				p := &played{available: make(chan struct{}), poll: func(o connector.Output[int64], _ int) (connector.Status, error) {
					defer func() { _ = recover() }()
					emit(o)
					return connector.MoreAvailable, nil
				}}
				m := newMarked(t)
				ctx := &Context{Services: m.svc, Name: "Source: orders", Parallelism: 1, MaxParallelism: 128, Metrics: noMetrics{}, Mark: m.mark, Config: config.Configuration{}}
				op, err := Source(p, wm).New(ctx, Receiver[int64](refusing{further[int64]{m.mark}, fail}))
				if err != nil {
					t.Fatal(err)
				}
				m.ok(op.Open(t.Context()))
				if name != "of no split" {
					m.ok(op.(*sourceOp).HandleEvent(eventOf(t, assign1("a"))))
				}
				if _, err := op.(*sourceOp).Poll(10); err == nil || !strings.Contains(err.Error(), what) || !strings.Contains(err.Error(), "Source: orders") {
					t.Errorf("%s, %q: %v", name, what, err)
				}
			}
		}
	}
}
