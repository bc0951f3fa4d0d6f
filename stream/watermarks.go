package stream

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/thalweg/thalweg/runtime/operator"
)

// MaxWatermark is what Watermark of a context returns when the input is over: event time has ended. Source: Flink Watermark.MAX_WATERMARK.
var MaxWatermark = time.UnixMilli(operator.MaxWatermark).UTC()

// WatermarkStrategy says how a source's records get their event time and how its watermarks are made. Each split of a source (a Kafka
// partition) has a watermark of its own; the source's is the least of those that are not idle.
type WatermarkStrategy[T any] struct {
	w    operator.Watermarks[T]
	text string
	errs []error // mistakes, told where the strategy is used
}

// BoundedOutOfOrderness is for records that are at most maxDelay behind the latest one. at gives a record's event time; nil keeps the
// source's own (a Kafka record's timestamp), or in AssignTimestampsAndWatermarks the one that the record has; so do Flink's strategies without
// a timestamp assigner. A time beyond 64-bit milliseconds since 1970 fails the job, and so does the zero time.Time, that of a field that is not set.
func BoundedOutOfOrderness[T any](maxDelay time.Duration, at func(T) time.Time) WatermarkStrategy[T] {
	s := WatermarkStrategy[T]{w: operator.Watermarks[T]{Enabled: true, OutOfOrder: maxDelay.Milliseconds(), Time: timeOf(at)}, text: fmt.Sprintf("BoundedOutOfOrderness(%v)", maxDelay)}
	if maxDelay < 0 {
		s.errs = append(s.errs, fmt.Errorf("BoundedOutOfOrderness: the delay is %v: it must not be negative", maxDelay))
	}
	return s
}

// MonotonousTimestamps is for records in the order of their event times, split by split. at is as in BoundedOutOfOrderness.
func MonotonousTimestamps[T any](at func(T) time.Time) WatermarkStrategy[T] {
	s := BoundedOutOfOrderness(0, at)
	s.text = "MonotonousTimestamps"
	return s
}

// NoWatermarks is for jobs without event time; records keep the source's own time.
func NoWatermarks[T any]() WatermarkStrategy[T] { return WatermarkStrategy[T]{text: "NoWatermarks"} }

// WatermarkGenerator makes the watermarks of one split from its records. Source: Flink WatermarkGenerator.
type WatermarkGenerator[T any] interface {
	// OnEvent runs after each record; a watermark that is emitted here (punctuated) takes effect at once.
	OnEvent(v T, at time.Time, out WatermarkOutput)
	// OnPeriodicEmit runs each pipeline.auto-watermark-interval.
	OnPeriodicEmit(out WatermarkOutput)
}

// WatermarkOutput takes the watermarks of a generator.
type WatermarkOutput struct{ o *operator.GeneratorOutput }

// EmitWatermark says that no record with an event time of at or before will follow. It ends idleness; a time before the last one changes
// nothing.
func (w WatermarkOutput) EmitWatermark(at time.Time) {
	ms, _ := operator.Millis(at)
	w.o.Emit(ms)
}

// MarkIdle says that the split holds the watermark back no longer, until the next EmitWatermark.
func (w WatermarkOutput) MarkIdle() { w.o.MarkIdle() }

// ForGenerator is a strategy of your own; newGenerator makes a new generator at each call: one per split, and some that are
// only looked at. at is as in BoundedOutOfOrderness.
func ForGenerator[T any](newGenerator func() WatermarkGenerator[T], at func(T) time.Time) WatermarkStrategy[T] {
	w := operator.Watermarks[T]{Enabled: true, Time: timeOf(at), Generator: func() operator.Generator[T] { return generator[T]{newGenerator()} }}
	s := WatermarkStrategy[T]{w: w, text: "custom watermarks"}
	switch {
	case newGenerator == nil || operator.IsNil(newGenerator()):
		s.errs = append(s.errs, errors.New("ForGenerator: the function that makes the generators, or what it returns, is nil"))
	case sameInstance(newGenerator(), newGenerator()):
		s.errs = append(s.errs, fmt.Errorf("ForGenerator: %s: each split needs its own", oneInstance))
	}
	return s
}

type generator[T any] struct{ g WatermarkGenerator[T] }

