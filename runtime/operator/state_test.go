package operator

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/thalweg/thalweg/serde"
)

// command is a record that tells a function what to do with its state.
type command struct {
	Key string
	Op  string
	Sub string
	V   int64
}

func commandKey(t testing.TB) KeySelector[string, command] {
	t.Helper()
	c, err := serde.For[string]()
	if err != nil {
		t.Fatal(err)
	}
	return KeySelector[string, command]{Fn: func(c command) string { return c.Key }, Codec: c}
}

type mean struct {
	Sum, N int64
	Last   string
}

// meanOf is an aggregator with an accumulator of its own type.
type meanOf struct{}

func (meanOf) Create() mean           { return mean{} }
func (meanOf) Add(a *mean, c command) { a.Sum += c.V; a.N++; a.Last = c.Sub }
func (meanOf) Result(a mean) string   { return fmt.Sprint(a.Sum, "/", a.N, " ", a.Last) }

// commanded has a state of every kind and emits what reads return.
type commanded struct {
	opts  []StateOption
	value ValueState[string]
	list  ListState[string]
	m     MapState[string, int64]
	red   ReducingState[int64]
	agg   AggregatingState[command, string]
}

func (f *commanded) Open(rt *RuntimeContext[string]) error {
	var errs [5]error
	f.value, errs[0] = rt.ValueState[string]("value", f.opts...)
	f.list, errs[1] = rt.ListState[string]("list", f.opts...)
	f.m, errs[2] = rt.MapState[string, int64]("map", f.opts...)
	f.red, errs[3] = rt.ReducingState("red", func(a, b int64) int64 { return max(a, b) }, f.opts...)
	f.agg, errs[4] = rt.AggregatingState("agg", meanOf{}, f.opts...)
	return errors.Join(errs[:]...)
}

func (f *commanded) OnTimer(*KeyedContext[string], Timer, *Collector[string]) error { return nil }
func (f *commanded) Close() error                                                   { return nil }

func (f *commanded) ProcessElement(_ *KeyedContext[string], c command, out *Collector[string]) error {
	s, err := f.do(c)
	out.Collect(s)
	return err
}

func (f *commanded) do(c command) (string, error) {
	read := func(v any, found bool, err error) (string, error) { return fmt.Sprintf("%v %v", v, found), err }
	switch c.Op {
	case "value":
		v, found, err := f.value.Value()
		return read(v, found, err)
	case "value=":
		return "", f.value.Update(fmt.Sprint(c.Sub, c.V))
	case "value-":
		return "", f.value.Clear()
	case "list":
		l, err := f.list.Get()
		return strings.Join(l, ","), err
	case "list+":
		return "", f.list.Add(fmt.Sprint(c.Sub, c.V))
	case "list=":
		return "", f.list.Update(slices.Repeat([]string{c.Sub}, int(c.V&3)))
	case "list-":
		return "", f.list.Clear()
	case "map":
		v, found, err := f.m.Get(c.Sub)
		return read(v, found, err)
	case "map?":
		found, err := f.m.Contains(c.Sub)
		return fmt.Sprint(found), err
	case "map=":
		return "", f.m.Put(c.Sub, c.V)
	case "map-":
		return "", f.m.Remove(c.Sub)
	case "map--":
		return "", f.m.Clear()
	case "map0":
		empty, err := f.m.IsEmpty()
		return fmt.Sprint(empty), err
	case "map*": // what is odd is removed on the way
		var all []string
		err := f.m.ForEach(func(k string, v int64) error {
			all = append(all, fmt.Sprint(k, "=", v))
			if v%2 != 0 {
				return f.m.Remove(k)
			}
			return nil
		})
		slices.Sort(all)
		return strings.Join(all, ","), err
	case "red":
		v, found, err := f.red.Get()
		return read(v, found, err)
	case "red+":
		return "", f.red.Add(c.V)
	case "red-":
		return "", f.red.Clear()
	case "agg":
		v, found, err := f.agg.Get()
		return read(v, found, err)
	case "agg+":
		return "", f.agg.Add(c)
	case "agg-":
		return "", f.agg.Clear()
	}
	return "", fmt.Errorf("unknown %q", c.Op)
}

