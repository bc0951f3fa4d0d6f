package operator

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"testing"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/checkpoint/storage"
	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
)

// tagged is a record with memory behind it that can be changed in place.
type tagged struct {
	Key int64
	N   []int64
}

func taggedKey() KeySelector[int64, tagged] {
	return KeySelector[int64, tagged]{Fn: func(v tagged) int64 { return v.Key }, Codec: serde.Must[int64]()}
}

// adds is a reduce function that changes its first argument in place.
func adds(a, b tagged) tagged {
	a.N[0] += b.N[0]
	return a
}

// asEmitted remembers what a sink got when it got it.
type asEmitted struct{ seen []string }

func (e *asEmitted) look(s *sink[tagged]) {
	for _, x := range s.got[len(e.seen):] {
		e.seen = append(e.seen, fmt.Sprint(x.v))
	}
}

func (e *asEmitted) check(t *testing.T, s *sink[tagged]) {
	t.Helper()
	e.look(s)
	for i, x := range s.got {
		if got := fmt.Sprint(x.v); got != e.seen[i] {
			t.Errorf("result %d was emitted as %s and is %s now", i, e.seen[i], got)
		}
	}
}

// elements is a window function that emits what the window holds.
type elements struct{}

func (elements) Open(*WindowRuntimeContext[int64]) error { return nil }
func (elements) Clear(*WindowContext[int64]) error       { return nil }
func (elements) Close() error                            { return nil }
func (elements) Process(_ *WindowContext[int64], in iter.Seq[tagged], out *Collector[tagged]) error {
	for v := range in {
		out.Collect(v)
	}
	return nil
}

// What a window emitted stays as it is while the window goes on, and what becomes of it does not change the window: results may be the
// accumulator itself.
func TestResultsOfWindowsThatGoOnAreTheirOwn(t *testing.T) {
	fns := func() WindowFunctions[int64, tagged, tagged, tagged] {
		return WindowFunctions[int64, tagged, tagged, tagged]{
			Add: func(a *tagged, v tagged, first bool) {
				if first {
					*a = v
				} else {
					*a = adds(*a, v)
				}
			},
			Merge: adds,
			Emit:  func(_ int64, _ Window, a *tagged, out *Collector[tagged]) error { out.Collect(*a); return nil },
		}
	}
	each := func() Trigger[tagged] { return NewCountTrigger[tagged](1) }
	sliding := func(size, slide int64) WindowAssigner[tagged] {
		return WindowAssigner[tagged]{EventTime: true, Sliding: Sliding{Size: size, Slide: slide}}
	}
	session := WindowAssigner[tagged]{Kind: SessionWindows, EventTime: true, Session: Session[tagged]{Gap: 20}}
	for name, spec := range map[string]WindowSpec[int64, tagged]{
		"tumbling":         {Assigner: sliding(20, 20), Lateness: 1000},
		"sliding":          {Assigner: sliding(20, 10), Lateness: 1000},
		"session":          {Assigner: session, Lateness: 1000},
		"counted":          {Assigner: sliding(20, 20), Trigger: each},
		"counted sliding":  {Assigner: sliding(20, 10), Trigger: each},
		"counted sessions": {Assigner: session, Trigger: each},
		"counted global":   {Assigner: WindowAssigner[tagged]{Kind: GlobalWindows}, Trigger: each},
		"evicting":         {Assigner: WindowAssigner[tagged]{Kind: GlobalWindows}, Trigger: each, Evictor: NewCountEvictor[tagged](3, false)},
	} {
		spec.Key = taggedKey()
		for kind, f := range map[string]Factory{
			"aggregate": AggregateWindow(spec, fns),
			"process": AggregateProcessWindow(spec, fns, func(a *tagged) tagged { return *a },
				func() ProcessWindowFunction[int64, tagged, tagged] { return elements{} }),
			"elements": ProcessWindow(spec, func() ProcessWindowFunction[int64, tagged, tagged] { return elements{} }),
		} {
			for _, backend := range backends {
				t.Run(name+"/"+kind+"/"+backend, func(t *testing.T) {
					h := newHarness[tagged, tagged](t, f, backend, 1, taggedKey().NewHash())
					defer h.close()
					out, seen := h.tasks[0].out, &asEmitted{}
					for i := range int64(12) {
						h.process(tagged{1, []int64{1}}, 1+i%3*8)
						seen.look(out)
						if i == 4 && spec.Trigger == nil {
							h.watermark(30)
							seen.look(out)
						}
						if i == 8 {
							h.restart(1, true)
							*out, *seen = sink[tagged]{}, asEmitted{}
							out = h.tasks[0].out
							h.watermark(30)
						}
					}
					seen.check(t, out)
					if len(out.got) == 0 {
						t.Fatal("nothing was emitted")
					}
					for _, x := range out.got { // an operator behind it changes what it got
						if !x.mark {
							x.v.N[0] = 1000
						}
					}
					n := len(out.got)
					h.process(tagged{1, []int64{1}}, 1)
					for _, x := range out.got[n:] {
						if x.v.N[0] >= 1000 {
							t.Errorf("a change of what was emitted is in the window: %v", x.v)
						}
					}
				})
			}
		}
	}
}

