package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/thalweg/thalweg/checkpoint/metadata"
)

// toAll gives a broadcast record to every subtask's input 1.
func toAll[B, T, R any](t *rapid.T, h *harness[T, R], v B) {
	for _, i := range h.tasks {
		if err := i.op.Input(1).(Receiver[B]).Process(v, Meta{TS: NoTimestamp}); err != nil {
			t.Fatal(err)
		}
	}
}

func markAll[B, T, R any](t *rapid.T, h *harness[T, R], ts int64) {
	h.watermark(ts)
	for _, i := range h.tasks {
		if err := i.op.Input(1).(Receiver[B]).Watermark(ts); err != nil {
			t.Fatal(err)
		}
	}
}

var (
	ruleState  = MapStateDescriptor[string, command]{"rules"}
	countState = MapStateDescriptor[int64, int64]{"counts"}
)

// ruled keeps rules and counts as broadcast state, and a sum per key; "reset" and "halve" go over the keys.
type ruled struct {
	sum  ValueState[int64]
	seen MapState[string, int64]
}

func (f *ruled) Open(rt *RuntimeContext[string]) (err error) {
	if f.sum, err = rt.ValueState[int64]("sum"); err != nil {
		return err
	}
	f.seen, err = rt.MapState[string, int64]("seen")
	return err
}

func (f *ruled) Close() error { return nil }

func (f *ruled) ProcessElement(ctx *KeyedReadOnlyContext[string], c command, out *Collector[string]) error {
	rules, err := ctx.BroadcastState(ruleState)
	if err != nil {
		return err
	}
	counts, err := ctx.BroadcastState(countState)
	if err != nil {
		return err
	}
	sum, _, err := f.sum.Value()
	if err != nil {
		return err
	}
	rule, found := rules.Get(c.Sub)
	n, _ := counts.Get(rule.V)
	sum += c.V + rule.V
	if err := f.sum.Update(sum); err != nil {
		return err
	}
	if err := f.seen.Put(c.Sub, sum); err != nil {
		return err
	}
	out.Collect(fmt.Sprintf("%s %d %v %d %d", c.Key, sum, found, n, rules.Len()))
	return ctx.RegisterEventTimeTimer(time.UnixMilli(1000 + c.V))
}

func (f *ruled) OnTimer(ctx *KeyedReadOnlyContext[string], tm Timer, out *Collector[string]) error {
	rules, err := ctx.BroadcastState(ruleState)
	if err != nil {
		return err
	}
	sum, _, err := f.sum.Value()
	n := 0
	for sub, rule := range rules.All() {
		if rule.Sub == sub {
			n++
		}
	}
	out.Collect(fmt.Sprintf("timer %s %d %d %d", ctx.Key(), tm.At.UnixMilli(), sum, n))
	return err
}

func (f *ruled) ProcessBroadcastElement(ctx *KeyedBroadcastContext[string], c command, out *Collector[string]) error {
	rules, err := ctx.BroadcastState(ruleState)
	if err != nil {
		return err
	}
	counts, err := ctx.BroadcastState(countState)
	if err != nil {
		return err
	}
	switch c.Op {
	case "put":
		rules.Put(c.Sub, c)
		n, _ := counts.Get(c.V)
		counts.Put(c.V, n+1)
	case "remove":
		rules.Remove(c.Sub)
	case "clear":
		rules.Clear()
	case "reset":
		return ctx.ApplyToKeyedState(f.sum, func(_ string, s ValueState[int64]) error { return s.Clear() })
	case "halve":
		return ctx.ApplyToKeyedState(f.sum, func(key string, s ValueState[int64]) error {
			v, found, err := s.Value()
			if err != nil || !found {
				return cmp.Or(err, fmt.Errorf("key %q has no sum", key))
			}
			return s.Update(v / 2)
		})
	case "tell":
		return ctx.ApplyToKeyedState(f.seen, func(key string, s MapState[string, int64]) error {
			keys, err := s.Keys()
			slices.Sort(keys)
			out.Collect(key + " " + strings.Join(keys, ","))
			return err
		})
	}
	return nil
}