var commands = []string{"value", "value=", "value-", "list", "list+", "list+", "list+", "list=", "list-", "map", "map?", "map=", "map=", "map=", "map-", "map--", "map0", "map*",
	"red", "red+", "red-", "agg", "agg+", "agg-"}

// cell is a value of the model with its time.
type cell[V any] struct {
	v  V
	at int64
}

// naive is the model of one key's state.
type naive struct {
	ttl         int64 // 0: for ever
	onRead, all bool  // reads renew; reads return what has expired
	now         *int64
	value       *cell[string]
	list        []cell[string]
	m           map[string]*cell[int64]
	red         *cell[int64]
	agg         *cell[mean]
}

func (n *naive) dead(at int64) bool { return n.ttl > 0 && at+n.ttl <= *n.now }

// look is a read of a value.
func look[V any](n *naive, p **cell[V]) (v V, found bool) {
	c := *p
	if c == nil {
		return v, false
	}
	if n.dead(c.at) {
		*p = nil
		if n.all {
			return c.v, true
		}
		return v, false
	}
	if n.onRead {
		c.at = *n.now
	}
	return c.v, true
}

func (n *naive) do(c command) string {
	read := func(v any, found bool) string { return fmt.Sprintf("%v %v", v, found) }
	switch c.Op {
	case "value":
		return read(look(n, &n.value))
	case "value=":
		n.value = &cell[string]{fmt.Sprint(c.Sub, c.V), *n.now}
	case "value-":
		n.value = nil
	case "list":
		var shown []string
		var live []cell[string]
		for _, e := range n.list {
			if dead := n.dead(e.at); !dead || n.all {
				shown = append(shown, e.v)
				if dead {
					continue
				}
			} else {
				continue
			}
			live = append(live, e)
		}
		if len(live) == 0 {
			n.list = nil
		} else if n.onRead {
			for i := range live {
				live[i].at = *n.now
			}
			n.list = live
		}
		return strings.Join(shown, ",")
	case "list+":
		n.list = append(n.list, cell[string]{fmt.Sprint(c.Sub, c.V), *n.now})
	case "list=":
		n.list = nil
		for range c.V & 3 {
			n.list = append(n.list, cell[string]{c.Sub, *n.now})
		}
	case "list-":
		n.list = nil
	case "map", "map?":
		p := n.m[c.Sub]
		v, found := look(n, &p)
		if p == nil {
			delete(n.m, c.Sub)
		}
		if c.Op == "map?" {
			return fmt.Sprint(found)
		}
		return read(v, found)
	case "map=":
		n.m[c.Sub] = &cell[int64]{c.V, *n.now}
	case "map-":
		delete(n.m, c.Sub)
	case "map--":
		clear(n.m)
	case "map0":
		for _, p := range n.m {
			if !n.dead(p.at) || n.all {
				return "false"
			}
		}
		return "true"
	case "map*":
		var all []string
		for k, p := range n.m {
			v, found := look(n, &p)
			if p == nil || v%2 != 0 {
				delete(n.m, k)
			}
			if found {
				all = append(all, fmt.Sprint(k, "=", v))
			}
		}
		slices.Sort(all)
		return strings.Join(all, ",")
	case "red":
		return read(look(n, &n.red))
	case "red+":
		v := c.V
		if old, found := look(n, &n.red); found {
			v = max(v, old)
		}
		n.red = &cell[int64]{v, *n.now}
	case "red-":
		n.red = nil
	case "agg":
		v, found := look(n, &n.agg)
		if !found {
			return read("", false)
		}
		return read(meanOf{}.Result(v), true)
	case "agg+":
		if n.agg == nil || n.dead(n.agg.at) && !n.all {
			n.agg = &cell[mean]{}
		}
		meanOf{}.Add(&n.agg.v, c)
		n.agg.at = *n.now
	case "agg-":
		n.agg = nil
	}
	return ""
}

