// Package thin is the test of three functions, as a user's package has it. TestTestsCompileLittle looks at what is compiled with it.
package thin

import (
	"testing"

	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/stream/streamtest"
)

type order struct {
	Customer string
	Cents    int64
	Tags     []string
}

type line struct {
	Tag   string
	Cents int64
}

// Run is what a test function does.
func Run(t *testing.T) {
	h := streamtest.New(t, func(in stream.DataStream[order]) stream.SingleOutputStreamOperator[line] {
		return in.Filter(func(o order) bool { return o.Cents > 0 }).
			Map(func(o order) order { o.Cents++; return o }).
			FlatMap(func(o order, out *stream.Collector[line]) error {
				for _, tag := range o.Tags {
					out.Collect(line{tag, o.Cents})
				}
				return nil
			})
	})
	h.Push(order{"a", 1, []string{"x"}})
	h.Expect(line{"x", 2})
}
