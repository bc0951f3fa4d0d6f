package stream

import (
	"fmt"
	"time"

	"github.com/thalweg/thalweg/runtime/operator"
)

// WatermarkStrategy says how a source's records get their event time and how its watermarks are made. Each split of a source (a Kafka
// partition) has a watermark of its own; the source's is the least of those that are not idle.
type WatermarkStrategy[T any] struct {
	w    operator.Watermarks[T]
	text string
}

// BoundedOutOfOrderness is for records that are at most maxDelay behind the latest one. at gives a record's event time; nil keeps the
// source's own (a Kafka record's timestamp).
func BoundedOutOfOrderness[T any](maxDelay time.Duration, at func(T) time.Time) WatermarkStrategy[T] {
	w := operator.Watermarks[T]{Enabled: true, OutOfOrder: maxDelay.Milliseconds()}
	if at != nil {
		w.Time = func(v T, _ int64) int64 { return at(v).UnixMilli() }
	}
	return WatermarkStrategy[T]{w, fmt.Sprintf("BoundedOutOfOrderness(%v)", maxDelay)}
}

// MonotonousTimestamps is for records in the order of their event times, split by split.
func MonotonousTimestamps[T any](at func(T) time.Time) WatermarkStrategy[T] {
	s := BoundedOutOfOrderness(0, at)
	s.text = "MonotonousTimestamps"
	return s
}

// NoWatermarks is for jobs without event time; records keep the source's own time.
func NoWatermarks[T any]() WatermarkStrategy[T] { return WatermarkStrategy[T]{text: "NoWatermarks"} }

// WithIdleness lets a split that had no record for d no longer hold the watermark back, until its next record.
func (s WatermarkStrategy[T]) WithIdleness(d time.Duration) WatermarkStrategy[T] {
	s.w.Idleness = d.Milliseconds()
	s.text += fmt.Sprintf(" with idleness %v", d)
	return s
}

func (s WatermarkStrategy[T]) String() string                     { return s.text }
func (s WatermarkStrategy[T]) watermarks() operator.Watermarks[T] { return s.w }
