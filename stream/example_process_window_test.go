package stream_test

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/thalweg/thalweg/stream"
)

type sale struct {
	Shop   string
	Cents  int64
	Second int64
}

// shopTotals tells the total of a window each time that it is emitted, how often that was, and what the shop sold in all windows.
type shopTotals struct {
	stream.PlainWindow[string]
	told stream.ListState[int64]  // of the shop and the window, gone with the window: the totals
	all  stream.ValueState[int64] // of the shop
}

func (t *shopTotals) Open(rt *stream.WindowRuntimeContext[string]) (err error) {
	if t.told, err = rt.WindowListState[int64]("told"); err != nil {
		return err
	}
	t.all, err = rt.ValueState[int64]("all")
	return err
}

// Process gets what the records were aggregated to as the only value.
func (t *shopTotals) Process(ctx *stream.WindowContext[string], totals iter.Seq[int64], out *stream.Collector[string]) error {
	for total := range totals {
		told, err := t.told.Get()
		if err != nil {
			return err
		}
		all, _, err := t.all.Value()
		if err != nil {
			return err
		}
		all += total
		if len(told) > 0 {
			all -= told[len(told)-1]
		}
		w := ctx.Window()
		out.Collect(fmt.Sprintf("%s %s-%s: %d (no. %d), in all %d", ctx.Key(), w.Start.Format("15:04"), w.End.Format("15:04"), total, len(told)+1, all))
		if err := t.told.Add(total); err != nil {
			return err
		}
		if err := t.all.Update(all); err != nil {
			return err
		}
	}
	return nil
}

// An aggregate together with a ProcessWindowFunction: the window keeps one number, and the function adds the window's bounds, and state.
func ExampleWindowedStream_AggregateProcess() {
	build := func(env *stream.Environment) error {
		env.FromCollection(sale{"north", 300, 0}, sale{"north", 200, 30}, sale{"north", 100, 70}).
			AssignTimestampsAndWatermarks(stream.MonotonousTimestamps(func(s sale) time.Time { return time.Unix(s.Second, 0) })).
			KeyBy(func(s sale) string { return s.Shop }).
			Window(stream.TumblingEventTime(time.Minute)).
			Trigger(stream.CountTrigger[sale](1)).
			AggregateProcess(stream.Sum(func(s sale) int64 { return s.Cents }),
				func() stream.ProcessWindowFunction[string, int64, string] { return &shopTotals{} }).UID("totals").
			Print()
		return nil
	}
	if err := stream.RunLocal(context.Background(), "sales", build, stream.LocalOptions{}); err != nil {
		fmt.Println(err)
	}
	// Output:
	// north 00:00-00:01: 300 (no. 1), in all 300
	// north 00:00-00:01: 500 (no. 2), in all 500
	// north 00:01-00:02: 100 (no. 1), in all 600
}
