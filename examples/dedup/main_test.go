package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/thalweg/thalweg/examples/internal/localrun"
	"github.com/thalweg/thalweg/stream/streamtest"
)

func TestCopiesAreDroppedForAWhile(t *testing.T) {
	h := streamtest.KeyedProcess(t, func(e Event) string { return e.ID }, newFirst)
	a, b := Event{"a", "1"}, Event{"b", "2"}
	h.Push(a, b, a)
	h.Advance(memory - time.Minute)
	h.Push(a) // which is remembered from now on
	h.Expect(a, b)
	h.Advance(2 * time.Minute)
	h.Push(a, b)
	h.Expect(b)
	if n := h.Counter("duplicates"); n != 3 {
		t.Errorf("%d duplicates were counted", n)
	}
	h.Advance(2 * memory)
	if _, found := h.Key("a").Value[bool]("seen"); found {
		t.Error("an old event is still remembered")
	}
}

func TestProgram(t *testing.T) {
	var out streamtest.Output[Event]
	streamtest.Start(t, build, streamtest.Sink("out", &out), streamtest.Args("-events", "900")).End()
	got := map[string]int{}
	for _, e := range out.Take() {
		got[e.ID]++
	}
	for id := range 300 {
		if n := got[fmt.Sprintf("e%06d", id)]; n != 1 {
			t.Errorf("event %d came %d times", id, n)
		}
	}
	if len(got) != 300 {
		t.Errorf("%d events", len(got))
	}
}

func TestOnTheEmbeddedCluster(t *testing.T) {
	localrun.Expect(t, build, nil, 1000, "e000999 value 5")
}
