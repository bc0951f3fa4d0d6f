package operator

import (
	"context"
	"testing"
	"time"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/serde"
)

// further takes records, watermarks and idleness as an operator further down the chain does, whose user code is the last that ran.
type further[R any] struct{ mark *Marker }

func (f further[R]) Process(R, Meta) error               { f.mark.Current = 1; return nil }
func (f further[R]) ProcessBatch(v []R, _ []int64) error { f.mark.Current = 1; return nil }
func (f further[R]) Watermark(int64) error               { f.mark.Current = 1; return nil }
func (f further[R]) Idle(bool) error                     { f.mark.Current = 1; return nil }

// marked opens an operator whose records go further. here reports that user code of it runs.
type marked struct {
	t    *testing.T
	mark *Marker
	svc  *services
	seen map[string]int
}

func newMarked(t *testing.T) *marked {
	return &marked{t, &Marker{}, &services{}, map[string]int{}}
}

func (m *marked) here(what string) {
	m.t.Helper()
	m.seen[what]++
	if m.mark.Current != 0 {
		m.t.Errorf("%s: a panic would be laid on operator %d of the chain", what, m.mark.Current)
	}
}

func openMarked[R any](m *marked, f Factory) Operator {
	m.t.Helper()
	ctx := &Context{Services: m.svc, Name: "op", Parallelism: 1, MaxParallelism: 128, Metrics: noMetrics{}, Mark: m.mark, StateMemory: 32 << 20,
		StateDir: m.t.TempDir(), Config: config.Configuration{"state.backend.type": "hashmap", "pipeline.auto-watermark-interval": "100 ms"}}
	op, err := f.New(ctx, Receiver[R](further[R]{m.mark}))
	if err != nil {
		m.t.Fatal(err)
	}
	if err := Open(context.Background(), op, ctx); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() {
		if err := op.Close(); err != nil {
			m.t.Error(err)
		}
	})
	return op
}