func drawTTL(t *rapid.T) *StateTTLConfig {
	c := &StateTTLConfig{TTL: time.Duration(rapid.IntRange(1, 30).Draw(t, "ttl")) * time.Millisecond,
		UpdateType: rapid.SampledFrom([]TTLUpdateType{OnCreateAndWrite, OnReadAndWrite}).Draw(t, "update"),
		Visibility: rapid.SampledFrom([]TTLVisibility{NeverReturnExpired, ReturnExpiredIfNotCleanedUp}).Draw(t, "visibility")}
	if c.Visibility == ReturnExpiredIfNotCleanedUp { // what is left of them is up to the clean-up
		c.DisableCleanupInBackground = true
		return c
	}
	c.CleanupFullSnapshot = rapid.Bool().Draw(t, "full")
	c.CleanupIncrementally = rapid.SampledFrom([]int{0, 0, 5, 100}).Draw(t, "incrementally")
	c.DisableCleanupInBackground = rapid.Bool().Draw(t, "no background")
	return c
}

// Every kind of state, with and without a time to live, does what plain variables do, over restarts at another parallelism.
func TestStateAgainstModel(t *testing.T) {
	for _, backend := range backends {
		for _, expires := range []bool{false, true} {
			t.Run(fmt.Sprint(backend, "/ttl=", expires), func(t *testing.T) {
				rapid.Check(t, func(rt *rapid.T) { testState(t, rt, backend, expires) })
			})
		}
	}
}

func testState(t *testing.T, rt *rapid.T, backend string, expires bool) {
	var opts []StateOption
	var c StateTTLConfig
	if expires {
		c = *drawTTL(rt)
		opts = append(opts, WithTTL(c))
	}
	f := KeyedProcess(commandKey(t), func() KeyedProcessFunction[string, command, string] { return &commanded{opts: opts} })
	h := newHarness[command, string](t, f, backend, rapid.IntRange(1, 4).Draw(rt, "parallelism"), commandKey(t).NewHash())
	defer h.close()
	model := map[string]*naive{}
	for range rapid.IntRange(1, 120).Draw(rt, "steps") {
		switch rapid.IntRange(0, 24).Draw(rt, "what") {
		case 0:
			h.restart(rapid.IntRange(1, 4).Draw(rt, "to"), rapid.Bool().Draw(rt, "canonical"))
			continue
		case 1, 2:
			h.advance(h.now + rapid.SampledFrom([]int64{1, 3, 10, 2000}).Draw(rt, "pass"))
			continue
		}
		cmd := command{fmt.Sprint("k", rapid.IntRange(0, 3).Draw(rt, "key")), rapid.SampledFrom(commands).Draw(rt, "op"),
			fmt.Sprint("s", rapid.IntRange(0, 5).Draw(rt, "sub")), rapid.Int64Range(-9, 9).Draw(rt, "v")}
		n := model[cmd.Key]
		if n == nil {
			n = &naive{ttl: c.TTL.Milliseconds(), onRead: c.UpdateType == OnReadAndWrite, all: c.Visibility == ReturnExpiredIfNotCleanedUp, now: &h.now, m: map[string]*cell[int64]{}}
			model[cmd.Key] = n
		}
		h.process(cmd, NoTimestamp)
		want := n.do(cmd)
		if got := h.take(); len(got) != 1 || got[0] != want {
			rt.Fatalf("%+v at %d: %q, want %q", cmd, h.now, got, want)
		}
	}
}

