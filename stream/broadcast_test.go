package stream

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/thalweg/thalweg/connector/datagen"
)

// price is a broadcast record: what a product costs.
type price struct {
	Product string
	Cents   int64
}

type sale struct {
	ID      int64
	Shop    string
	Product string
}

var prices = NewMapStateDescriptor[string, int64]("prices")

// pricing joins sales with prices; sales of products without one wait in list state, by shop.
type pricing struct {
	waiting ListState[sale]
	total   AggregatingState[int64, int64]
}

func (p *pricing) Open(rt *RuntimeContext[string]) (err error) {
	if p.waiting, err = rt.ListState[sale]("waiting"); err != nil {
		return err
	}
	p.total, err = rt.AggregatingState("total", Sum(func(v int64) int64 { return v }))
	return err
}

func (p *pricing) ProcessElement(ctx *KeyedReadOnlyContext[string], s sale, out *Collector[string]) error {
	known, err := ctx.BroadcastState(prices)
	if err != nil {
		return err
	}
	if cents, ok := known.Get(s.Product); ok {
		return p.sell(s, cents, out)
	}
	return p.waiting.Add(s)
}

func (p *pricing) sell(s sale, cents int64, out *Collector[string]) error {
	out.Collect(fmt.Sprintf("%d %s %d", s.ID, s.Shop, cents))
	return p.total.Add(cents)
}

func (p *pricing) ProcessBroadcastElement(ctx *KeyedBroadcastContext[string], v price, out *Collector[string]) error {
	known, err := ctx.BroadcastState(prices)
	if err != nil {
		return err
	}
	known.Put(v.Product, v.Cents)
	return ctx.ApplyToKeyedState(p.waiting, func(_ string, l ListState[sale]) error {
		sales, err := l.Get()
		if err != nil {
			return err
		}
		rest := slices.DeleteFunc(slices.Clone(sales), func(s sale) bool { return s.Product == v.Product })
		for _, s := range sales {
			if s.Product == v.Product {
				if err := p.sell(s, v.Cents, out); err != nil {
					return err
				}
			}
		}
		return l.Update(rest)
	})
}

func (p *pricing) OnTimer(*KeyedReadOnlyContext[string], Timer, *Collector[string]) error { return nil }
func (p *pricing) Close() error                                                           { return nil }

// marking is the same without keys: it says whether a sale came after the price.
type marking struct{ Plain }

func (marking) ProcessElement(ctx *ReadOnlyContext, s sale, out *Collector[string]) error {
	known, err := ctx.BroadcastState(prices)
	out.Collect(fmt.Sprint(s.ID, known.Contains(s.Product)))
	return err
}

func (marking) ProcessBroadcastElement(ctx *BroadcastContext, v price, _ *Collector[string]) error {
	known, err := ctx.BroadcastState(prices)
	if err == nil {
		known.Put(v.Product, v.Cents)
	}
	return err
}

// TestBroadcastState joins each sale with its price, whichever comes first, and each subtask sees every price.
func TestBroadcastState(t *testing.T) {
	const n = 200
	for _, backend := range []string{"hashmap", "pebble"} {
		for _, p := range []string{"1", "3"} {
			t.Run(backend+" parallelism "+p, func(t *testing.T) {
				out, marked := &collect[string]{}, &collect[string]{}
				conf := map[string]string{"parallelism.default": p, "state.backend.type": backend, "execution.checkpointing.interval": "20 ms"}
				err := runJob(t, conf, func(env *Environment) error {
					product := func(n int64) string { return fmt.Sprint("p", n%7) }
					sales := env.FromSource(datagen.Source(func(n int64) sale { return sale{n, fmt.Sprint("shop-", n%5), product(n)} }, datagen.Count(n)), NoWatermarks[sale](), "sales")
					list := env.FromSource(datagen.Source(func(n int64) price { return price{product(n), 100 + n} }, datagen.Count(7)), NoWatermarks[price](), "prices").
						BroadcastState(prices)
					sales.KeyBy(func(s sale) string { return s.Shop }).ConnectBroadcast(list).
						Process(func() KeyedBroadcastProcessFunction[string, sale, price, string] { return &pricing{} }).UID("pricing").SinkTo(out)
					sales.ConnectBroadcast(list).Process(func() BroadcastProcessFunction[sale, price, string] { return marking{} }).UID("marking").SinkTo(marked)
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				var want []string
				for i := range int64(n) {
					want = append(want, fmt.Sprintf("%d shop-%d %d", i, i%5, 100+i%7))
				}
				slices.Sort(want)
				if got := sorted(out); !slices.Equal(got, want) {
					t.Fatalf("got %d records %.300v, want %d", len(got), got, len(want))
				}
				if len(marked.got) != n {
					t.Fatalf("%d records came out of the function without keys, want %d", len(marked.got), n)
				}
			})
		}
	}
}

func TestBroadcastMistakes(t *testing.T) {
	err := runJob(t, nil, func(env *Environment) error {
		s := env.FromCollection[int64](1)
		s.BroadcastState(NewMapStateDescriptor[string, chan int]("a"), NewMapStateDescriptor[string, int]("b"), NewMapStateDescriptor[int, int]("b"))
		s.BroadcastState(NewMapStateDescriptor[*int, int]("c"), NewMapStateDescriptor[int, int](""))
		s.SinkTo(&collect[int64]{})
		return nil
	})
	if err == nil || strings.Count(err.Error(), "broadcast_test.go:") != 4 || !strings.Contains(err.Error(), `two states are named "b"`) {
		t.Fatalf("got %v, want four mistakes with their places", err)
	}
}