// A function over a keyed and a broadcast stream sees in each subtask what one plain program would see, over restarts.
func TestKeyedBroadcastAgainstModel(t *testing.T) {
	for _, backend := range backends {
		t.Run(backend, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				f := KeyedBroadcastProcess(commandKey(t), []BroadcastDescriptor{ruleState, countState}, func() KeyedBroadcastProcessFunction[string, command, command, string] { return &ruled{} })
				h := newHarness[command, string](t, f, backend, rapid.IntRange(1, 4).Draw(rt, "parallelism"), commandKey(t).NewHash())
				defer h.close()
				rules, counts, sums := map[string]command{}, map[int64]int64{}, map[string]int64{}
				seen, timers := map[string]map[string]bool{}, map[string]map[int64]bool{}
				expect := func(what any, want ...string) {
					got := h.take()
					slices.Sort(got)
					slices.Sort(want)
					if !slices.Equal(got, want) {
						rt.Fatalf("%+v: got %q, want %q", what, got, want)
					}
				}
				for range rapid.IntRange(1, 60).Draw(rt, "steps") {
					c := command{Key: fmt.Sprint("k", rapid.IntRange(0, 5).Draw(rt, "key")), Sub: fmt.Sprint("r", rapid.IntRange(0, 3).Draw(rt, "sub")), V: rapid.Int64Range(-9, 9).Draw(rt, "v")}
					switch rapid.IntRange(0, 9).Draw(rt, "what") {
					case 0:
						h.restart(rapid.IntRange(1, 4).Draw(rt, "to"), rapid.Bool().Draw(rt, "canonical"))
					case 1, 2, 3:
						c.Op = rapid.SampledFrom([]string{"put", "put", "put", "remove", "clear", "reset", "halve", "tell"}).Draw(rt, "op")
						toAll(rt, h, c)
						var want []string
						switch c.Op {
						case "put":
							rules[c.Sub] = c
							counts[c.V]++
						case "remove":
							delete(rules, c.Sub)
						case "clear":
							clear(rules)
						case "reset":
							clear(sums)
						case "halve":
							for k := range sums {
								sums[k] /= 2
							}
						case "tell":
							for k, m := range seen {
								want = append(want, k+" "+strings.Join(slices.Sorted(maps.Keys(m)), ","))
							}
						}
						expect(c, want...)
					default:
						h.process(c, NoTimestamp)
						rule, found := rules[c.Sub]
						sums[c.Key] += c.V + rule.V
						if seen[c.Key] == nil {
							seen[c.Key], timers[c.Key] = map[string]bool{}, map[int64]bool{}
						}
						seen[c.Key][c.Sub], timers[c.Key][1000+c.V] = true, true
						expect(c, fmt.Sprintf("%s %d %v %d %d", c.Key, sums[c.Key], found, counts[rule.V], len(rules)))
					}
				}
				markAll[command](rt, h, 5000)
				var want []string
				for k, m := range timers {
					for at := range m {
						want = append(want, fmt.Sprintf("timer %s %d %d %d", k, at, sums[k], len(rules)))
					}
				}
				expect("timers", want...)
			})
		})
	}
}

// plainRules counts records by rule, without keys.
type plainRules struct{}

func (plainRules) Open(*TaskContext) error { return nil }
func (plainRules) Close() error            { return nil }

func (plainRules) ProcessElement(ctx *ReadOnlyContext, c command, out *Collector[string]) error {
	rules, err := ctx.BroadcastState(ruleState)
	if err != nil {
		return err
	}
	rule, found := rules.Get(c.Sub)
	out.Collect(fmt.Sprint(c.Sub, found, rule.V))
	return nil
}

func (plainRules) ProcessBroadcastElement(ctx *BroadcastContext, c command, _ *Collector[string]) error {
	rules, err := ctx.BroadcastState(ruleState)
	if err == nil {
		rules.Put(c.Sub, c)
	}
	return err
}

