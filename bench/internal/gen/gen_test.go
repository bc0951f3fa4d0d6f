package gen

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/thalweg/thalweg/bench/internal/tally"
)

// The plain computation of windows agrees with one that knows nothing of their order.
func TestExpectedWindows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		events := rapid.Int64Range(0, 20_000).Draw(t, "events")
		keys := rapid.Int64Range(1, 300).Draw(t, "keys")
		window := rapid.Int64Range(1, 500).Draw(t, "window")
		all := map[[2]int64]int64{}
		for n := range events {
			e := Make(n, keys)
			all[[2]int64{e.Key, e.At / window * window}]++
		}
		var want tally.Tally
		for k, n := range all {
			want.Count++
			want.Sum += (&Count{k[0], k[1], n}).Sum()
		}
		if got := Expected("window", events, keys, window); got != want {
			t.Fatalf("got %+v, want %+v", got, want)
		}
	})
}
