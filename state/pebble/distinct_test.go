package pebble

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Few pages of many and many of few come out sorted, each once.
func TestDistinct(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		of := rapid.IntRange(1, 3000).Draw(t, "of")
		pages := rapid.SliceOfN(rapid.Uint32Range(0, uint32(of-1)), 0, 200).Draw(t, "pages")
		want := slices.Clone(pages)
		slices.Sort(want)
		want = slices.Compact(want)
		if got := distinct(pages, of); !slices.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
	})
}