// A time to live may be added to state that is stored without, and taken away: values then count as accessed at the first restore with
// it, also when they are not touched for several checkpoints. Another one counts from the times that are stored (FLINK-32953).
func TestTTLOverRestores(t *testing.T) {
	for _, backend := range backends {
		for _, canonical := range []bool{false, true} {
			t.Run(fmt.Sprint(backend, "/canonical=", canonical), func(t *testing.T) {
				var opts []StateOption
				f := KeyedProcess(commandKey(t), func() KeyedProcessFunction[string, command, string] { return &commanded{opts: opts} })
				h := newHarness[command, string](t, f, backend, 2, commandKey(t).NewHash())
				defer h.close()
				do := func(op, want string) {
					t.Helper()
					h.process(command{"k", op, "s", 4}, NoTimestamp)
					if got := h.take(); len(got) != 1 || got[0] != want {
						t.Fatalf("%s at %d: %q, want %q", op, h.now, got, want)
					}
				}
				for _, op := range []string{"value=", "list+", "map=", "red+", "agg+"} {
					do(op, "")
				}
				there := func() {
					t.Helper()
					do("value", "s4 true")
					do("list", "s4")
					do("map", "4 true")
					do("red", "4 true")
					do("agg", "4/1 s true")
				}
				h.advance(1000)
				opts = []StateOption{WithTTL(StateTTLConfig{TTL: 100 * time.Millisecond, DisableCleanupInBackground: true})}
				for p := 1; p <= 3; p++ {
					h.restart(p, canonical)
					h.advance(1000 + 33*int64(p))
				}
				there()
				opts = nil
				h.restart(2, canonical)
				h.advance(5000)
				there()
				opts = []StateOption{WithTTL(StateTTLConfig{TTL: 100 * time.Millisecond, DisableCleanupInBackground: true})}
				h.restart(2, canonical)
				there()
				h.advance(5099)
				h.restart(3, canonical)
				there()
				opts = []StateOption{WithTTL(StateTTLConfig{TTL: 200 * time.Millisecond, DisableCleanupInBackground: true})}
				h.restart(2, canonical)
				h.advance(5199)
				there()
				h.advance(5200)
				h.restart(1, canonical)
				for op, want := range map[string]string{"value": " false", "list": "", "map": "0 false", "red": "0 false", "agg": " false"} {
					do(op, want)
				}
			})
		}
	}
}

// The clean-up in background removes what nobody reads.
func TestTTLCleanup(t *testing.T) {
	for _, backend := range backends {
		for name, c := range map[string]StateTTLConfig{"background": {}, "incrementally": {DisableCleanupInBackground: true, CleanupIncrementally: 10}} {
			t.Run(backend+"/"+name, func(t *testing.T) {
				c.TTL = 10 * time.Millisecond
				fn := &commanded{opts: []StateOption{WithTTL(c)}}
				f := KeyedProcess(commandKey(t), func() KeyedProcessFunction[string, command, string] { return fn })
				h := newHarness[command, string](t, f, backend, 1, commandKey(t).NewHash())
				defer h.close()
				for i := range 500 {
					for _, op := range []string{"value=", "list+", "map=", "red+", "agg+"} {
						h.process(command{fmt.Sprint("k", i), op, "s", 1}, NoTimestamp)
					}
				}
				h.advance(20)
				for range 10 {
					h.advance(h.now + 1000)
				}
				if c.CleanupIncrementally > 0 {
					for range 400 {
						for _, op := range []string{"value", "list", "map", "red", "agg"} {
							h.process(command{"other", op, "s", 1}, NoTimestamp)
						}
					}
				}
				for name, s := range map[string]KeyedState{"value": fn.value, "list": fn.list, "map": fn.m, "red": fn.red, "agg": fn.agg} {
					if keys, err := s.table().(keyLister[string]).keys(); err != nil || len(keys) > 0 {
						t.Errorf("%s: %d keys are left (%v)", name, len(keys), err)
					}
				}
			})
		}
	}
}

// opener opens states in Open.
type opener struct {
	commanded
	open func(rt *RuntimeContext[string]) error
}

func (o *opener) Open(rt *RuntimeContext[string]) error { return o.open(rt) }

func openError(t *testing.T, open func(rt *RuntimeContext[string]) error) error {
	t.Helper()
	ctx := &Context{Services: &services{}, Name: "op", Parallelism: 1, MaxParallelism: 128, Mark: &Marker{}, Metrics: noMetrics{}}
	op, err := KeyedProcess(commandKey(t), func() KeyedProcessFunction[string, command, string] { return &opener{open: open} }).New(ctx, Receiver[string](&sink[string]{}))
	if err != nil {
		t.Fatal(err)
	}
	err = op.Open(t.Context())
	return cmp.Or(err, op.Close())
}

