package stream_test

import (
	"context"
	"fmt"
	"time"

	"github.com/thalweg/thalweg/stream"
)

type reading struct {
	Second int64
	Last   bool // of a measurement: nothing before it follows
}

// atMarks emits a watermark with each record that is marked (punctuated), and none each pipeline.auto-watermark-interval (periodic).
type atMarks struct{}

func (atMarks) OnEvent(r reading, at time.Time, out stream.WatermarkOutput) {
	if r.Last {
		out.EmitWatermark(at)
	}
}

func (atMarks) OnPeriodicEmit(stream.WatermarkOutput) {}

// A watermark generator of one's own, and what comes behind its watermarks: late records, in a side output.
func ExampleForGenerator() {
	late := stream.NewOutputTag[reading]("late")
	build := func(env *stream.Environment) error {
		strategy := stream.ForGenerator(func() stream.WatermarkGenerator[reading] { return atMarks{} }, func(r reading) time.Time { return time.Unix(r.Second, 0) })
		counts := env.FromCollection(reading{10, false}, reading{5, false}, reading{70, true}, reading{20, false}).
			AssignTimestampsAndWatermarks(strategy).
			WindowAll(stream.TumblingEventTime(time.Minute)).
			SideOutputLateData(late).
			Count(func(w stream.TimeWindow, n int64) string { return fmt.Sprint(w.Start.Format("15:04"), " ", n) }).UID("counts")
		counts.Print()
		counts.GetSideOutput(late).Map(func(r reading) string { return fmt.Sprint("late: ", r.Second) }).Print()
		return nil
	}
	if err := stream.RunLocal(context.Background(), "readings", build, stream.LocalOptions{}); err != nil {
		fmt.Println(err)
	}
	// Unordered output:
	// 00:00 2
	// late: 20
	// 00:01 1
}
