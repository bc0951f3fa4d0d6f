package stream_test

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/thalweg/thalweg/stream"
)

// Pairs of one key in one window. A record without a partner gives nothing.
func ExampleDataStream_Join() {
	type arrival struct {
		Train  string
		Second int64
	}
	inOrder := stream.MonotonousTimestamps(func(a arrival) time.Time { return time.Unix(a.Second, 0) })
	train := func(a arrival) string { return a.Train }
	build := func(env *stream.Environment) error {
		planned := env.FromCollection(arrival{"ice 1", 10}, arrival{"re 7", 20}, arrival{"ice 1", 70}).AssignTimestampsAndWatermarks(inOrder)
		actual := env.FromCollection(arrival{"ice 1", 12}, arrival{"ice 1", 50}).AssignTimestampsAndWatermarks(inOrder)
		planned.Join(actual).Where(train).EqualTo(train).
			Window(stream.TumblingEventTime(time.Minute)).
			Apply(func(p, a arrival) string { return fmt.Sprintf("%s: %d s late", p.Train, a.Second-p.Second) }).UID("delays").
			Print()
		return nil
	}
	if err := stream.RunLocal(context.Background(), "trains", build, stream.LocalOptions{}); err != nil {
		fmt.Println(err)
	}
	// Unordered output:
	// ice 1: 2 s late
	// ice 1: 40 s late
}

// All records of one key in one window, of both streams: also of those that the other stream has none of, for outer joins.
func ExampleDataStream_CoGroup() {
	type arrival struct {
		Train  string
		Second int64
	}
	inOrder := stream.MonotonousTimestamps(func(a arrival) time.Time { return time.Unix(a.Second, 0) })
	train := func(a arrival) string { return a.Train }
	build := func(env *stream.Environment) error {
		planned := env.FromCollection(arrival{"ice 1", 10}, arrival{"re 7", 20}).AssignTimestampsAndWatermarks(inOrder)
		actual := env.FromCollection(arrival{"ice 1", 12}).AssignTimestampsAndWatermarks(inOrder)
		planned.CoGroup(actual).Where(train).EqualTo(train).
			Window(stream.TumblingEventTime(time.Minute)).
			Apply(func(planned, actual iter.Seq[arrival], out *stream.Collector[string]) error {
				came := slices.Collect(actual)
				for p := range planned {
					out.Collect(fmt.Sprintf("%s: %d of 1", p.Train, len(came)))
				}
				return nil
			}).UID("came").
			Print()
		return nil
	}
	if err := stream.RunLocal(context.Background(), "trains", build, stream.LocalOptions{}); err != nil {
		fmt.Println(err)
	}
	// Unordered output:
	// ice 1: 1 of 1
	// re 7: 0 of 1
}
