package stream_test

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/thalweg/thalweg/stream"
)

type probe struct {
	Sensor string
	Value  int
}

// plausible keeps values that can be, before the window function sees them.
type plausible struct{}

func (plausible) EvictBefore(elements []stream.TimestampedValue[probe], _ stream.Window, _ *stream.EvictorContext) []stream.TimestampedValue[probe] {
	return slices.DeleteFunc(elements, func(e stream.TimestampedValue[probe]) bool { return e.Value.Value < 0 })
}

func (plausible) EvictAfter(elements []stream.TimestampedValue[probe], _ stream.Window, _ *stream.EvictorContext) []stream.TimestampedValue[probe] {
	return elements
}

// An evictor of one's own, in windows of four records.
func ExampleCustomEvictor() {
	build := func(env *stream.Environment) error {
		env.FromCollection(probe{"a", 3}, probe{"a", -99}, probe{"a", 4}, probe{"a", 5}).
			KeyBy(func(p probe) string { return p.Sensor }).
			CountWindow(4).
			Evictor(stream.CustomEvictor[probe](plausible{})).
			Apply(func(key string, _ stream.TimeWindow, probes iter.Seq[probe], out *stream.Collector[string]) error {
				out.Collect(fmt.Sprint(key, " ", slices.Collect(probes)))
				return nil
			}).UID("probes").
			Print()
		return nil
	}
	if err := stream.RunLocal(context.Background(), "probes", build, stream.LocalOptions{}); err != nil {
		fmt.Println(err)
	}
	// Output: a [{a 3} {a 4} {a 5}]
}
