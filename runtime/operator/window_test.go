package operator

import (
	"fmt"
	"math"
	"math/big"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// anyTime draws event times from all of int64, the ends of the range often.
func anyTime(t *rapid.T, label string) int64 {
	switch rapid.IntRange(0, 3).Draw(t, label+" where") {
	case 0:
		return math.MinInt64 + rapid.Int64Range(1, 1<<34).Draw(t, label)
	case 1:
		return math.MaxInt64 - rapid.Int64Range(0, 1<<34).Draw(t, label)
	case 2:
		return rapid.Int64Range(-1<<34, 1<<34).Draw(t, label)
	}
	return rapid.Int64().Draw(t, label)
}

// A window's bounds are those of unlimited integers, and a time has a window exactly when they fit.
func TestWindowBoundsDoNotOverflow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.Int64Range(1, math.MaxInt64/1_000_000).Draw(t, "size") // a time.Duration in milliseconds
		w := Tumbling{Size: size, Offset: rapid.Int64Range(-size+1, size-1).Draw(t, "offset")}
		ts := anyTime(t, "ts")
		into := new(big.Int).Mod(new(big.Int).Sub(big.NewInt(ts), big.NewInt(w.Offset)), big.NewInt(size))
		start := new(big.Int).Sub(big.NewInt(ts), into)
		end := new(big.Int).Add(start, big.NewInt(size))
		fits := start.IsInt64() && end.IsInt64()
		if w.Holds(ts) != fits {
			t.Fatalf("%v holds %d: %v, its bounds are %v and %v", w, ts, w.Holds(ts), start, end)
		}
		if fits && w.Start(ts) != start.Int64() {
			t.Fatalf("start %d, want %v", w.Start(ts), start)
		}
	})
}

// A record with a time at either end of the range is in its window, or refused with its time; it never goes to another window or is
// dropped as late without being so.
func TestWindowWithExtremeTimes(t *testing.T) {
	for _, size := range []int64{1, 1000, 86_400_000} {
		for _, offset := range []int64{0, size / 2, -size / 2} {
			for _, ts := range []int64{math.MinInt64 + 1, math.MinInt64 + size, math.MinInt64 + 2*size, -1, 0, math.MaxInt64 - 2*size, math.MaxInt64 - size, math.MaxInt64 - 1, math.MaxInt64} {
				t.Run(fmt.Sprintf("size %d offset %d time %d", size, offset, ts), func(t *testing.T) {
					h := newHarness[reading, windowResult](t, windowFactory(t, size, offset), "hashmap", 1, sensorHash(t))
					defer h.close()
					r := reading{"s", 1}
					err := h.tasks[0].in.Process(r, Meta{TS: ts, Hash: sensorHash(t)(r)})
					if !(Tumbling{size, offset}).Holds(ts) {
						if err == nil || !strings.Contains(err.Error(), fmt.Sprint(ts)) || !strings.Contains(err.Error(), "TumblingEventTime") {
							t.Fatalf("got %v", err)
						}
						return
					}
					if err != nil {
						t.Fatal(err)
					}
					h.watermark(MaxWatermark)
					got := h.take()
					if len(got) != 1 || got[0].Window.Start > ts || got[0].Window.End <= ts || got[0].Window.End-got[0].Window.Start != size {
						t.Fatalf("got %+v", got)
					}
				})
			}
		}
	}
}