// frozen takes a snapshot, lets change run, and only then writes it: what a running checkpoint holds is what was there at the barrier.
func (h *harness[T, R]) frozen(change func()) {
	h.t.Helper()
	s, err := h.tasks[0].op.Snapshot(Barrier{ID: 1})
	if err != nil {
		h.t.Fatal(err)
	}
	change()
	sub := metadata.Subtask{Lists: s.Lists}
	for _, k := range s.Keyed {
		hd, err := k.Write(context.Background(), storage.NewSink(h.reg, "mem://test/cp/chk-1", "mem://test/cp/shared", 1<<20))
		if err != nil {
			h.t.Fatal(err)
		}
		sub.Keyed = []state.Handle{hd}
	}
	if err := h.tasks[0].op.Close(); err != nil {
		h.t.Fatal(err)
	}
	h.open(1, []metadata.Subtask{sub})
}

// sums adds in place in both states that take functions, and emits both.
type sums struct {
	red ReducingState[tagged]
	agg AggregatingState[tagged, tagged]
}

type addTagged struct{}

func (addTagged) Create() tagged          { return tagged{N: []int64{0}} }
func (addTagged) Add(a *tagged, v tagged) { *a = adds(*a, v) }
func (addTagged) Result(a tagged) tagged  { return a }
func (s *sums) Close() error              { return nil }
func (s *sums) Open(rt *RuntimeContext[int64]) (err error) {
	if s.red, err = rt.ReducingState[tagged]("red", adds); err != nil {
		return err
	}
	s.agg, err = rt.AggregatingState[tagged, tagged, tagged]("agg", addTagged{})
	return err
}
func (s *sums) OnTimer(*KeyedContext[int64], Timer, *Collector[tagged]) error { return nil }
func (s *sums) ProcessElement(_ *KeyedContext[int64], v tagged, out *Collector[tagged]) error {
	if err := s.red.Add(tagged{v.Key, slices.Clone(v.N)}); err != nil {
		return err
	}
	if err := s.agg.Add(v); err != nil {
		return err
	}
	r, _, err := s.red.Get()
	if err != nil {
		return err
	}
	out.Collect(tagged{1, slices.Clone(r.N)})
	a, _, err := s.agg.Get()
	out.Collect(tagged{2, a.N})
	return err
}