func (m *marked) ok(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

// observing is a generator that emits a watermark with each record.
type observing struct{ m *marked }

func (g observing) OnEvent(v, _ int64, out *GeneratorOutput) {
	g.m.here("OnEvent")
	out.Emit(v)
}
func (g observing) OnPeriodic(*GeneratorOutput) { g.m.here("OnPeriodic") }

// TestPanicIsLaidOnTheOperatorThatGoesOn: wherever control comes back to user code from the operators further down the chain, which run code
// of their own, the marker is that of the operator again.
func TestPanicIsLaidOnTheOperatorThatGoesOn(t *testing.T) {
	poll := func(m *marked) *played {
		return &played{available: make(chan struct{}), poll: func(out connector.Output[int64], _ int) (connector.Status, error) {
			s := out.Split("a")
			for v := range int64(2) {
				m.ok(s.Collect(v, v))
				m.here("Poll after Collect")
			}
			m.ok(s.(connector.BatchOutput[int64]).CollectBatch([]int64{5, 6}, []int64{5, 6}))
			m.here("Poll after CollectBatch")
			return connector.MoreAvailable, nil
		}}
	}
	for name, wm := range map[string]func(*marked) Watermarks[int64]{
		"no watermarks": func(*marked) Watermarks[int64] { return Watermarks[int64]{} },
		"times": func(m *marked) Watermarks[int64] {
			return Watermarks[int64]{Enabled: true, Time: func(v, _ int64) int64 { m.here("Time"); return v }}
		},
		"generator": func(m *marked) Watermarks[int64] {
			return Watermarks[int64]{Enabled: true, Time: func(v, _ int64) int64 { m.here("Time"); return v }, Generator: func() Generator[int64] { return observing{m} }}
		},
	} {
		t.Run("source, "+name, func(t *testing.T) {
			m := newMarked(t)
			o := openMarked[int64](m, Source(poll(m), wm(m))).(*sourceOp)
			m.ok(o.HandleEvent(eventOf(t, assign1("a"))))
			for i := range 3 {
				if _, err := o.Poll(10); err != nil {
					t.Fatal(err)
				}
				m.svc.advance(t, int64(i+1)*200)
			}
			if m.seen["Poll after Collect"] != 6 {
				t.Errorf("%v", m.seen)
			}
		})
		t.Run("assigned, "+name, func(t *testing.T) {
			m := newMarked(t)
			in := openMarked[int64](m, AssignWatermarks(wm(m))).Input(0).(Receiver[int64])
			m.ok(in.Process(3, Meta{TS: 3}))
			m.svc.advance(t, 200)
			m.ok(in.(BatchReceiver[int64]).ProcessBatch([]int64{5, 6}, []int64{5, 6}))
		})
	}

	hashOf := KeySelector[int64, int64]{Fn: func(v int64) int64 { return v }, Codec: serde.Must[int64]()}.NewHash()
	t.Run("timers", func(t *testing.T) {
		m := newMarked(t)
		op := openMarked[int64](m, KeyedProcess(KeySelector[int64, int64]{Fn: func(v int64) int64 { return v }, Codec: serde.Must[int64]()}, func() KeyedProcessFunction[int64, int64, int64] { return &ringing{m} }))
		in := op.Input(0).(Receiver[int64])
		for v := range int64(3) {
			m.ok(in.Process(v, Meta{TS: v, Hash: hashOf(v)}))
		}
		m.ok(in.Watermark(1000))
		m.svc.advance(t, 1000)
		if m.seen["OnTimer"] != 6 {
			t.Errorf("%v", m.seen)
		}
	})

	t.Run("slices that are merged after an emission", func(t *testing.T) {
		defer func(n int) { gatherLimit = n }(gatherLimit)
		gatherLimit = 1
		m := newMarked(t)
		spec := WindowSpec[int64, int64]{Key: KeySelector[int64, int64]{Fn: func(v int64) int64 { return v % 10 }, Codec: serde.Must[int64]()}, Assigner: WindowAssigner[int64]{EventTime: true, Sliding: Sliding{Size: 30, Slide: 10}}, Lateness: 100}
		op := openMarked[int64](m, AggregateWindow(spec, func() WindowFunctions[int64, int64, int64, int64] {
			return WindowFunctions[int64, int64, int64, int64]{
				Add:   func(acc *int64, v int64, _ bool) { m.here("Add"); *acc += v },
				Merge: func(a, b int64) int64 { m.here("Merge"); return a + b },
				Emit: func(_ int64, _ Window, acc *int64, out *Collector[int64]) error {
					m.here("Emit")
					out.Collect(*acc)
					m.here("Emit after Collect")
					return nil
				},
			}
		}))
		in := op.Input(0).(Receiver[int64])
		for v := range int64(30) {
			m.ok(in.Process(v, Meta{TS: v, Hash: hashOf(v % 10)}))
		}
		m.ok(in.Watermark(45))
		m.ok(in.Process(7, Meta{TS: 7, Hash: hashOf(7)}))
		if m.seen["Merge"] == 0 || m.seen["Emit after Collect"] < 20 {
			t.Errorf("%v", m.seen)
		}
	})
}

// ringing sets timers for each record and emits, twice, when they fire.
type ringing struct{ m *marked }

func (r *ringing) Open(*RuntimeContext[int64]) error { return nil }
func (r *ringing) Close() error                      { return nil }
func (r *ringing) ProcessElement(c *KeyedContext[int64], v int64, out *Collector[int64]) error {
	r.m.here("ProcessElement")
	out.Collect(v)
	r.m.here("ProcessElement after Collect")
	if err := c.RegisterProcessingTimeTimer(time.UnixMilli(500 + v)); err != nil {
		return err
	}
	return c.RegisterEventTimeTimer(time.UnixMilli(500 + v))
}
func (r *ringing) OnTimer(_ *KeyedContext[int64], _ Timer, out *Collector[int64]) error {
	r.m.here("OnTimer")
	out.Collect(1)
	r.m.here("OnTimer after Collect")
	return nil
}
