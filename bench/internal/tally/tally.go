// Package tally is the sink of the throughput cases. Layer: bench; its Flink twin is thalweg.bench.Tally.
package tally

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

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
	// Progress also writes the number of records to Dir/progress-N each 50 ms, for those who follow a run.
	Progress bool
}

// Writer implements connector.Sink: after a recovery the sink goes on with what the checkpoint had.
func (s Sink[T]) Writer(ctx connector.SinkContext, restored [][]byte) (connector.SinkWriter[T], error) {
	w := &writer[T]{Sink: s, subtask: ctx.Subtask}
	for _, b := range restored {
		if len(b) != tallyLen {
			return nil, fmt.Errorf("restored tally of %d bytes", len(b))
		}
		w.Tally.Add(int64(binary.BigEndian.Uint64(b)), int64(binary.BigEndian.Uint64(b[8:])))
	}
	if s.Dir != "" {
		if err := os.WriteFile(filepath.Join(s.Dir, fmt.Sprintf("open-%d", w.subtask)), nil, 0o644); err != nil {
			return nil, fmt.Errorf("mark the start: %w", err)
		}
	}
	return w, nil
}

// Took is the time between the start of the first of so many sink subtasks and the end of the last one's input.
func Took(dir string, subtasks int) (time.Duration, error) {
	var begin, end time.Time
	for i := range subtasks {
		first, err := os.Stat(filepath.Join(dir, fmt.Sprintf("open-%d", i)))
		if err != nil {
			return 0, fmt.Errorf("start of the sink: %w", err)
		}
		last, err := os.Stat(filepath.Join(dir, fmt.Sprintf("part-%d", i)))
		if err != nil {
			return 0, fmt.Errorf("end of the sink: %w", err)
		}
		if t := first.ModTime(); begin.IsZero() || t.Before(begin) {
			begin = t
		}
		if t := last.ModTime(); t.After(end) {
			end = t
		}
	}
	return end.Sub(begin), nil
}

const (
	tallyLen     = 16
	everyRecords = 16 // between two looks at the clock
	progressTick = 50 * time.Millisecond
)

// ReadProgress is the latest number of records of one sink subtask; 0 before there is one.
func ReadProgress(dir string, subtask int) (int64, error) {
	text, err := os.ReadFile(progressFile(dir, subtask))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	var n int64
	if err == nil {
		_, err = fmt.Sscan(string(text), &n)
	}
	if err != nil {
		return 0, fmt.Errorf("progress: %w", err)
	}
	return n, nil
}

// Told is when a sink subtask has last told its progress; zero before it did.
func Told(dir string, subtask int) time.Time {
	info, err := os.Stat(progressFile(dir, subtask))
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

func progressFile(dir string, subtask int) string {
	return filepath.Join(dir, fmt.Sprintf("progress-%d", subtask))
}

type writer[T any] struct {
	Sink[T]
	Tally   Tally
	subtask int
	v       [1]T // the record, when it came by value: on the heap once, not each time
	since   int  // records since the clock was looked at
	told    time.Time
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
	if w.Progress {
		return w.tell(len(vs))
	}
	return nil
}

// tell writes the progress; readers see a whole number or the one before.
func (w *writer[T]) tell(n int) error {
	if w.since += n; w.since < everyRecords {
		return nil
	}
	w.since = 0
	now := time.Now()
	if now.Sub(w.told) < progressTick {
		return nil
	}
	w.told = now
	path := progressFile(w.Dir, w.subtask)
	if err := os.WriteFile(path+".new", fmt.Appendln(nil, w.Tally.Count), 0o644); err != nil {
		return fmt.Errorf("write the progress: %w", err)
	}
	return os.Rename(path+".new", path)
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

func (w *writer[T]) Snapshot(int64) ([][]byte, error) {
	b := binary.BigEndian.AppendUint64(nil, uint64(w.Tally.Count))
	return [][]byte{binary.BigEndian.AppendUint64(b, uint64(w.Tally.Sum))}, nil
}

func (w *writer[T]) Close() error { return nil }