// A function that changes its first argument in place, or returns it, neither changes what a running checkpoint holds nor what was emitted.
func TestReducingInPlace(t *testing.T) {
	for name, f := range map[string]Factory{
		"reduce": Reduce(taggedKey(), adds),
		"rolling": Rolling(taggedKey(), func() RollingFunctions[int64, tagged, tagged, tagged] {
			return RollingFunctions[int64, tagged, tagged, tagged]{
				Add: func(a *tagged, v tagged, first bool) {
					if first {
						*a = v
					} else {
						*a = adds(*a, v)
					}
				},
				Result: func(_ int64, a *tagged) tagged { return *a },
			}
		}),
		"states": KeyedProcess(taggedKey(), func() KeyedProcessFunction[int64, tagged, tagged] { return &sums{} }),
	} {
		for _, backend := range backends {
			t.Run(name+"/"+backend, func(t *testing.T) {
				h := newHarness[tagged, tagged](t, f, backend, 1, taggedKey().NewHash())
				defer h.close()
				add := func(n int) {
					out, seen := h.tasks[0].out, &asEmitted{}
					for range n {
						h.process(tagged{1, []int64{1}}, 1)
						seen.look(out)
					}
					seen.check(t, out)
				}
				add(5)
				h.frozen(func() { add(3) })
				h.take()
				add(1)
				for _, v := range h.take() {
					if v.N[0] != 6 {
						t.Errorf("%v after a restore of 5 and one more", v)
					}
				}
			})
		}
	}
}

// Whoever sent a record may go on using what it points to while it is in flight.
func TestAsyncKeepsItsOwnRecord(t *testing.T) {
	release := make(chan struct{})
	h := newHarness[tagged, tagged](t, AsyncWait(func() AsyncFunction[tagged, tagged] { return &waits{release} }, AsyncOptions[tagged]{Ordered: true, Timeout: 1 << 40, Capacity: 10}),
		"hashmap", 1, taggedKey().NewHash())
	defer h.close()
	v := tagged{1, []int64{1}}
	h.process(v, 1)
	v.N[0] = 2
	h.process(v, 2)
	v.N[0] = 3
	close(release)
	if err := h.tasks[0].op.EndInput(); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(h.take()); got != "[{1 [1]} {1 [2]}]" {
		t.Errorf("got %s", got)
	}
}

type waits struct{ release chan struct{} }

