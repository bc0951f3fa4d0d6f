package streamtest_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/stream/streamtest"
)

type click struct {
	User string
	N    int64
}

type clicks = stream.WindowedStream[string, click]

func windowedClicks(a stream.WindowAssigner, set ...func(clicks) clicks) func(stream.DataStream[click]) stream.DataStream[string] {
	return func(s stream.DataStream[click]) stream.DataStream[string] {
		w := s.KeyBy(func(c click) string { return c.User }).Window(a)
		for _, fn := range set {
			w = fn(w)
		}
		return w.Count(func(user string, w stream.TimeWindow, n int64) string {
			return fmt.Sprintf("%s %s-%s %d", user, w.Start.Format("15:04"), w.End.Format("15:04"), n)
		}).UID("clicks").DataStream
	}
}

func trigger(t stream.WindowTrigger[click]) func(clicks) clicks {
	return func(w clicks) clicks { return w.Trigger(t) }
}

func lateness(d time.Duration) func(clicks) clicks {
	return func(w clicks) clicks { return w.AllowedLateness(d) }
}

func evictor(w clicks) clicks { return w.Evictor(stream.CountEvictor[click](100)) }

func clock(hour, minute int) time.Time { return time.Date(1970, 1, 2, hour, minute, 0, 0, time.UTC) }

// before runs the former program up to a savepoint, with the watermark at 10:30.
func before(t *testing.T, backend string, p func(stream.DataStream[click]) stream.DataStream[string]) []byte {
	t.Helper()
	h := streamtest.New(t, p, streamtest.NoRestarts(), streamtest.Backend(backend), streamtest.Parallelism(2), streamtest.StartTime(clock(10, 0)))
	for _, m := range []int{5, 25, 31, 45, 59} {
		h.PushAt(clock(10, m), click{"a", 1})
	}
	h.Watermark(clock(10, 30))
	return h.Snapshot()
}

// Windows of another kind, size, slide or offset would be lost or counted wrongly: the restore is refused, also with --allowNonRestoredState,
// with both layouts, the line and what to do.
func TestOtherWindowsAreRefused(t *testing.T) {
	hour, purge := time.Hour, trigger(stream.PurgingTrigger(stream.EventTimeTrigger[click]()))
	tumbling := windowedClicks(stream.TumblingEventTime(hour))
	for name, c := range map[string]struct {
		from, to func(stream.DataStream[click]) stream.DataStream[string]
		says     []string
	}{
		"size":             {tumbling, windowedClicks(stream.TumblingEventTime(time.Minute)), []string{"tumbling event-time windows of 1m0s", "tumbling event-time windows of 1h0m0s", "--drain"}},
		"offset":           {tumbling, windowedClicks(stream.TumblingEventTimeOffset(hour, 30*time.Minute)), []string{"windows of 1h0m0s, offset 30m0s"}},
		"sliding":          {tumbling, windowedClicks(stream.SlidingEventTime(hour, 30*time.Minute)), []string{"sliding event-time windows of 1h0m0s every 30m0s, in slices"}},
		"slide":            {windowedClicks(stream.SlidingEventTime(hour, 30*time.Minute)), windowedClicks(stream.SlidingEventTime(hour, 20*time.Minute)), []string{"every 30m0s", "every 20m0s"}},
		"sliding, trigger": {windowedClicks(stream.SlidingEventTime(hour, 30*time.Minute)), windowedClicks(stream.SlidingEventTime(hour, 30*time.Minute), purge), []string{"in slices"}},
		"session":          {tumbling, windowedClicks(stream.EventTimeSession(hour)), []string{"event-time sessions"}},
		"session, trigger": {windowedClicks(stream.EventTimeSession(hour)), windowedClicks(stream.EventTimeSession(hour), purge), []string{"event-time sessions with a trigger"}},
		"evictor":          {tumbling, windowedClicks(stream.TumblingEventTime(hour), evictor), []string{"for an evictor"}},
		"triggers, size":   {windowedClicks(stream.TumblingEventTime(hour), purge), windowedClicks(stream.TumblingEventTime(2*hour), purge), []string{"2h0m0s"}},
		"processing time":  {windowedClicks(stream.TumblingProcessingTime(hour)), windowedClicks(stream.TumblingProcessingTime(2 * hour)), []string{"tumbling processing-time windows of 2h0m0s"}},
		"global":           {windowedClicks(stream.GlobalWindows(), trigger(stream.CountTrigger[click](7))), tumbling, []string{"global windows"}},
		"no windows": {tumbling, func(s stream.DataStream[click]) stream.DataStream[string] {
			return s.KeyBy(func(c click) string { return c.User }).Count(func(user string, n int64) string { return user }).UID("clicks").DataStream
		}, []string{"rolling aggregation"}},
	} {
		for _, backend := range []string{"hashmap", "pebble"} {
			t.Run(name+"/"+backend, func(t *testing.T) {
				err := streamtest.New(t, c.to, streamtest.NoRestarts(), streamtest.Backend(backend), streamtest.FromSnapshot(before(t, backend, c.from)),
					streamtest.Config("execution.state-recovery.ignore-unclaimed-state", "true")).TryPush(click{"a", 1})
				if err == nil {
					t.Fatal("restored")
				}
				for _, s := range append(c.says, `(uid "clicks")`, "layout_test.go:", "another UID") {
					if !strings.Contains(err.Error(), s) {
						t.Errorf("%v, want %q", err, s)
					}
				}
			})
		}
	}
}

