package task

import (
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/network"
)

// An idle task hands over what it holds at once, and what comes soon after in one go with what follows it.
func TestIdleFlush(t *testing.T) {
	env := network.New(network.Config{}, zerolog.Nop())
	defer func() {
		if err := env.Close(); err != nil {
			t.Error(err)
		}
	}()
	p, err := env.NewPartition(t.Context(), network.PartitionID{Producer: graph.ExecutionID{}}, 3)
	if err != nil {
		t.Fatal(err)
	}
	parts := []*network.Partition{p}
	put := func() {
		t.Helper()
		if c := p.Channel(1); c.Put(append(c.Buf(), 'x')) != nil {
			t.Fatal("put failed")
		}
	}
	var never idleFlush
	put()
	if d, err := never.idle(parts); err != nil || d != time.Hour || !p.Holds() {
		t.Fatalf("without a buffer timeout: %v, %v", d, err)
	}
	f := newIdleFlush(parts)
	if d, err := f.idle(parts); err != nil || d != time.Hour || p.Holds() {
		t.Fatalf("first flush: %v, %v", d, err)
	}
	put()
	f.last = time.Now().Add(time.Hour)
	if d, err := f.idle(parts); err != nil || d <= time.Hour || !p.Holds() {
		t.Fatalf("too early for the next one: wait %v, %v", d, err)
	}
	f.last = time.Now().Add(-f.pause)
	if d, err := f.idle(parts); err != nil || d != time.Hour || p.Holds() {
		t.Fatalf("second flush: %v, %v", d, err)
	}
	last := f.last
	if d, err := f.idle(parts); err != nil || d != time.Hour || f.last != last {
		t.Fatalf("nothing to flush: %v, %v", d, err)
	}
}
