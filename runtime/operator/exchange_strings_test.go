package operator

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/network"
)

type letter struct {
	N        int64
	From, To string
	Body     []byte
}

func letterOf(n int64) letter {
	return letter{n, fmt.Sprint("from-", n), strings.Repeat("t", int(n%50)), []byte(fmt.Sprint("body of ", n))}
}

// TestReceivedStringsStayAsTheyAre keeps every string and slice that comes over an exchange, as a user's function may, and looks at them when
// all buffers have been through: over a connection and within a process.
func TestReceivedStringsStayAsTheyAre(t *testing.T) {
	for _, remote := range []bool{false, true} {
		t.Run(fmt.Sprintf("remote=%t", remote), func(t *testing.T) {
			const n = 20_000
			var kept []letter
			exchangeAll(t, remote, n, letterOf, collect[letter](func(v letter) { kept = append(kept, v) }))
			if len(kept) != n {
				t.Fatalf("%d records came, %d were sent", len(kept), n)
			}
			for i, v := range kept {
				if w := letterOf(int64(i)); v.N != w.N || v.From != w.From || v.To != w.To || !slices.Equal(v.Body, w.Body) {
					t.Fatalf("record %d is %+v, want %+v", i, v, w)
				}
			}
		})
	}
}

// BenchmarkExchange is a record from a task to one of another worker, over a connection: encoded, decoded, and dropped.
func BenchmarkExchange(b *testing.B) {
	b.Run("numbers", func(b *testing.B) {
		benchExchange(b, func(n int64) [24]int64 { return [24]int64{n} })
	})
	b.Run("strings", func(b *testing.B) {
		type order struct {
			ID, Cents            int64
			Customer, City, Note string
		}
		note := strings.Repeat("n", 146)
		benchExchange(b, func(n int64) order { return order{n, 4999, "customer-1234567", "Amsterdam", note} })
	})
}

func benchExchange[T any](b *testing.B, record func(int64) T) {
	b.ReportAllocs()
	n := 0
	b.SetBytes(200)
	b.ResetTimer()
	exchangeAll(b, true, int64(b.N), record, collect[T](func(T) { n++ }))
	b.StopTimer()
	if n != b.N {
		b.Fatalf("%d records came, %d were sent", n, b.N)
	}
}

// collect is a Receiver.
type collect[T any] func(T)

func (f collect[T]) Process(v T, _ Meta) error { f(v); return nil }
func (collect[T]) Watermark(int64) error       { return nil }
func (collect[T]) Idle(bool) error             { return nil }

// exchangeAll sends n records through an exchange as tasks do, with a small buffer where it is a test.
func exchangeAll[T any](tb testing.TB, remote bool, n int64, record func(int64) T, to Receiver[T]) {
	ctx, cfg := tb.Context(), network.Config{}
	if _, bench := tb.(*testing.B); !bench {
		cfg.BufferSize = 1024
	}
	must := func(err error) {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
	}
	from := network.New(cfg, zerolog.Nop())
	defer func() { must(from.Close()) }()
	into, source := from, network.Source{}
	if remote {
		into = network.New(cfg, zerolog.Nop())
		defer func() { must(into.Close()) }()
		var err error
		source.Address, err = from.Listen(ctx, "127.0.0.1:0")
		must(err)
	}
	part, err := from.NewPartition(ctx, network.PartitionID{}, 1)
	must(err)
	wake := newWake()
	gate, err := into.NewGate(ctx, []network.Source{source}, wake.notify)
	must(err)
	defer gate.Close()
	typ, err := TypeOf[T]()
	must(err)
	gate.SetRecycle(!typ.Views())
	w, err := typ.Writer(part, 1, 0, 128, graph.Forward, nil, false)
	must(err)
	r, err := typ.Reader(to, 1)
	must(err)
	written := newResult()
	go func() { written <- send(part, w.(Receiver[T]), n, record) }()
	for {
		item, ok, err := gate.Poll()
		must(err)
		if !ok {
			wake.wait(ctx)
			continue
		}
		if item.Event.Kind == network.EndOfPartition {
			break
		}
		_, err = r.Read(0, item.Data)
		must(err)
		gate.Release(item)
	}
	must(<-written)
}

func newResult() chan error { return make(chan error, 1) }

func send[T any](part *network.Partition, w Receiver[T], n int64, record func(int64) T) error {
	defer part.Close()
	for i := range n {
		if err := w.Process(record(i), Meta{TS: i}); err != nil {
			return err
		}
	}
	return part.Finish()
}

// wake is a gate's notification.
type wake chan struct{}

func newWake() wake { return make(wake, 1) }

func (w wake) notify() {
	select {
	case w <- struct{}{}:
	default:
	}
}

func (w wake) wait(ctx context.Context) {
	select {
	case <-w:
	case <-ctx.Done():
	}
}