// What may change under a UID: the trigger of windows that share nothing, lateness, a session's gap, parallelism.
func TestOpenWindowsSurviveOtherTriggers(t *testing.T) {
	hour := time.Hour
	tumbling := stream.TumblingEventTime(hour)
	event, purge := trigger(stream.EventTimeTrigger[click]()), trigger(stream.PurgingTrigger(stream.EventTimeTrigger[click]()))
	continuous := trigger(stream.ContinuousEventTimeTrigger[click](10 * time.Minute))
	whole := []string{"a 10:00-11:00 6"}
	for name, c := range map[string]struct {
		from, to func(stream.DataStream[click]) stream.DataStream[string]
		want     []string
	}{
		"same":                   {windowedClicks(tumbling), windowedClicks(tumbling), whole},
		"event-time trigger":     {windowedClicks(tumbling), windowedClicks(tumbling, event), whole},
		"purging trigger":        {windowedClicks(tumbling), windowedClicks(tumbling, purge), whole},
		"continuous trigger":     {windowedClicks(tumbling), windowedClicks(tumbling, continuous), []string{"a 10:00-11:00 6", "a 10:00-11:00 6"}},
		"trigger and lateness":   {windowedClicks(tumbling), windowedClicks(tumbling, event, lateness(hour)), whole},
		"trigger removed":        {windowedClicks(tumbling, purge), windowedClicks(tumbling), whole},
		"lateness":               {windowedClicks(tumbling), windowedClicks(tumbling, lateness(hour)), whole},
		"sliding with gaps":      {windowedClicks(stream.SlidingEventTime(hour, 2*hour)), windowedClicks(stream.SlidingEventTime(hour, 2*hour), event), whole},
		"negative offset, alike": {windowedClicks(stream.TumblingEventTimeOffset(hour, -30*time.Minute)), windowedClicks(stream.TumblingEventTimeOffset(hour, 30*time.Minute)), []string{"a 10:30-11:30 4"}},
		"session gap":            {windowedClicks(stream.EventTimeSession(hour)), windowedClicks(stream.EventTimeSession(2 * hour)), []string{"a 10:05-12:46 6"}},
	} {
		for _, backend := range []string{"hashmap", "pebble"} {
			t.Run(name+"/"+backend, func(t *testing.T) {
				h := streamtest.New(t, c.to, streamtest.NoRestarts(), streamtest.Backend(backend), streamtest.Parallelism(3), streamtest.FromSnapshot(before(t, backend, c.from)))
				h.PushAt(clock(10, 46), click{"a", 1})
				h.End()
				if got := h.Take(); fmt.Sprint(got) != fmt.Sprint(c.want) {
					t.Errorf("got %q, want %q", got, c.want)
				}
			})
		}
	}
}