func (g generator[T]) OnEvent(v T, ts int64, out *operator.GeneratorOutput) {
	g.g.OnEvent(v, time.UnixMilli(ts).UTC(), WatermarkOutput{out})
}

func (g generator[T]) OnPeriodic(out *operator.GeneratorOutput) {
	g.g.OnPeriodicEmit(WatermarkOutput{out})
}

func timeOf[T any](at func(T) time.Time) func(T, int64) int64 {
	if at == nil {
		return nil
	}
	return func(v T, _ int64) int64 {
		t := at(v)
		if t.IsZero() {
			return operator.ZeroTime
		}
		ms, ok := operator.Millis(t)
		if !ok {
			return operator.TimeOutOfRange
		}
		return ms
	}
}

// WithIdleness lets a split that had no record for d no longer hold the watermark back, until its next record. The time that the source is
// held up by what follows it does not count.
func (s WatermarkStrategy[T]) WithIdleness(d time.Duration) WatermarkStrategy[T] {
	s.w.Idleness = d.Milliseconds()
	s.text, s.errs = idle(d, s.text, s.errs)
	return s
}

func idle(d time.Duration, text string, errs []error) (string, []error) {
	if d < time.Millisecond {
		errs = append(slices.Clip(errs), fmt.Errorf("WithIdleness: %v: it must be 1 ms at least", d))
	}
	return text + fmt.Sprintf(" with idleness %v", d), errs
}

// WithWatermarkAlignment makes a source wait when its watermark is more than maxDrift ahead of the slowest source of its group, so that what joins
// or merges them need not keep what is ahead. Where the reader can pause single splits (Kafka can), splits are held one by one, also against
// each other in one source; a source alone in its group aligns its own splits and subtasks. Sources that are idle or at their end hold nobody
// back, and the time that a source is held does not count as idle. The sources report and hear each updateInterval, 1 second unless
// given. Source: Flink withWatermarkAlignment (FLIP-182, FLIP-217).
func (s WatermarkStrategy[T]) WithWatermarkAlignment(group string, maxDrift time.Duration, updateInterval ...time.Duration) WatermarkStrategy[T] {
	var err error
	if s.w.Alignment, err = align(s.w.Enabled, group, maxDrift, updateInterval); err != nil {
		s.errs = append(slices.Clip(s.errs), err)
	}
	s.text += fmt.Sprintf(" aligned in %s by %v", group, maxDrift)
	return s
}

func align(enabled bool, group string, maxDrift time.Duration, updateInterval []time.Duration) (a *operator.Alignment, err error) {
	every := time.Second
	if len(updateInterval) > 0 {
		every = updateInterval[0]
	}
	switch {
	case group == "":
		err = errors.New("WithWatermarkAlignment: the group has no name")
	case !enabled:
		err = errors.New("WithWatermarkAlignment: the source has no watermarks to align")
	case maxDrift < time.Millisecond:
		err = fmt.Errorf("WithWatermarkAlignment: the drift is %v: it must be 1 ms at least", maxDrift)
	case every < time.Millisecond || len(updateInterval) > 1:
		err = fmt.Errorf("WithWatermarkAlignment: update interval %v: give one, of 1 ms at least", updateInterval)
	}
	return &operator.Alignment{Group: group, Drift: maxDrift.Milliseconds(), Interval: every.Milliseconds()}, err
}

func (s WatermarkStrategy[T]) String() string { return s.text }

// AssignTimestampsAndWatermarks gives the records new event times and the stream new watermarks, in place of those it has. A strategy at
// the source is better where it is possible: it knows the source's splits.
func (s DataStream[T]) AssignTimestampsAndWatermarks[W interface{ WatermarkStrategy[T] }](strategy W) SingleOutputStreamOperator[T] {
	wm := WatermarkStrategy[T](strategy)
	s.f.env().strategy("", wm.text, wm.errs)
	if wm.w.Alignment != nil {
		s.f.env().mistake("watermark alignment is for sources: give the strategy to FromSource")
	}
	out := next[T](s.f, "watermarks", "Timestamps/Watermarks", operator.AssignWatermarks(wm.w))
	out.f.node.Detail = wm.text
	return out
}
