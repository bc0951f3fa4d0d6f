// Package blackhole is a sink that drops records and counts them. Layer L1.
package blackhole

import (
	"context"
	"sync/atomic"

	"github.com/thalweg/thalweg/connector"
)

// Sink drops records. Each of counts, which many sinks may share, counts them.
func Sink[T any](counts ...*atomic.Int64) connector.Sink[T] { return sink[T]{counts} }

type sink[T any] struct{ counts []*atomic.Int64 }

func (s sink[T]) Writer(_ connector.SinkContext, _ [][]byte) (connector.SinkWriter[T], error) {
	return &writer[T]{counts: s.counts}, nil
}

type writer[T any] struct {
	n      int64
	counts []*atomic.Int64
}

func (w *writer[T]) Write(T, int64) error { return w.drop(1) }

// WriteBatch implements connector.BatchWriter.
func (w *writer[T]) WriteBatch(vs []T, _ []int64) error { return w.drop(len(vs)) }

func (w *writer[T]) drop(n int) error {
	w.n += int64(n)
	if w.n >= 1024 {
		w.publish()
	}
	return nil
}

func (w *writer[T]) publish() {
	for _, c := range w.counts {
		c.Add(w.n)
	}
	w.n = 0
}

func (w *writer[T]) Flush(context.Context, bool) error {
	w.publish()
	return nil
}

func (w *writer[T]) Snapshot(int64) ([][]byte, error) { return nil, nil }

func (w *writer[T]) Close() error {
	w.publish()
	return nil
}
