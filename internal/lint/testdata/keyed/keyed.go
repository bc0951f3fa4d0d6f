// Package keyed is the test of a function with state and timers, as a user's package has it. TestTestsCompileLittle looks at what is compiled
// with it.
package keyed

import (
	"testing"
	"time"

	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/stream/streamtest"
)

type payment struct {
	Card  string
	Cents int64
}

type alert struct {
	Card  string
	Cents int64
}

type sums struct{ sum stream.ValueState[int64] }

func newSums() stream.KeyedProcessFunction[string, payment, alert] { return &sums{} }

func (s *sums) Open(rt *stream.RuntimeContext[string]) (err error) {
	s.sum, err = rt.ValueState[int64]("sum")
	return err
}

func (s *sums) ProcessElement(ctx *stream.KeyedContext[string], p payment, out *stream.Collector[alert]) error {
	sum, found, err := s.sum.Value()
	if err != nil {
		return err
	}
	if !found {
		if err := ctx.RegisterEventTimeTimer(streamtest.At(time.Minute)); err != nil {
			return err
		}
	}
	out.Collect(alert{p.Card, sum + p.Cents})
	return s.sum.Update(sum + p.Cents)
}

func (s *sums) OnTimer(*stream.KeyedContext[string], stream.Timer, *stream.Collector[alert]) error {
	return s.sum.Clear()
}

func (s *sums) Close() error { return nil }

// Run is what a test function does.
func Run(t *testing.T) {
	h := streamtest.KeyedProcess(t, func(p payment) string { return p.Card }, newSums)
	h.Push(payment{"a", 1}, payment{"a", 2})
	h.Expect(alert{"a", 1}, alert{"a", 3})
}
