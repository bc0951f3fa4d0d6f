package stream_test

import (
	"context"
	"fmt"
	"time"

	"github.com/thalweg/thalweg/stream"
)

type adClick struct {
	User   string
	Ad     string
	Second int64
}

type purchase struct {
	User   string
	Cents  int64
	Second int64
}

// Each purchase is joined with the clicks of the ten minutes before it. Records behind the watermark go to side outputs; without those they would
// be counted (numLateRecordsDropped).
func ExampleIntervalJoined_Process() {
	lateClicks := stream.NewOutputTag[adClick]("late clicks")
	latePurchases := stream.NewOutputTag[purchase]("late purchases")
	build := func(env *stream.Environment) error {
		clicks := env.FromCollection(adClick{"ann", "tea", 0}, adClick{"ann", "rice", 600}, adClick{"bob", "tea", 900}).
			AssignTimestampsAndWatermarks(stream.MonotonousTimestamps(func(c adClick) time.Time { return time.Unix(c.Second, 0) }))
		purchases := env.FromCollection(purchase{"ann", 250, 900}, purchase{"bob", 100, 1501}).
			AssignTimestampsAndWatermarks(stream.MonotonousTimestamps(func(p purchase) time.Time { return time.Unix(p.Second, 0) }))
		joined := purchases.KeyBy(func(p purchase) string { return p.User }).
			IntervalJoin(clicks.KeyBy(func(c adClick) string { return c.User })).
			Between(-10*time.Minute, 0).
			SideOutputLeftLateData(latePurchases).
			SideOutputRightLateData(lateClicks).
			Process(func(ctx *stream.JoinContext, p purchase, c adClick, out *stream.Collector[string]) error {
				out.Collect(fmt.Sprintf("%s bought for %d, %v after %s", p.User, p.Cents, ctx.LeftTime().Sub(ctx.RightTime()), c.Ad))
				return nil
			}).UID("joined")
		joined.Print()
		joined.GetSideOutput(latePurchases).Print()
		joined.GetSideOutput(lateClicks).Print()
		return nil
	}
	if err := stream.RunLocal(context.Background(), "clicks and purchases", build, stream.LocalOptions{}); err != nil {
		fmt.Println(err)
	}
	// Output: ann bought for 250, 5m0s after rice
}
