package stream

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/connector/datagen"
)

// collection is the source of FromCollection: one split, whose position is the index of the next element.
type collection[T any] struct{ elements []T }

func (c *collection[T]) Boundedness() connector.Boundedness { return connector.Bounded }

func (c *collection[T]) Enumerator(ctx connector.EnumeratorContext, restored []byte) (connector.Enumerator, error) {
	return &collectionEnumerator{ctx: ctx, assigned: len(restored) > 0 && restored[0] == 1}, nil
}

type collectionEnumerator struct {
	ctx      connector.EnumeratorContext
	assigned bool
}

func (e *collectionEnumerator) Start(context.Context) error { return nil }
func (e *collectionEnumerator) AddReader(subtask int) {
	if !e.assigned {
		e.assigned = true
		e.ctx.Assign(subtask, connector.Split{ID: "collection", State: make([]byte, 8)})
	}
	e.ctx.NoMoreSplits(subtask)
}
func (e *collectionEnumerator) AddSplitsBack(splits []connector.Split, subtask int) {
	e.ctx.Assign(subtask, splits...)
}
func (e *collectionEnumerator) HandleSplitRequest(int)   {}
func (e *collectionEnumerator) CheckpointComplete(int64) {}
func (e *collectionEnumerator) Close() error             { return nil }
func (e *collectionEnumerator) Snapshot(int64) ([]byte, error) {
	if e.assigned {
		return []byte{1}, nil
	}
	return []byte{0}, nil
}

func (c *collection[T]) Reader(connector.ReaderContext) (connector.Reader[T], error) {
	return &collectionReader[T]{elements: c.elements, wake: make(chan struct{}, 1)}, nil
}

type collectionReader[T any] struct {
	elements []T
	has      bool
	next     int
	noMore   bool
	out      connector.SplitOutput[T]
	wake     chan struct{}
}

func (r *collectionReader[T]) Start(context.Context) error { return nil }
func (r *collectionReader[T]) AddSplits(splits []connector.Split) error {
	for _, s := range splits {
		if len(s.State) != 8 {
			return fmt.Errorf("stream: collection split %q: bad position", s.ID)
		}
		r.has, r.next = true, int(binary.LittleEndian.Uint64(s.State))
	}
	return nil
}
func (r *collectionReader[T]) NoMoreSplits()              { r.noMore = true }
func (r *collectionReader[T]) Available() <-chan struct{} { return r.wake }
func (r *collectionReader[T]) Close() error               { return nil }
func (r *collectionReader[T]) CheckpointAborted(int64)    {}

func (r *collectionReader[T]) CheckpointComplete(context.Context, int64) error { return nil }

func (r *collectionReader[T]) Poll(out connector.Output[T], max int) (connector.Status, error) {
	if r.has {
		if r.out == nil {
			r.out = out.Split("collection")
		}
		for i := 0; i < max && r.next < len(r.elements); i++ {
			v := r.elements[r.next]
			r.next++
			if err := r.out.Collect(v, connector.NoTimestamp); err != nil {
				return connector.MoreAvailable, err
			}
		}
		if r.next < len(r.elements) {
			return connector.MoreAvailable, nil
		}
	}
	if r.noMore {
		return connector.EndOfInput, nil
	}
	return connector.NothingAvailable, nil
}

func (r *collectionReader[T]) Snapshot(int64) ([]connector.Split, error) {
	if !r.has {
		return nil, nil
	}
	return []connector.Split{{ID: "collection", State: binary.LittleEndian.AppendUint64(nil, uint64(r.next))}}, nil
}

// FromSequence adds a bounded source of the numbers from first to last, both included, which its subtasks deal among themselves.
func (e *Environment) FromSequence[N int | int32 | int64](from, to N) DataStreamSource[int64] {
	first, last := int64(from), int64(to)
	n := last - first + 1
	if first > last || n <= 0 {
		e.mistake("FromSequence(%d, %d): the first number is above the last, or there are more than 2^63-1", first, last)
		n = 0
	}
	src := datagen.Source(func(i int64) int64 { return first + i }, datagen.Count(n))
	s := e.FromSource[int64](src, NoWatermarks[int64](), "Sequence Source")
	s.f.node.CallSite = callSite()
	return s
}

// Print writes each record to the standard output of its worker, with its subtask's number in front when there are several.
func (s DataStream[T]) Print() DataStreamSink[T] {
	return s.SinkTo(&printSink[T]{}).Name("Print to Std. Out")
}

// printSink is a Sink, and with a printer its writers.
type printSink[T any] struct{ *printer }

func (*printSink[T]) Writer(ctx connector.SinkContext, _ [][]byte) (connector.SinkWriter[T], error) {
	w := &printer{ctx: ctx.Context, out: os.Stdout}
	if ctx.Parallelism > 1 {
		w.prefix = strconv.Itoa(ctx.Subtask+1) + "> "
	}
	return &printSink[T]{w}, nil
}

func (s *printSink[T]) Write(v T, _ int64) error { return s.print(v) }

type printer struct {
	ctx    context.Context //nolint:containedctx // the task's life
	prefix string
	out    io.Writer
}

func (w *printer) print(v any) error {
	_, err := fmt.Fprintf(w.out, "%s%v\n", w.prefix, v)
	if errors.Is(err, syscall.EPIPE) {
		// Nobody reads any more. The process gets SIGPIPE for it, by which Main ends the job in order: that must not be a race with a
		// failure of the task.
		patience := time.NewTimer(signalPatience)
		defer patience.Stop()
		select {
		case <-w.ctx.Done():
			return context.Cause(w.ctx)
		case <-patience.C: // the program has other plans with the signal
		}
	}
	return err
}

// signalPatience is how long a signal may take to end the job.
const signalPatience = 10 * time.Second

func (*printer) Flush(context.Context, bool) error { return nil }
func (*printer) Snapshot(int64) ([][]byte, error)  { return nil, nil }
func (*printer) Close() error                      { return nil }
