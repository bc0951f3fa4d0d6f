package network

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/runtime/graph"
)

func testPartition(n int) PartitionID {
	return PartitionID{Producer: graph.ExecutionID{Vertex: graph.VertexID{ID: graph.ID{1, byte(n)}}, Subtask: n}, Output: 0}
}

func newEnv(t testing.TB, cfg Config) *Environment {
	t.Helper()
	e := New(cfg, zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.WarnLevel))
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return e
}

// consumer is a gate with a wake channel, read by one goroutine.
type consumer struct {
	*Gate
	wake chan struct{}
}

func newConsumer(t testing.TB, ctx context.Context, e *Environment, sources ...Source) *consumer { //nolint:revive // t first reads better
	t.Helper()
	c := &consumer{wake: make(chan struct{}, 1)}
	g, err := e.NewGate(ctx, sources, func() {
		select {
		case c.wake <- struct{}{}:
		default:
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	c.Gate = g
	t.Cleanup(g.Close)
	return c
}

var errTestTimeout = errors.New("test: nothing came in time")

func (c *consumer) next() (Item, error) {
	for {
		it, ok, err := c.Poll()
		if ok || err != nil {
			return it, err
		}
		select {
		case <-c.wake:
		case <-time.After(time.Minute):
			return Item{}, errTestTimeout
		}
	}
}

// collect reads every channel to its end and returns the bytes of each.
func (c *consumer) collect() ([][]byte, error) {
	out := make([][]byte, c.Channels())
	for open := c.Channels(); open > 0; {
		it, err := c.next()
		if err != nil {
			return out, err
		}
		if it.Event.Kind == EndOfPartition {
			open--
		}
		out[it.Channel] = append(out[it.Channel], it.Data...)
		c.Release(it)
	}
	return out, nil
}

func TestLocalOrderAndEvents(t *testing.T) {
	e := newEnv(t, Config{BufferSize: 64})
	id := testPartition(1)
	p, err := e.NewPartition(t.Context(), id, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	g := newConsumer(t, t.Context(), e, Source{Partition: id, Subpartition: 1})
	other := newConsumer(t, t.Context(), e, Source{Partition: id, Subpartition: 0})
	done := make(chan error, 1)
	go func() {
		c := p.Channel(1)
		for i := range 1000 {
			if err := c.Put(fmt.Appendf(c.Buf(), "%d,", i)); err != nil {
				done <- err
				return
			}
			if i == 499 {
				if err := p.Broadcast(Event{Kind: Barrier, Checkpoint: 7, Options: 3, Extra: []byte("x")}); err != nil {
					done <- err
					return
				}
			}
		}
		done <- p.Finish()
	}()
	var got, want bytes.Buffer
	for {
		it, err := g.next()
		if err != nil {
			t.Fatal(err)
		}
		got.Write(it.Data)
		if it.Event.Kind == Barrier {
			fmt.Fprintf(&got, "[%d %d %s]", it.Event.Checkpoint, it.Event.Options, it.Event.Extra)
		}
		g.Release(it)
		if it.Event.Kind == EndOfPartition {
			break
		}
	}
	for i := range 1000 {
		fmt.Fprintf(&want, "%d,", i)
		if i == 499 {
			want.WriteString("[7 3 x]")
		}
	}
	if got.String() != want.String() {
		t.Errorf("got %d bytes, want %d", got.Len(), want.Len())
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if b, err := other.collect(); err != nil || len(b[0]) != 0 {
		t.Errorf("other channel: %q, %v", b, err)
	}
}

// Of partitions that go together, what was written before the last record of a full buffer arrives before it.
func TestTogether(t *testing.T) {
	e := newEnv(t, Config{BufferSize: 256})
	var parts []*Partition
	var gates []*consumer
	for i := range 2 {
		id := testPartition(i)
		p, err := e.NewPartition(t.Context(), id, 2)
		if err != nil {
			t.Fatal(err)
		}
		parts = append(parts, p)
		gates = append(gates, newConsumer(t, t.Context(), e, Source{Partition: id, Subpartition: 0}))
		newConsumer(t, t.Context(), e, Source{Partition: id, Subpartition: 1})
	}
	Together(parts...)
	many, few := parts[0].Channel(0), parts[1].Channel(0)
	if err := parts[1].Channel(1).Put(append(parts[1].Channel(1).Buf(), 1)); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		if err := few.Put(append(few.Buf(), byte(i))); err != nil {
			t.Fatal(err)
		}
		if it, ok, err := gates[1].Poll(); ok || err != nil {
			t.Fatalf("before the other's buffer is full: %v, %v", it, err)
		}
		for full := false; !full; {
			if err := many.Put(append(many.Buf(), make([]byte, 50)...)); err != nil {
				t.Fatal(err)
			}
			it, ok, err := gates[0].Poll()
			if err != nil {
				t.Fatal(err)
			}
			gates[0].Release(it)
			full = ok
		}
		it, ok, err := gates[1].Poll()
		if err != nil || !ok || len(it.Data) != 1 || it.Data[0] != byte(i) {
			t.Fatalf("after the other's buffer was full: %v, %t, %v", it, ok, err)
		}
		gates[1].Release(it)
	}
	if len(parts[1].Channel(1).buf) != 1 {
		t.Error("a channel to another subtask was handed over too")
	}
	for _, p := range parts {
		p.Close()
	}
}
