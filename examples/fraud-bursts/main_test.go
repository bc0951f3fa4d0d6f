package main

import (
	"testing"
	"time"

	"github.com/thalweg/thalweg/examples/internal/localrun"
	"github.com/thalweg/thalweg/stream/streamtest"
)

func at(seconds int) time.Time { return streamtest.At(time.Duration(seconds) * time.Second) }

func TestBursts(t *testing.T) {
	h := streamtest.KeyedProcess(t, func(p Payment) string { return p.Card }, newBursts)
	for _, s := range []int{0, 10, 40, 20} { // the last comes late, and does not make four in 30 s
		h.PushAt(at(s), Payment{"a", 100, at(s)})
	}
	h.PushAt(at(12), Payment{"b", 100, at(12)})
	h.Expect()
	h.PushAt(at(25), Payment{"a", 7, at(25)})
	h.Expect(Alert{"a", many, 307, at(0), at(25)})
	if left := h.Key("a").List[Payment]("recent"); len(left) != 0 {
		t.Errorf("payments of an alert are kept: %v", left)
	}
	h.Watermark(at(42)) // nothing of b can become a burst any more
	if left := h.Key("b").List[Payment]("recent"); len(left) != 0 {
		t.Errorf("old payments are kept: %v", left)
	}
	if timers := h.Key("b").EventTimeTimers(); len(timers) != 0 {
		t.Errorf("timers are left: %v", timers)
	}
}

func TestProgram(t *testing.T) {
	var out streamtest.Output[Alert]
	streamtest.Start(t, build, streamtest.Sink("alerts", &out), streamtest.Args("-payments", "3500")).End()
	var want []Alert
	for i := range int64(4) { // one burst in each thousand
		p, q := payment(1000*i), payment(1000*i+many-1)
		want = append(want, Alert{p.Card, many, many*p.Cents + 0 + 1 + 2 + 3, p.At, q.At})
	}
	out.ExpectInAnyOrder(want...)
}

func TestOnTheEmbeddedCluster(t *testing.T) {
	localrun.Expect(t, build, nil, 10, "stolen-3: 4 payments of")
}
