package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/thalweg/thalweg/connector"
)

// tally is the blackhole of the cases: it drops records and keeps their number and a checksum, which it writes to DIR/part-N at the end of
// the input, so that a run that lost or made up records is void. The Flink job's sink does the same.
type tally[T any] struct {
	dir string
	sum func(*T) int64
}

func (s tally[T]) Writer(ctx connector.SinkContext, _ [][]byte) (connector.SinkWriter[T], error) {
	return &tallyWriter[T]{tally: s, subtask: ctx.Subtask}, nil
}

type tallyWriter[T any] struct {
	tally[T]
	subtask    int
	count, all int64
	v          T // the record, when it came by value: on the heap once, not each time
}

func (w *tallyWriter[T]) Write(v T, _ int64) error {
	w.v = v
	w.count++
	w.all += w.sum(&w.v)
	return nil
}

func (w *tallyWriter[T]) WriteBatch(vs []T, _ []int64) error {
	w.count += int64(len(vs))
	for i := range vs {
		w.all += w.sum(&vs[i])
	}
	return nil
}

func (w *tallyWriter[T]) Flush(_ context.Context, endOfInput bool) error {
	if !endOfInput || w.dir == "" {
		return nil
	}
	path := filepath.Join(w.dir, fmt.Sprintf("part-%d", w.subtask))
	if err := os.WriteFile(path, fmt.Appendf(nil, "%d %d\n", w.count, w.all), 0o644); err != nil {
		return fmt.Errorf("pipe: write the tally: %w", err)
	}
	return nil
}

func (w *tallyWriter[T]) Snapshot(int64) ([][]byte, error) { return nil, nil }
func (w *tallyWriter[T]) Close() error                     { return nil }

// probe sends one datagram with the time, in milliseconds since the Unix epoch, when the first record arrives.
type probe[T any] struct{ addr string }

func (s probe[T]) Writer(ctx connector.SinkContext, _ [][]byte) (connector.SinkWriter[T], error) {
	return &probeWriter[T]{addr: s.addr, ctx: ctx.Context}, nil
}

type probeWriter[T any] struct {
	addr string
	ctx  context.Context
	sent bool
}

func (w *probeWriter[T]) Write(T, int64) error {
	if w.sent {
		return nil
	}
	w.sent = true
	now := time.Now().UnixMilli()
	var d net.Dialer
	c, err := d.DialContext(w.ctx, "udp", w.addr)
	if err != nil {
		return fmt.Errorf("pipe: probe: %w", err)
	}
	if _, err := fmt.Fprint(c, now); err != nil {
		return fmt.Errorf("pipe: probe: %w", err)
	}
	return c.Close()
}

func (w *probeWriter[T]) Flush(context.Context, bool) error { return nil }
func (w *probeWriter[T]) Snapshot(int64) ([][]byte, error)  { return nil, nil }
func (w *probeWriter[T]) Close() error                      { return nil }
