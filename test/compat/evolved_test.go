package compat

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/connector/datagen"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/test/compat/ledger"
)

// account is ledger.Account of a later version: renamed, widened, optional, added with a default.
type account struct {
	Currency string  `thalweg:"default=EUR"`
	Count    int64   `thalweg:"alias=Orders"`
	Cents    float64 // was int32
	Last     *string
}

type total struct {
	Sum  int64
	N    int64 // was int32
	Rate float32
}

type totals struct{}

func (totals) Create() total             { return total{} }
func (totals) Add(t *total, cents int64) { t.N++; t.Sum += cents }
func (totals) Result(t total) int64      { return t.Sum }

type line struct {
	At      int64
	Account account
	Last    string
	Recent  []int64
	Items   int64
	Largest int64
	Sum     int64
}

// later is the Ledger of a later version.
type later struct {
	stream.NoTimers[string, line]
	account stream.ValueState[account]
	recent  stream.ListState[int64]
	items   stream.MapState[string, int64]
	largest stream.ReducingState[int64]
	total   stream.AggregatingState[int64, int64]
}

func (l *later) Open(rt *stream.RuntimeContext[string]) error {
	var errs [5]error
	l.account, errs[0] = rt.ValueState[account]("account")
	l.recent, errs[1] = rt.ListState[int64]("recent")
	l.items, errs[2] = rt.MapState[string, int64]("items")
	l.largest, errs[3] = rt.ReducingState("largest", func(a, b int64) int64 { return max(a, b) })
	l.total, errs[4] = rt.AggregatingState("total", totals{})
	return errors.Join(errs[:]...)
}

func (l *later) ProcessElement(_ *stream.KeyedContext[string], o ledger.Order, out *stream.Collector[line]) error {
	a, _, err1 := l.account.Value()
	a.Count, a.Cents, a.Last = a.Count+1, a.Cents+float64(o.Cents), &o.Item
	recent, err2 := l.recent.Get()
	recent = append(slices.Clone(recent), int64(o.Cents))
	recent = recent[max(len(recent)-3, 0):]
	items, _, err3 := l.items.Get(o.Item)
	err4 := errors.Join(l.account.Update(a), l.recent.Update(recent), l.items.Put(o.Item, items+1), l.largest.Add(int64(o.Cents)), l.total.Add(int64(o.Cents)))
	largest, _, err5 := l.largest.Get()
	sum, _, err6 := l.total.Get()
	out.Collect(line{At: o.At, Account: a, Last: o.Item, Recent: recent, Items: items + 1, Largest: largest, Sum: sum})
	return errors.Join(err1, err2, err3, err4, err5, err6)
}

// counter is an operator that the earlier version does not have.
type counter struct {
	stream.NoTimers[int64, line]
	n stream.ValueState[int64]
}

func (c *counter) Open(rt *stream.RuntimeContext[int64]) (err error) {
	c.n, err = rt.ValueState[int64]("n")
	return err
}

func (c *counter) ProcessElement(_ *stream.KeyedContext[int64], l line, out *stream.Collector[line]) error {
	n, _, err := c.n.Value()
	out.Collect(l)
	return errors.Join(err, c.n.Update(n+1))
}

func orders(env *stream.Environment) stream.KeyedStream[string, ledger.Order] {
	return env.FromSource(datagen.Source(ledger.Make, datagen.Count(ledger.Records), datagen.Splits(1)), stream.MonotonousTimestamps(func(o ledger.Order) time.Time { return time.UnixMilli(o.At) }), "orders").
		UID("orders").KeyBy(func(o ledger.Order) string { return o.User })
}

// evolved is the program of a later version: types have changed, the windows are gone, the map is a task of its own, an operator with state is new.
func evolved(env *stream.Environment, sink connector.Sink[line]) {
	orders(env).Process(func() stream.KeyedProcessFunction[string, ledger.Order, line] { return &later{} }).UID("ledger").
		Map(func(l line) line { return l }).UID("pass").DisableChaining().
		KeyBy(func(l line) int64 { return l.At % 7 }).Process(func() stream.KeyedProcessFunction[int64, line, line] { return &counter{} }).UID("counter").
		SinkTo(sink).UID("lines")
}

func TestALaterProgramGoesOn(t *testing.T) {
	want := replay()
	kept(t, func(t *testing.T, dir, backend string) {
		build := func(got *lines[line]) func(*stream.Environment) {
			return func(env *stream.Environment) { evolved(env, got) }
		}
		if err := run(t, dir, backend, build(&lines[line]{})); err == nil || !strings.Contains(err.Error(), `uid "windows"`) || !strings.Contains(err.Error(), "--allowNonRestoredState") {
			t.Fatalf("state without an operator: %v", err)
		}
		var got lines[line]
		if err := run(t, dir, backend, build(&got), "execution.state-recovery.ignore-unclaimed-state", "true"); err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(got.all, func(a, b line) int { return int(a.At - b.At) })
		first := ledger.Records - len(got.all)
		if first < 100 || len(got.all) < 100 {
			t.Fatalf("%d lines", len(got.all))
		}
		for i, l := range got.all {
			w := want.orders[first+i]
			recent := make([]int64, len(w.Recent))
			for k, c := range w.Recent {
				recent[k] = int64(c)
			}
			if l.Account.Currency != "EUR" || l.Account.Count != int64(w.Account.Orders) || l.Account.Cents != float64(w.Account.Cents) || l.Account.Last == nil || *l.Account.Last != w.Account.Last ||
				l.Items != int64(w.Items) || l.Largest != int64(w.Largest) || l.Sum != w.Sum || !slices.Equal(l.Recent, recent) {
				t.Fatalf("order %d\n got %+v\nwant %+v", first+i, l, w)
			}
		}
	})
}

// narrowed opens states as what they were not.
type narrowed struct{ stream.NoTimers[string, line] }

func (narrowed) Open(rt *stream.RuntimeContext[string]) error {
	_, err1 := rt.ValueState[struct{ Orders, Cents int16 }]("account")
	_, err2 := rt.MapState[string, string]("items")
	_, err3 := rt.ValueState[int32]("recent")
	return errors.Join(err1, err2, err3)
}

func (narrowed) ProcessElement(*stream.KeyedContext[string], ledger.Order, *stream.Collector[line]) error {
	return errors.New("a record was processed")
}

func TestAProgramThatDoesNotFitIsRefused(t *testing.T) {
	kept(t, func(t *testing.T, dir, backend string) {
		err := run(t, dir, backend, func(env *stream.Environment) {
			orders(env).Process(func() stream.KeyedProcessFunction[string, ledger.Order, line] { return narrowed{} }).UID("ledger").SinkTo(&lines[line]{}).UID("lines")
		}, "execution.state-recovery.ignore-unclaimed-state", "true")
		for _, w := range []string{"Orders: stored int32, now int16", "Cents: stored int32, now int16", `state "items"`, "stored int32, now string", `state "recent"`} {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%v lacks %q", err, w)
			}
		}
		if err != nil && strings.Contains(err.Error(), "a record was processed") {
			t.Error(err)
		}
	})
}
