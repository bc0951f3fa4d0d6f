package operator

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"pgregory.net/rapid"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/internal/extsort"
	"github.com/thalweg/thalweg/serde"
)

// scripted is a source whose reader emits what a test says, each step as one batch or record by record.
type scripted struct {
	batches [][]element[int64]
	asBatch []bool
}

func (s *scripted) Boundedness() connector.Boundedness { return connector.Bounded }
func (s *scripted) Enumerator(connector.EnumeratorContext, []byte) (connector.Enumerator, error) {
	return nil, nil
}
func (s *scripted) Reader(connector.ReaderContext) (connector.Reader[int64], error) { return s, nil }
func (s *scripted) Start(context.Context) error                                     { return nil }
func (s *scripted) AddSplits([]connector.Split) error                               { return nil }
func (s *scripted) NoMoreSplits()                                                   {}
func (s *scripted) Available() <-chan struct{}                                      { return make(chan struct{}) }
func (s *scripted) Snapshot(int64) ([]connector.Split, error)                       { return nil, nil }
func (s *scripted) CheckpointComplete(context.Context, int64) error                 { return nil }
func (s *scripted) CheckpointAborted(int64)                                         {}
func (s *scripted) Close() error                                                    { return nil }

func (s *scripted) Poll(out connector.Output[int64], _ int) (connector.Status, error) {
	if len(s.batches) == 0 {
		return connector.EndOfInput, nil
	}
	es, batch := s.batches[0], s.asBatch[0]
	s.batches, s.asBatch = s.batches[1:], s.asBatch[1:]
	split := out.Split("s")
	if !batch {
		for _, e := range es {
			if err := split.Collect(e.v, e.ts); err != nil {
				return 0, err
			}
		}
		return connector.MoreAvailable, nil
	}
	var vs, ts []int64
	timed := false
	for _, e := range es {
		vs, ts = append(vs, e.v), append(ts, e.ts)
		timed = timed || e.ts != NoTimestamp
	}
	if !timed {
		ts = nil
	}
	return connector.MoreAvailable, split.(connector.BatchOutput[int64]).CollectBatch(vs, ts)
}

// batchWriter is a sink's writer that takes both.
type batchWriter struct {
	sink[int64]
	batches int
}

func (w *batchWriter) Write(v, ts int64) error { return w.Process(v, Meta{TS: ts}) }
func (w *batchWriter) WriteBatch(vs, ts []int64) error {
	w.batches++
	return (&oneByOne[int64]{&w.sink}).ProcessBatch(vs, ts)
}
func (w *batchWriter) Flush(context.Context, bool) error   { return nil }
func (w *batchWriter) Snapshot(int64) ([][]byte, error)    { return nil, nil }
func (w *batchWriter) Close() error                        { return nil }
func (w *batchWriter) writer() connector.SinkWriter[int64] { return w }
func (w *batchWriter) onlyRecords() connector.SinkWriter[int64] {
	return struct{ connector.SinkWriter[int64] }{w}
}

type writerSink struct{ w connector.SinkWriter[int64] }

func (s writerSink) Writer(connector.SinkContext, [][]byte) (connector.SinkWriter[int64], error) {
	return s.w, nil
}

