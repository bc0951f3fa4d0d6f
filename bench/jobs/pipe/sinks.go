package main

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/thalweg/thalweg/connector"
)

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