// A trigger that is taken away and given back does not meet the timers of before.
func TestTriggerRemovedAndAddedAgain(t *testing.T) {
	for _, backend := range []string{"hashmap", "pebble"} {
		t.Run(backend, func(t *testing.T) {
			with := windowedClicks(stream.TumblingEventTime(time.Hour), trigger(stream.EventTimeTrigger[click]()))
			without := windowedClicks(stream.TumblingEventTime(time.Hour))
			b := before(t, backend, with)
			h := streamtest.New(t, without, streamtest.NoRestarts(), streamtest.Backend(backend), streamtest.FromSnapshot(b))
			h.PushAt(clock(11, 5), click{"b", 1})
			h = streamtest.New(t, with, streamtest.NoRestarts(), streamtest.Backend(backend), streamtest.FromSnapshot(h.Snapshot()))
			h.End()
			if got := fmt.Sprint(h.Take()); got != "[a 10:00-11:00 5 b 11:00-12:00 1]" {
				t.Error(got)
			}
		})
	}
}

// When all windows have ended, as after stop --drain, nothing stands in the way of other ones.
func TestOtherWindowsAfterAllHaveEnded(t *testing.T) {
	purge := trigger(stream.PurgingTrigger(stream.EventTimeTrigger[click]()))
	for name, from := range map[string]func(stream.DataStream[click]) stream.DataStream[string]{
		"tumbling": windowedClicks(stream.TumblingEventTime(time.Hour)), "sliding": windowedClicks(stream.SlidingEventTime(time.Hour, 30*time.Minute)),
		"session": windowedClicks(stream.EventTimeSession(time.Hour)), "trigger": windowedClicks(stream.TumblingEventTime(time.Hour), purge),
		"session with trigger": windowedClicks(stream.EventTimeSession(time.Hour), purge),
	} {
		for _, backend := range []string{"hashmap", "pebble"} {
			t.Run(name+"/"+backend, func(t *testing.T) {
				h := streamtest.New(t, from, streamtest.NoRestarts(), streamtest.Backend(backend))
				h.PushAt(clock(10, 5), click{"a", 1})
				h.Watermark(clock(15, 0))
				if got := h.Take(); len(got) == 0 {
					t.Fatal("no window ended")
				}
				h = streamtest.New(t, windowedClicks(stream.TumblingEventTime(time.Minute)), streamtest.NoRestarts(), streamtest.Backend(backend), streamtest.FromSnapshot(h.Snapshot()))
				h.PushAt(clock(15, 1), click{"a", 1})
				h.End()
				if got := fmt.Sprint(h.Take()); got != "[a 15:01-15:02 1]" {
					t.Error(got)
				}
			})
		}
	}
}

// A keyed process function does not get the timers of an interval join that had its UID.
func TestOperatorOfAnotherKindIsRefused(t *testing.T) {
	user := func(c click) string { return c.User }
	join := func(s stream.DataStream[click]) stream.DataStream[string] {
		return s.KeyBy(user).IntervalJoin(s.KeyBy(user)).Between(-time.Hour, time.Hour).Process(func(_ *stream.JoinContext, a, _ click, out *stream.Collector[string]) error {
			out.Collect(a.User)
			return nil
		}).UID("clicks").DataStream
	}
	process := func(s stream.DataStream[click]) stream.DataStream[string] {
		return s.KeyBy(user).Process(func() stream.KeyedProcessFunction[string, click, string] { return &greeter{} }).UID("clicks").DataStream
	}
	err := streamtest.New(t, process, streamtest.NoRestarts(), streamtest.FromSnapshot(before(t, "hashmap", join))).TryPush(click{"a", 1})
	if err == nil || !strings.Contains(err.Error(), "keeps, in the job, keyed process function, and the checkpoint holds interval join") {
		t.Errorf("%v", err)
	}
}

type greeter struct {
	stream.NoTimers[string, string]
}

func (*greeter) Open(*stream.RuntimeContext[string]) error { return nil }
func (*greeter) ProcessElement(_ *stream.KeyedContext[string], c click, out *stream.Collector[string]) error {
	out.Collect(c.User)
	return nil
}