// TestBatchesEqualRecords: however the records of a source are batched, and whether the operators and the sink take batches or not, each
// sees the same records with the same times in the same order, and the source emits the same watermark.
func TestBatchesEqualRecords(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		src := &scripted{}
		var want []element[int64]
		extract := rapid.Bool().Draw(rt, "times from the records")
		wm := Watermarks[int64]{}
		if extract {
			wm.Time = func(v, ts int64) int64 { return v*10 + ts%7 }
		}
		latest := MinWatermark
		for range rapid.IntRange(0, 12).Draw(rt, "batches") {
			var es []element[int64]
			timed := rapid.Bool().Draw(rt, "timed")
			for range rapid.IntRange(0, 9).Draw(rt, "records") {
				e := element[int64]{v: rapid.Int64Range(0, 50).Draw(rt, "v"), ts: NoTimestamp}
				if timed && rapid.Bool().Draw(rt, "with time") {
					e.ts = rapid.Int64Range(0, 100).Draw(rt, "ts")
				}
				es = append(es, e)
				if extract {
					e.ts = wm.Time(e.v, e.ts)
				}
				latest = max(latest, e.ts)
				if e.v++; e.v%3 != 0 { // what the chain below does
					e.v *= 2
					want = append(want, e)
				}
			}
			src.batches = append(src.batches, es)
			src.asBatch = append(src.asBatch, rapid.Bool().Draw(rt, "as batch"))
		}
		w := &batchWriter{}
		writer := w.writer()
		if rapid.Bool().Draw(rt, "sink of records") {
			writer = w.onlyRecords()
		}
		ops := []Factory{Source(src, wm), Update(func(v *int64) { *v++ }), FilterRef(func(v *int64) bool { return *v%3 != 0 }),
			Update(func(v *int64) { *v *= 2 }), Sink[int64](writerSink{writer})}
		if rapid.Bool().Draw(rt, "records in between") {
			ops[2] = Filter(func(v int64) bool { return v%3 != 0 })
		} else if rapid.Bool().Draw(rt, "results of their own") {
			ops[2] = FilterMap(func(v, r *int64) bool { *r = *v; return *v%3 != 0 })
		}
		var made []Operator
		var out any
		for i := len(ops) - 1; i >= 0; i-- {
			ctx := &Context{Services: &services{}, Name: "op", Parallelism: 1, MaxParallelism: 128, Config: config.Configuration{}, Logger: zerolog.Nop(),
				Metrics: noMetrics{}, Mark: &Marker{}, Index: i}
			op, err := ops[i].New(ctx, out)
			if err != nil {
				rt.Fatal(err)
			}
			if err := op.Open(context.Background()); err != nil {
				rt.Fatal(err)
			}
			made, out = append(made, op), op.Input(0)
		}
		head := made[len(made)-1].(SourceHead)
		for {
			st, err := head.Poll(100)
			if err != nil {
				rt.Fatal(err)
			}
			if st == connector.EndOfInput {
				break
			}
		}
		if !slices.Equal(w.got, want) {
			rt.Fatalf("the sink got %v, want %v", w.got, want)
		}
		if got := head.(*sourceOp).splits["s"]; got != nil && got.max != latest {
			rt.Fatalf("highest event time %d, want %d", got.max, latest)
		}
	})
}

// TestWatermarkOfTheEarliestTimes: an event time that has no room below it for the out-of-orderness holds event time at its beginning.
func TestWatermarkOfTheEarliestTimes(t *testing.T) {
	for _, c := range []struct{ ts, want int64 }{
		{MinWatermark + 1, MinWatermark}, {MinWatermark + 10, MinWatermark}, {MinWatermark + 11, MinWatermark}, {MinWatermark + 12, MinWatermark + 1}, {5, -6},
	} {
		out := &sink[int64]{}
		src := &scripted{batches: [][]element[int64]{{{v: 1, ts: c.ts}}}, asBatch: []bool{false}}
		ctx := &Context{Services: &services{}, Name: "op", Parallelism: 1, MaxParallelism: 128, Config: config.Configuration{}, Logger: zerolog.Nop(), Metrics: noMetrics{}, Mark: &Marker{}}
		op, err := Source(src, Watermarks[int64]{Enabled: true, OutOfOrder: 10}).New(ctx, Receiver[int64](out))
		if err != nil {
			t.Fatal(err)
		}
		if err := op.Open(context.Background()); err != nil {
			t.Fatal(err)
		}
		head := op.(*sourceOp)
		if _, err := head.Poll(10); err != nil {
			t.Fatal(err)
		}
		if err := head.advance(0); err != nil {
			t.Fatal(err)
		}
		got := MinWatermark
		for _, e := range out.got {
			if e.mark {
				got = e.ts
			}
		}
		if got != c.want {
			t.Errorf("event time %d: watermark %d, want %d", c.ts, got, c.want)
		}
	}
}

