package operator

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/config"
)

// assign opens an AssignWatermarks operator with an interval of 100 ms.
func assign(t *testing.T, wm Watermarks[int64]) (Receiver[int64], *sink[int64], *services) {
	t.Helper()
	svc, out := &services{}, &sink[int64]{}
	ctx := &Context{Services: svc, Name: "op", Parallelism: 1, MaxParallelism: 128, Logger: zerolog.Nop(), Metrics: noMetrics{}, Mark: &Marker{},
		Config: config.Configuration{"pipeline.auto-watermark-interval": "100 ms"}}
	op, err := AssignWatermarks(wm).New(ctx, Receiver[int64](out))
	if err != nil {
		t.Fatal(err)
	}
	if err := op.Open(context.Background()); err != nil {
		t.Fatal(err)
	}
	return op.Input(0).(Receiver[int64]), out, svc
}

func TestAssignedWatermarksReplaceThoseThatCome(t *testing.T) {
	in, out, svc := assign(t, Watermarks[int64]{Enabled: true, OutOfOrder: 5, Time: func(v, _ int64) int64 { return v * 10 }})
	for _, v := range []int64{3, 1, 7} {
		if err := in.Process(v, Meta{TS: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if err := in.Watermark(1000); err != nil {
		t.Fatal(err)
	}
	svc.advance(t, 100)
	if err := in.Watermark(MaxWatermark); err != nil {
		t.Fatal(err)
	}
	want := []element[int64]{{3, 30, false}, {1, 10, false}, {7, 70, false}, {0, 64, true}, {0, MaxWatermark, true}}
	if !slices.Equal(out.got, want) {
		t.Fatalf("got %v, want %v", out.got, want)
	}
}

// A time out of range fails the task, also in a batch, and nothing is emitted after it; a batch of nothing has none.
func TestTimeOutOfRange(t *testing.T) {
	start := func() (BatchReceiver[int64], *sink[int64]) {
		in, out, _ := assign(t, Watermarks[int64]{Time: func(v, _ int64) int64 {
			if ms, ok := Millis(time.Unix(v, 0)); ok {
				return ms
			}
			return TimeOutOfRange
		}})
		return in.(BatchReceiver[int64]), out
	}
	for _, v := range []int64{1 << 60, -1 << 60, math.MaxInt64/1000 + 1, math.MinInt64/1000 - 1} {
		in, out := start()
		if err := in.Process(v, Meta{}); !errors.Is(err, errOutOfRange) {
			t.Errorf("%d: got %v", v, err)
		}
		if err := in.Process(1, Meta{}); !errors.Is(err, errOutOfRange) || len(out.got) != 0 {
			t.Errorf("after %d: got %v, %v", v, out.got, err)
		}
		in, _ = start()
		if err := in.ProcessBatch([]int64{1, v}, nil); !errors.Is(err, errOutOfRange) {
			t.Errorf("%d in a batch: got %v", v, err)
		}
	}
	in, out := start()
	if err := in.ProcessBatch(nil, nil); err != nil {
		t.Fatal(err)
	}
	if err := in.Process(math.MaxInt64/1000, Meta{}); err != nil || len(out.got) != 1 || out.got[0].ts != math.MaxInt64/1000*1000 {
		t.Errorf("the last second: got %v, %v", out.got, err)
	}
}

// punctuated emits a watermark at each negative record; periodic counts its calls.
type punctuated struct{ periodic int }

func (p *punctuated) OnEvent(v, _ int64, out *GeneratorOutput) {
	if v < 0 {
		out.Emit(-v)
	}
}
func (p *punctuated) OnPeriodic(*GeneratorOutput) { p.periodic++ }

func TestPunctuatedWatermarksFollowTheirRecordAtOnce(t *testing.T) {
	g := &punctuated{}
	in, out, svc := assign(t, Watermarks[int64]{Enabled: true, Generator: func() Generator[int64] { return g }})
	for _, v := range []int64{1, -5, 2, -4, -9} {
		if err := in.Process(v, Meta{TS: v}); err != nil {
			t.Fatal(err)
		}
	}
	want := []element[int64]{{1, 1, false}, {-5, -5, false}, {0, 5, true}, {2, 2, false}, {-4, -4, false}, {-9, -9, false}, {0, 9, true}}
	if !slices.Equal(out.got, want) {
		t.Fatalf("got %v, want %v", out.got, want)
	}
	svc.advance(t, 350)
	if g.periodic < 1 || g.periodic > 4 {
		t.Fatalf("OnPeriodic ran %d times in 350 ms, each 100 ms", g.periodic)
	}
}

// TestIdlenessDoesNotRunWhileHeldUp: a stream that had no records because what follows held the task up is not idle.
func TestIdlenessDoesNotRunWhileHeldUp(t *testing.T) {
	idle := func(blocked int64) bool {
		in, _, svc := assign(t, Watermarks[int64]{Enabled: true, Idleness: 1000})
		if err := in.Process(1, Meta{TS: 1}); err != nil {
			t.Fatal(err)
		}
		svc.advance(t, 100)
		svc.blocked = blocked
		svc.advance(t, 2000)
		return in.(*assignIn[int64]).p.idle
	}
	if !idle(0) {
		t.Error("a stream without records for 1.9 s, with an idleness of 1 s, is not idle")
	}
	if idle(1500) {
		t.Error("a stream that was held up for 1.5 of 1.9 s, with an idleness of 1 s, is idle")
	}
}

// Event time does not know the time of the day: a clock that is set back an hour stops no watermarks, and one that is set forward makes no
// stream idle.
func TestWatermarksWhenTheClockIsSet(t *testing.T) {
	for _, by := range []int64{-3_600_000, 3_600_000} {
		in, out, svc := assign(t, Watermarks[int64]{Enabled: true, Idleness: 1000})
		svc.advance(t, 50)
		if err := in.Process(1, Meta{TS: 1}); err != nil {
			t.Fatal(err)
		}
		svc.advance(t, 150)
		svc.set(t, by)
		svc.advance(t, svc.now+100)
		if in.(*assignIn[int64]).p.idle {
			t.Errorf("the clock is set by %d ms: the stream is idle 250 ms after a record, with an idleness of 1 s", by)
		}
		if err := in.Process(7, Meta{TS: 7}); err != nil {
			t.Fatal(err)
		}
		svc.advance(t, svc.now+100)
		if last := out.got[len(out.got)-1]; !last.mark || last.ts != 6 {
			t.Errorf("the clock is set by %d ms: no watermark 100 ms after a record: %v", by, out.got)
		}
		svc.advance(t, svc.now+2000)
		if !in.(*assignIn[int64]).p.idle {
			t.Errorf("the clock is set by %d ms: the stream is not idle after 2 s without records", by)
		}
	}
}
