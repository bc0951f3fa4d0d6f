// Package tally is the sink of the throughput cases. Layer: bench; its Flink twin is thalweg.bench.Tally.
package tally

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/thalweg/thalweg/connector"
)

// Tally is what arrived at a sink: the number of records and the sum of their checksums, modulo 2^64.
type Tally struct{ Count, Sum int64 }

// Add adds a record's part.
func (t *Tally) Add(count, sum int64) {
	t.Count += count
	t.Sum += sum
}

// Read adds up what the sink of so many subtasks left in dir.
func Read(dir string, subtasks int) (Tally, error) {
	var all Tally
	for i := range subtasks {
		text, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("part-%d", i)))
		if err != nil {
			return all, fmt.Errorf("the sink left no tally: %w", err)
		}
		var t Tally
		if _, err := fmt.Sscan(string(text), &t.Count, &t.Sum); err != nil {
			return all, fmt.Errorf("the sink's tally %q: %w", text, err)
		}
		all.Add(t.Count, t.Sum)
	}
	return all, nil
}

// Sink drops records and keeps their number and a checksum, which it writes to Dir/part-N at the end of the input, so that a run that lost
// or made up records is void.
type Sink[T any] struct {
	Dir string // "" to write nothing
	Sum func(*T) int64
	// Count is how many records one counts for; nil for one each.
	Count func(*T) int64
}

// Writer implements connector.Sink.
func (s Sink[T]) Writer(ctx connector.SinkContext, _ [][]byte) (connector.SinkWriter[T], error) {
	return &writer[T]{Sink: s, subtask: ctx.Subtask}, nil
}

type writer[T any] struct {
	Sink[T]
	Tally   Tally
	subtask int
	v       [1]T // the record, when it came by value: on the heap once, not each time
}

func (w *writer[T]) Write(v T, _ int64) error {
	w.v[0] = v
	return w.WriteBatch(w.v[:], nil)
}

func (w *writer[T]) WriteBatch(vs []T, _ []int64) error {
	if w.Count == nil {
		w.Tally.Count += int64(len(vs))
	} else {
		for i := range vs {
			w.Tally.Count += w.Count(&vs[i])
		}
	}
	for i := range vs {
		w.Tally.Sum += w.Sum(&vs[i])
	}
	return nil
}

func (w *writer[T]) Flush(_ context.Context, endOfInput bool) error {
	if !endOfInput || w.Dir == "" {
		return nil
	}
	path := filepath.Join(w.Dir, fmt.Sprintf("part-%d", w.subtask))
	if err := os.WriteFile(path, fmt.Appendf(nil, "%d %d\n", w.Tally.Count, w.Tally.Sum), 0o644); err != nil {
		return fmt.Errorf("write the tally: %w", err)
	}
	return nil
}

func (w *writer[T]) Snapshot(int64) ([][]byte, error) { return nil, nil }
func (w *writer[T]) Close() error                     { return nil }