// TestTeeOfBatches: each of several receivers gets the records as they came, whichever of them take batches and change them.
func TestTeeOfBatches(t *testing.T) {
	context := func() *Context {
		return &Context{Services: &services{}, Name: "op", Parallelism: 1, MaxParallelism: 128, Config: config.Configuration{}, Logger: zerolog.Nop(), Metrics: noMetrics{}, Mark: &Marker{}}
	}
	rapid.Check(t, func(rt *rapid.T) {
		var outs []any
		var sinks []*sink[int64]
		var factors []int64
		for range rapid.IntRange(2, 4).Draw(rt, "receivers") {
			s := &sink[int64]{}
			sinks = append(sinks, s)
			factor := int64(1)
			var f Factory
			switch rapid.IntRange(0, 2).Draw(rt, "kind") {
			case 0:
				outs, factors = append(outs, Receiver[int64](s)), append(factors, factor)
				continue
			case 1:
				factor = 2
				f = Update(func(v *int64) { *v *= 2 })
			case 2:
				factor = 3
				f = FilterMap(func(v, r *int64) bool { *r = *v * 3; return true })
			}
			op, err := f.New(context(), Receiver[int64](s))
			if err != nil {
				rt.Fatal(err)
			}
			outs, factors = append(outs, op.Input(0)), append(factors, factor)
		}
		typ, err := TypeOf[int64]()
		if err != nil {
			rt.Fatal(err)
		}
		all, err := typ.Tee(outs)
		if err != nil {
			rt.Fatal(err)
		}
		var want []element[int64]
		for range rapid.IntRange(1, 4).Draw(rt, "batches") {
			vs := rapid.SliceOfN(rapid.Int64Range(-100, 100), 1, 6).Draw(rt, "records")
			var ts []int64
			if rapid.Bool().Draw(rt, "timed") {
				ts = rapid.SliceOfN(rapid.Int64Range(0, 100), len(vs), len(vs)).Draw(rt, "times")
			}
			for i, v := range vs {
				want = append(want, element[int64]{v: v, ts: timeOf(ts, i)})
			}
			if rapid.Bool().Draw(rt, "one by one") {
				err = (&oneByOne[int64]{all.(Receiver[int64])}).ProcessBatch(vs, ts)
			} else {
				err = inBatches(all.(Receiver[int64])).ProcessBatch(vs, ts)
			}
			if err != nil {
				rt.Fatal(err)
			}
		}
		for i, s := range sinks {
			for n := range min(len(s.got), len(want)) {
				if e := want[n]; s.got[n] != (element[int64]{v: e.v * factors[i], ts: e.ts}) {
					rt.Fatalf("receiver %d got %v of %v", i, s.got, want)
				}
			}
			if len(s.got) != len(want) {
				rt.Fatalf("receiver %d got %d of %d", i, len(s.got), len(want))
			}
		}
	})
}

// An input that cannot be sorted, since its disk takes no more, is told of with the operator that it is of and the line of its call.
func TestSortThatFailsNamesItsOperator(t *testing.T) {
	typ, err := TypeOf[int64]()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "file") // no folder can be made in it
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	sel := KeySelector[int64, int64]{Fn: func(v int64) int64 { return v }, Codec: serde.Must[int64]()}
	ctx := &Context{Name: "sums", CallSite: "job.go:7", Parallelism: 1, Mark: &Marker{}}
	r, err := typ.SortedReader(Receiver[int64](&sink[int64]{}), 1, sel, ctx, extsort.Config{Dir: filepath.Join(file, "sort"), Memory: 1})
	if err != nil {
		t.Fatal(err)
	}
	g := r.(*sortedReader).gather.(*reader[int64])
	for v := int64(0); err == nil && v < 1000; v++ {
		err = g.dst.Process(v, Meta{TS: v})
	}
	if want := "operator sums at job.go:7, subtask 1/1: sort the input: extsort: "; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}