func second[S any](_ S, err error) error { return err }

func TestStateMistakes(t *testing.T) {
	for want, open := range map[string]func(rt *RuntimeContext[string]) error{
		`state "x" is opened as ValueState[int64] at state_test.go:`: func(rt *RuntimeContext[string]) error {
			return errors.Join(second(rt.ValueState[int64]("x")), second(rt.ValueState[string]("x")))
		},
		`and as ListState[int64] at state_test.go:`: func(rt *RuntimeContext[string]) error {
			return errors.Join(second(rt.ValueState[[]int64]("x")), second(rt.ListState[int64]("x")))
		},
		`with other settings of its time to live`: func(rt *RuntimeContext[string]) error {
			return errors.Join(second(rt.MapState[string, int64]("x")), second(rt.MapState[string, int64]("x", WithTTL(StateTTLConfig{TTL: time.Second}))))
		},
		`time to live 0s is below a millisecond`: func(rt *RuntimeContext[string]) error {
			return second(rt.ValueState[int64]("x", WithTTL(StateTTLConfig{})))
		},
		`state "x", opened at state_test.go:`: func(rt *RuntimeContext[string]) error { return second(rt.ValueState[chan int]("x")) },
		`key: serde: `:                        func(rt *RuntimeContext[string]) error { return second(rt.MapState[*string, int64]("x")) },
		`and as union list state of int64 at`: func(rt *RuntimeContext[string]) error {
			return errors.Join(second(rt.TaskContext.ListState[int64]("x")), second(rt.UnionListState[int64]("x")))
		},
		`operator state "schemas", opened at state_test.go:`:               func(rt *RuntimeContext[string]) error { return second(rt.UnionListState[int64]("schemas")) },
		`a state has no name: ValueState[int64], opened at state_test.go:`: func(rt *RuntimeContext[string]) error { return second(rt.ValueState[int64]("")) },
	} {
		var fatal interface{ Fatal() bool }
		if err := openError(t, open); err == nil || !strings.Contains(err.Error(), want) || !errors.As(err, &fatal) || !fatal.Fatal() {
			t.Errorf("got %v, want %q, which no restart heals", err, want)
		}
	}
	if err := openError(t, func(rt *RuntimeContext[string]) error { // keyed and operator state have names of their own
		return errors.Join(second(rt.ValueState[int64]("x")), second(rt.ValueState[int64]("x")), second(rt.TaskContext.ListState[int64]("x")))
	}); err != nil {
		t.Error(err)
	}
}

// The hot paths of keyed state allocate nothing.
func TestStateAllocations(t *testing.T) {
	for _, backend := range backends {
		for _, opts := range [][]StateOption{nil, {WithTTL(StateTTLConfig{TTL: time.Hour, UpdateType: OnReadAndWrite})}} {
			fn := &commanded{opts: opts}
			f := KeyedProcess(commandKey(t), func() KeyedProcessFunction[string, command, string] { return fn })
			h := newHarness[command, string](t, f, backend, 1, commandKey(t).NewHash())
			for _, op := range []string{"value=", "map=", "red+", "agg+"} {
				h.process(command{"k", op, "s", 1}, NoTimestamp)
			}
			h.now++
			n := testing.AllocsPerRun(100, func() {
				h.tasks[0].svc.now++
				_, _, err1 := fn.value.Value()
				_, _, err2 := fn.m.Get("s")
				err3 := fn.m.Put("s", 2)
				err4 := fn.red.Add(5)
				if err := errors.Join(err1, err2, err3, err4); err != nil {
					t.Fatal(err)
				}
			})
			if n > 0 {
				t.Errorf("%s, %d options: %v allocations", backend, len(opts), n)
			}
			h.close()
		}
	}
}
