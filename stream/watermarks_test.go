package stream

import (
	"strings"
	"testing"
	"time"

	"github.com/thalweg/thalweg/connector/datagen"
)

// flags emits a watermark at each record whose number is a multiple of 10.
type flags struct{}

func (flags) OnEvent(v int64, at time.Time, out WatermarkOutput) {
	if v%10 == 0 {
		out.EmitWatermark(at)
	}
}
func (flags) OnPeriodicEmit(WatermarkOutput) {}

// TestWatermarksMidStream: windows follow the event times and watermarks that were assigned last, by a strategy and by a generator.
func TestWatermarksMidStream(t *testing.T) {
	at := func(v int64) time.Time { return time.UnixMilli(v * 100) }
	for name, wm := range map[string]WatermarkStrategy[int64]{
		"bounded": BoundedOutOfOrderness(time.Second, at), "generator": ForGenerator(func() WatermarkGenerator[int64] { return flags{} }, at),
	} {
		t.Run(name, func(t *testing.T) {
			out := &collect[int64]{}
			err := runJob(t, map[string]string{"parallelism.default": "1"}, func(env *Environment) error {
				env.FromSource(datagen.Source(func(n int64) int64 { return n }, datagen.Count(100)), NoWatermarks[int64](), "n").
					Map(func(v int64) int64 { return v }).AssignTimestampsAndWatermarks(wm).
					KeyBy(func(int64) string { return "all" }).Window(TumblingEventTime(time.Second)).Reduce(func(a, b int64) int64 { return a + b }).SinkTo(out)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(sorted(out), " "); got != "145 245 345 445 45 545 645 745 845 945" {
				t.Fatalf("window sums %s", got)
			}
		})
	}
}
