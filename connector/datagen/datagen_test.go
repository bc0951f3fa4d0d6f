package datagen_test

import (
	"math"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/connector/blackhole"
	"github.com/thalweg/thalweg/connector/connectortest"
	"github.com/thalweg/thalweg/connector/datagen"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	var want []string
	for i := range 1000 {
		want = append(want, strconv.Itoa(i))
	}
	connectortest.TestSource(t, connectortest.SourceSuite[int64]{
		New: func() connector.Source[int64] {
			return datagen.Source(func(n int64) int64 { return n }, datagen.Count(1000), datagen.Splits(3))
		},
		Key:     func(n int64) string { return strconv.FormatInt(n, 10) },
		Want:    want,
		Ordered: func(a, b int64) bool { return a < b },
	})
}

func TestTimestampsAndRate(t *testing.T) {
	begin := time.Now()
	r := connectortest.StartSource(t, datagen.WithTimestamps(func(n int64) (int64, int64) { return n, 10 * n },
		datagen.Count(100), datagen.RatePerSecond(1000)), 2, nil)
	r.Until("the end", r.Ended)
	// A lower bound only: the 100th record is due 0.1 s after the start.
	if d := time.Since(begin); d < 90*time.Millisecond {
		t.Fatalf("100 records at 1000/s took %v", d)
	}
	for _, rec := range r.Records {
		if rec.Timestamp != 10*rec.Value {
			t.Fatalf("record %+v", rec)
		}
	}
}

// A rate above all that the source can reach does not slow it down, and one that is infinite is none.
func TestLargeRates(t *testing.T) {
	for _, rate := range []float64{1e18, 1e20, 1e300, math.MaxFloat64, math.Inf(1)} {
		r := connectortest.StartSource(t, datagen.Source(func(n int64) int64 { return n }, datagen.Count(2000), datagen.RatePerSecond(rate), datagen.Splits(2)), 1, nil)
		r.Until("the end", r.Ended)
		r.Close()
		if len(r.Records) != 2000 {
			t.Errorf("rate %v: %d records", rate, len(r.Records))
		}
	}
}

// A source without Count has no end; each of its splits gives records, at any parallelism.
func TestEndless(t *testing.T) {
	for _, splits := range []int{1, 2, 3} {
		r := connectortest.StartSource(t, datagen.Source(func(n int64) int64 { return n }, datagen.Splits(splits)), 1, nil)
		r.Until("records of each split", func() bool {
			seen := map[int64]bool{}
			for _, v := range r.Values() {
				seen[v%int64(splits)] = true
			}
			return len(seen) == splits
		})
		r.Close()
	}
}

func TestFaults(t *testing.T) {
	err := datagen.Source(func(n int64) int64 { return n }, datagen.Count(-1), datagen.RatePerSecond(0), datagen.Splits(0)).(connector.Validator).Validate()
	if err == nil {
		t.Fatal("no error")
	}
}

type record struct {
	Key   uint64
	Value int64
	At    int64
	Pad   [9]uint64
}

type pipe struct {
	w connector.SinkWriter[record]
}

func (p *pipe) Collect(v record, ts int64) error           { return p.w.Write(v, ts) }
func (p *pipe) Split(string) connector.SplitOutput[record] { return p }
func (p *pipe) ReleaseSplit(string)                        {}

type noContext struct{ connector.EnumeratorContext }

// BenchmarkToBlackhole is the cost of the generator and the blackhole alone.
func BenchmarkToBlackhole(b *testing.B) {
	var n atomic.Int64
	w, err := blackhole.Sink[record](&n).Writer(connector.SinkContext{}, nil)
	if err != nil {
		b.Fatal(err)
	}
	src := datagen.WithTimestamps(func(n int64) (record, int64) { return record{Key: uint64(n), Value: n, At: n}, n })
	r, err := src.Reader(connector.ReaderContext{Parallelism: 1})
	if err != nil {
		b.Fatal(err)
	}
	ctx := &assign{}
	e, err := src.Enumerator(ctx, nil)
	if err != nil {
		b.Fatal(err)
	}
	e.AddReader(0)
	if err := r.AddSplits(ctx.splits); err != nil {
		b.Fatal(err)
	}
	p := &pipe{w}
	b.ReportAllocs()
	b.ResetTimer()
	for done := 0; done < b.N; {
		c := min(1000, b.N-done)
		if _, err := r.Poll(p, c); err != nil {
			b.Fatal(err)
		}
		done += c
	}
}

type assign struct {
	noContext
	splits []connector.Split
}

func (a *assign) Parallelism() int                        { return 1 }
func (a *assign) Assign(_ int, splits ...connector.Split) { a.splits = append(a.splits, splits...) }
func (a *assign) NoMoreSplits(int)                        {}