// Broadcast state is in a checkpoint once, whatever the parallelism, and every subtask has it after a restore, however often.
func TestBroadcastStateIsStoredOnce(t *testing.T) {
	f := BroadcastProcess([]BroadcastDescriptor{ruleState}, func() BroadcastProcessFunction[command, command, string] { return plainRules{} })
	h := newHarness[command, string](t, f, "hashmap", 4, commandKey(t).NewHash())
	defer h.close()
	for i := range 10 {
		for _, task := range h.tasks {
			if err := task.op.Input(1).(Receiver[command]).Process(command{Sub: fmt.Sprint(i), V: int64(i)}, Meta{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, p := range []int{2, 4, 4, 1, 3} {
		n := 0
		for _, task := range h.tasks {
			s, err := task.op.Snapshot(Barrier{ID: 1})
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range s.Lists {
				if l.Name == "user-rules" {
					n += len(l.Items)
					if l.Mode != metadata.Union {
						t.Fatalf("mode %v", l.Mode)
					}
				}
			}
		}
		if n != 10 {
			t.Fatalf("%d entries are stored by %d subtasks, want 10", n, len(h.tasks))
		}
		h.restart(p, true)
		for _, task := range h.tasks {
			if err := task.in.Process(command{Sub: "7"}, Meta{}); err != nil {
				t.Fatal(err)
			}
			if got := task.out.take(); !slices.Equal(got, []string{"7true 7"}) {
				t.Fatalf("got %q", got)
			}
		}
	}
}

func TestBroadcastMistakes(t *testing.T) {
	run := func(ds ...BroadcastDescriptor) error {
		f := BroadcastProcess(ds, func() BroadcastProcessFunction[command, command, string] { return plainRules{} })
		ctx := &Context{Services: &services{}, Name: "op", Parallelism: 1, MaxParallelism: 128, Mark: &Marker{}, Metrics: noMetrics{}}
		op, err := f.New(ctx, Receiver[string](&sink[string]{}))
		if err != nil {
			t.Fatal(err)
		}
		if err := op.Open(t.Context()); err != nil {
			return err
		}
		return op.Input(1).(Receiver[command]).Process(command{}, Meta{})
	}
	for want, err := range map[string]error{
		`"rules" is not among the descriptors`:         run(countState),
		`"rules" has other types than the descriptor`:  run(MapStateDescriptor[string, int64]{"rules"}),
		`broadcast state "x": value: serde: `:          run(MapStateDescriptor[string, chan int]{"x"}),
		`broadcast state "x": key: serde: `:            run(MapStateDescriptor[*string, int]{"x"}),
		`is opened as broadcast state of string to op`: run(ruleState, MapStateDescriptor[string, int64]{"rules"}),
	} {
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(want, "descriptor") && !strings.Contains(err.Error(), "asked for at broadcast_test.go:") {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// buffered keeps records in memory, puts them into a list at each checkpoint, and emits them at "flush".
type buffered struct {
	held  []string
	list  ListState[string]
	union ListState[int64]
	told  []string
	n     int64
}

func (f *buffered) Open(rt *TaskContext) (err error) {
	if f.list, err = rt.ListState[string]("held"); err != nil {
		return err
	}
	if f.union, err = rt.UnionListState[int64]("counts"); err != nil {
		return err
	}
	if f.held, err = f.list.Get(); err != nil {
		return err
	}
	f.held = slices.Clone(f.held)
	counts, err := f.union.Get()
	for _, n := range counts {
		if rt.Subtask() == 0 {
			f.n += n
		}
	}
	return err
}

func (f *buffered) ProcessElement(_ *ProcessContext, c command, out *Collector[string]) error {
	switch c.Op {
	case "flush":
		for _, s := range f.held {
			out.Collect(s)
		}
		f.held = nil
	case "count":
		out.Collect(fmt.Sprint(f.n))
	default:
		f.held = append(f.held, c.Sub)
		f.n++
	}
	return nil
}

func (f *buffered) Close() error { return nil }

func (f *buffered) SnapshotState(int64) error {
	if err := f.list.Update(f.held); err != nil {
		return err
	}
	return f.union.Update([]int64{f.n})
}

func (f *buffered) NotifyCheckpointComplete(id int64) error {
	f.told = append(f.told, fmt.Sprint("complete ", id))
	return nil
}

func (f *buffered) NotifyCheckpointAborted(id int64) error {
	f.told = append(f.told, fmt.Sprint("aborted ", id))
	return nil
}

// List state goes to exactly one subtask each, union list state to all, whatever the parallelism becomes.
func TestOperatorListsAgainstModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		f := Process(func() ProcessFunction[command, string] { return &buffered{} })
		h := newHarness[command, string](t, f, "hashmap", rapid.IntRange(1, 4).Draw(rt, "parallelism"), commandKey(t).NewHash())
		defer h.close()
		var held []string
		total := 0
		all := func(op string) []string {
			for _, i := range h.tasks {
				if err := i.in.Process(command{Op: op}, Meta{}); err != nil {
					rt.Fatal(err)
				}
			}
			got := h.take()
			slices.Sort(got)
			return got
		}
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			switch rapid.IntRange(0, 5).Draw(rt, "what") {
			case 0:
				h.restart(rapid.IntRange(1, 4).Draw(rt, "to"), rapid.Bool().Draw(rt, "canonical"))
			case 1:
				if got := all("flush"); !slices.Equal(got, slices.Sorted(slices.Values(held))) {
					rt.Fatalf("held %q, want %q", got, held)
				}
				held = nil
			default:
				s := fmt.Sprint(total)
				total++
				held = append(held, s)
				h.process(command{Key: s, Sub: s}, NoTimestamp)
			}
		}
		sum := 0
		for _, s := range all("count") {
			var n int
			if _, err := fmt.Sscan(s, &n); err != nil {
				rt.Fatal(err)
			}
			sum += n
		}
		if sum != total {
			rt.Fatalf("counted %d, want %d", sum, total)
		}
	})
}

func TestCheckpointNotices(t *testing.T) {
	fn := &buffered{}
	h := newHarness[command, string](t, Process(func() ProcessFunction[command, string] { return fn }), "hashmap", 1, commandKey(t).NewHash())
	defer h.close()
	if err := h.tasks[0].op.CheckpointComplete(3); err != nil {
		t.Fatal(err)
	}
	h.tasks[0].op.CheckpointAborted(4)
	if !slices.Equal(fn.told, []string{"complete 3", "aborted 4"}) {
		t.Fatalf("told %q", fn.told)
	}
}

type widened struct{ open func(rt *TaskContext) error }

func (w *widened) Open(rt *TaskContext) error                                        { return w.open(rt) }
func (w *widened) ProcessElement(*ProcessContext, command, *Collector[string]) error { return nil }
func (w *widened) Close() error                                                      { return nil }

// Operator state of an earlier version is read, or refused with the reason.
func TestOperatorStateEvolution(t *testing.T) {
	type v1 struct{ A int64 }
	type v2 struct {
		B string
		A int64
	}
	var open func(rt *TaskContext) error
	f := Process(func() ProcessFunction[command, string] { return &widened{open: open} })
	var l1 ListState[v1]
	open = func(rt *TaskContext) (err error) { l1, err = rt.ListState[v1]("x"); return err }
	h := newHarness[command, string](t, f, "hashmap", 1, commandKey(t).NewHash())
	defer h.close()
	if err := l1.AddAll([]v1{{1}, {2}}); err != nil {
		t.Fatal(err)
	}
	snap, err := h.tasks[0].op.Snapshot(Barrier{ID: 1})
	if err != nil {
		t.Fatal(err)
	}
	try := func(fn func(rt *TaskContext) error) error {
		open = fn
		ctx := &Context{Services: &services{}, Name: "op", Parallelism: 1, MaxParallelism: 128, Mark: &Marker{}, Metrics: noMetrics{}, State: metadata.Subtask{Lists: snap.Lists}}
		op, err := f.New(ctx, Receiver[string](&sink[string]{}))
		if err != nil {
			t.Fatal(err)
		}
		return op.Open(t.Context())
	}
	if err := try(func(rt *TaskContext) error {
		l, err := rt.ListState[v2]("x")
		if err != nil {
			return err
		}
		if got, _ := l.Get(); !slices.Equal(got, []v2{{"", 1}, {"", 2}}) {
			return fmt.Errorf("got %+v", got)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for want, fn := range map[string]func(rt *TaskContext) error{
		`stored as list state and is opened as union list state at broadcast_test.go`: func(rt *TaskContext) error { return second(rt.UnionListState[v1]("x")) },
		`stored operator.v1, now int64`:                                               func(rt *TaskContext) error { return second(rt.ListState[int64]("x")) },
		`is opened as broadcast state`:                                                func(rt *TaskContext) error { return second(rt.BroadcastState[string, v1]("x")) },
	} {
		if err := try(fn); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// keyless uses keyed state where there is no key.
type keyless struct {
	ruled
	opts []StateOption
	v    ValueState[int64]
	l    ListState[int64]
	m    MapState[string, int64]
	errs []error
}

func (f *keyless) try() {
	f.errs = append(f.errs, second(first(f.v.Value())), f.v.Update(1), f.v.Clear(), second(f.l.Get()), f.l.Add(1), f.l.Clear(), f.l.Update([]int64{1}),
		second(first(f.m.Get("x"))), f.m.Put("x", 1), f.m.Remove("x"), f.m.Clear(), second(f.m.IsEmpty()), second(f.m.Keys()))
}

func first[A, B any](a A, _ B, err error) (A, error) { return a, err }

func (f *keyless) Open(rt *RuntimeContext[string]) error {
	var errs [3]error
	f.v, errs[0] = rt.ValueState[int64]("v", f.opts...)
	f.l, errs[1] = rt.ListState[int64]("l", f.opts...)
	f.m, errs[2] = rt.MapState[string, int64]("m", f.opts...)
	f.try()
	return errors.Join(errs[:]...)
}

func (f *keyless) SnapshotState(int64) error { f.try(); return nil }

func (f *keyless) ProcessBroadcastElement(*KeyedBroadcastContext[string], command, *Collector[string]) error {
	f.try()
	return nil
}

func (f *keyless) ProcessElement(*KeyedReadOnlyContext[string], command, *Collector[string]) error {
	return f.v.Update(1)
}

// Keyed state where there is no key is an error, not the state of the key before.
func TestNoCurrentKey(t *testing.T) {
	for _, opts := range [][]StateOption{nil, {WithTTL(StateTTLConfig{TTL: time.Minute})}} {
		fn := &keyless{opts: opts}
		h := newHarness[command, string](t, KeyedBroadcastProcess(commandKey(t), nil, func() KeyedBroadcastProcessFunction[string, command, command, string] { return fn }),
			"hashmap", 1, commandKey(t).NewHash())
		h.process(command{Key: "k"}, NoTimestamp)
		if err := h.tasks[0].op.Input(1).(Receiver[command]).Process(command{}, Meta{}); err != nil {
			t.Fatal(err)
		}
		h.process(command{Key: "k"}, NoTimestamp)
		if _, err := h.tasks[0].op.Snapshot(Barrier{ID: 1}); err != nil {
			t.Fatal(err)
		}
		if len(fn.errs) != 3*13 {
			t.Fatalf("%d uses", len(fn.errs))
		}
		for i, err := range fn.errs {
			if !errors.Is(err, errNoKey) || !strings.Contains(err.Error(), "state used at broadcast_test.go:") {
				t.Errorf("use %d: %v", i%13, err)
			}
		}
		h.close()
	}
}

// ringer registers timers in the past and for the same time twice, and tells what its context says.
type ringer struct{ tag OutputTag[string] }

func (r *ringer) Open(*RuntimeContext[string]) error { return nil }
func (r *ringer) Close() error                       { return nil }

func (r *ringer) ProcessElement(ctx *KeyedContext[string], c command, _ *Collector[string]) error {
	at := time.UnixMilli(c.V)
	switch c.Op {
	case "event":
		return cmp.Or(ctx.RegisterEventTimeTimer(at), ctx.RegisterEventTimeTimer(at))
	case "event-":
		return ctx.DeleteEventTimeTimer(at)
	case "proc-":
		return ctx.DeleteProcessingTimeTimer(at)
	}
	return cmp.Or(ctx.RegisterProcessingTimeTimer(at), ctx.RegisterProcessingTimeTimer(at))
}

func (r *ringer) OnTimer(ctx *KeyedContext[string], tm Timer, out *Collector[string]) error {
	at, ok := ctx.Timestamp()
	mark, _ := ctx.Watermark()
	s := fmt.Sprintf("%s %d %v at %d %v wm %d now %d", ctx.Key(), tm.At.UnixMilli(), tm.EventTime, at.UnixMilli(), ok, mark.UnixMilli(), ctx.ProcessingTime().UnixMilli())
	out.Collect(s)
	ctx.Output(r.tag, "side "+s)
	return nil
}

// Timers as in Flink: one for each key and time; in the past, they fire at the next watermark, or at once in processing time.
func TestTimerSemantics(t *testing.T) {
	for _, backend := range backends {
		tag := OutputTag[string]{"side"}
		h := newHarness[command, string](t, KeyedProcess(commandKey(t), func() KeyedProcessFunction[string, command, string] { return &ringer{tag} }), backend, 1, commandKey(t).NewHash())
		side := &sink[string]{}
		h.tasks[0].ctx.Side = map[string]any{"side": Receiver[string](side)}
		expect := func(want ...string) {
			t.Helper()
			if got := h.take(); !slices.Equal(got, want) {
				t.Fatalf("got %q, want %q", got, want)
			}
			for i := range want {
				want[i] = "side " + want[i]
			}
			if got := side.take(); !slices.Equal(got, want) {
				t.Fatalf("side output has %q, want %q", got, want)
			}
		}
		h.advance(50)
		h.watermark(100)
		h.process(command{"a", "event", "", 40}, 100)
		expect()
		h.watermark(101)
		expect("a 40 true at 40 true wm 101 now 50")
		h.process(command{"a", "proc", "", 30}, 100)
		expect()
		h.advance(50) // the task's loop looks for due timers before the next record
		expect("a 30 false at 30 true wm 101 now 50")
		for _, c := range []command{{"b", "event", "", 300}, {"a", "event", "", 200}, {"b", "proc", "", 90}, {"a", "proc", "", 80}, {"c", "event", "", 250}, {"c", "proc", "", 85}} {
			h.process(c, 100)
		}
		h.process(command{"c", "event-", "", 250}, 100)
		h.process(command{"c", "proc-", "", 85}, 100)
		h.advance(95)
		expect("a 80 false at 80 true wm 101 now 95", "b 90 false at 90 true wm 101 now 95")
		h.watermark(1000)
		expect("a 200 true at 200 true wm 1000 now 95", "b 300 true at 300 true wm 1000 now 95")
		h.close()
	}
}

// asyncWithList opens operator state in a function whose operator has lists of its own.
type asyncWithList struct{}

func (asyncWithList) Open(rt *TaskContext) error {
	l, err := rt.ListState[string]("x")
	if err != nil {
		return err
	}
	return l.Add("kept")
}

func (asyncWithList) Invoke(context.Context, int64) ([]string, error) { return nil, nil }
func (asyncWithList) Close() error                                    { return nil }

func TestAsyncFunctionKeepsOperatorState(t *testing.T) {
	ctx := &Context{Services: &services{}, Name: "op", Parallelism: 1, MaxParallelism: 128, Mark: &Marker{}, Metrics: noMetrics{}}
	op, err := AsyncWait(func() AsyncFunction[int64, string] { return asyncWithList{} }, AsyncOptions[string]{Timeout: time.Minute, Capacity: 1}).New(ctx, Receiver[string](&sink[string]{}))
	if err != nil {
		t.Fatal(err)
	}
	if err := op.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	s, err := op.Snapshot(Barrier{ID: 1})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(s.Lists, func(l metadata.ListState) bool { return l.Name == "user-x" && len(l.Items) == 1 }) {
		t.Fatalf("lists %+v", s.Lists)
	}
	if err := op.Close(); err != nil {
		t.Fatal(err)
	}
}