func (w *waits) Open(*TaskContext) error { return nil }
func (w *waits) Close() error            { return nil }
func (w *waits) Invoke(ctx context.Context, v tagged) ([]tagged, error) {
	select {
	case <-w.release:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return []tagged{v}, nil
}

// Of several operators that read one stream in a chain, none sees what another changes in place.
func TestBranchesDoNotSeeEachOther(t *testing.T) {
	typ, err := TypeOf[tagged]()
	if err != nil {
		t.Fatal(err)
	}
	ctx := &Context{Services: &services{}, Name: "op", Parallelism: 1, MaxParallelism: 128, Metrics: noMetrics{}, Mark: &Marker{}}
	change := Update(func(v *tagged) { v.N[0]++ })
	mapped := Map(func(v tagged) tagged { v.N[0]++; return v })
	for changed := range 8 { // which of the three branches change the record
		for _, batch := range []bool{false, true} {
			var outs []any
			sinks := make([]*sink[tagged], 3)
			for i := range sinks {
				sinks[i] = &sink[tagged]{}
				var out any = Receiver[tagged](sinks[i])
				if changed>>i&1 != 0 {
					f := change
					if i == 1 {
						f = mapped
					}
					op, err := f.New(ctx, out)
					if err != nil {
						t.Fatal(err)
					}
					out = op.Input(0)
				}
				outs = append(outs, out)
			}
			all, err := typ.Tee(outs)
			if err != nil {
				t.Fatal(err)
			}
			vs := []tagged{{1, []int64{1}}, {2, []int64{1}}}
			if batch {
				err = all.(BatchReceiver[tagged]).ProcessBatch(vs, nil)
			} else {
				err = (&oneByOne[tagged]{all.(Receiver[tagged])}).ProcessBatch(vs, nil)
			}
			if err != nil {
				t.Fatal(err)
			}
			for i, s := range sinks {
				want := int64(1 + changed>>i&1)
				for _, x := range s.got {
					if x.v.N[0] != want {
						t.Errorf("changing %03b, batch %v: branch %d got %v, want %d", changed, batch, i, x.v, want)
					}
				}
				if len(s.got) != 2 {
					t.Errorf("branch %d got %d records", i, len(s.got))
				}
			}
		}
	}
}

// A record that is in several windows is one of its own in each: a function that changes the first in place does not count it twice.
func TestWindowsOfOneRecordDoNotShareIt(t *testing.T) {
	spec := WindowSpec[int64, tagged]{Key: taggedKey(), Assigner: WindowAssigner[tagged]{EventTime: true, Sliding: Sliding{Size: 20, Slide: 10}},
		Trigger: func() Trigger[tagged] { return NewCountTrigger[tagged](1) }}
	h := newHarness[tagged, tagged](t, AggregateWindow(spec, func() WindowFunctions[int64, tagged, tagged, tagged] {
		return WindowFunctions[int64, tagged, tagged, tagged]{
			Add: func(a *tagged, v tagged, first bool) {
				if first {
					*a = v
				} else {
					*a = adds(*a, v)
				}
			},
			Emit: func(_ int64, _ Window, a *tagged, out *Collector[tagged]) error { out.Collect(*a); return nil },
		}
	}), "hashmap", 1, taggedKey().NewHash())
	defer h.close()
	h.process(tagged{1, []int64{1}}, 15)
	h.process(tagged{1, []int64{1}}, 15)
	if got := fmt.Sprint(h.take()); got != "[{1 [1]} {1 [1]} {1 [2]} {1 [2]}]" {
		t.Errorf("got %s", got)
	}
}

// The records that an evictor leaves are those that came, whatever became of the results that were made of them.
func TestRecordsThatEvictorsLeaveStayAsTheyCame(t *testing.T) {
	spec := WindowSpec[int64, tagged]{Key: taggedKey(), Assigner: WindowAssigner[tagged]{Kind: GlobalWindows},
		Trigger: func() Trigger[tagged] { return NewCountTrigger[tagged](1) }, Evictor: NewCountEvictor[tagged](3, false)}
	folds := func(add func(a, b tagged) tagged) Factory {
		return AggregateWindow(spec, func() WindowFunctions[int64, tagged, tagged, tagged] {
			return WindowFunctions[int64, tagged, tagged, tagged]{
				Add: func(a *tagged, v tagged, first bool) {
					if first {
						*a = v
					} else {
						*a = add(*a, v)
					}
				},
				Emit: func(_ int64, _ Window, a *tagged, out *Collector[tagged]) error { out.Collect(*a); return nil },
			}
		})
	}
	for name, c := range map[string]struct {
		f    Factory
		want string
	}{
		"reduce":   {folds(adds), "[1 3 8 11 13]"},
		"latest":   {folds(func(_, b tagged) tagged { return b }), "[1 2 5 4 4]"},
		"elements": {ProcessWindow(spec, func() ProcessWindowFunction[int64, tagged, tagged] { return elements{} }), "[1 1 2 1 2 5 2 5 4 5 4 4]"},
	} {
		for _, backend := range backends {
			t.Run(name+"/"+backend, func(t *testing.T) {
				h := newHarness[tagged, tagged](t, c.f, backend, 1, taggedKey().NewHash())
				defer h.close()
				var got []int64
				for _, n := range []int64{1, 2, 5, 4, 4} {
					h.process(tagged{1, []int64{n}}, NoTimestamp)
					for _, v := range h.take() {
						got = append(got, v.N[0])
						v.N[0] = 1000 // an operator behind it changes what it got
					}
				}
				if fmt.Sprint(got) != c.want {
					t.Errorf("got %v, want %s", got, c.want)
				}
			})
		}
	}
}
