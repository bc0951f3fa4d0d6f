package operator

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/thalweg/thalweg/serde"
)

// The records of one side that are kept are those that a record to come may have for a partner, whatever the bounds; each partner is found.
func TestSortedSideAgainstModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := sortedSide[int64]{codec: serde.Must[int64]()}
		type row struct{ at, v int64 }
		var all []row
		now, least := int64(0), int64(0)
		for v := range rapid.Int64Range(1, 300).Draw(rt, "records") {
			now += rapid.Int64Range(0, 3).Draw(rt, "later")
			s.add(now, v)
			all = append(all, row{now, v})
			least = max(least, now-rapid.Int64Range(-2, 40).Draw(rt, "keep"))
			s.dropBefore(least)
			all = slices.DeleteFunc(all, func(r row) bool { return r.at < least })
			from := now + rapid.Int64Range(-50, 5).Draw(rt, "from")
			to := from + rapid.Int64Range(0, 20).Draw(rt, "width")
			var got, want []row
			_ = s.between(from, to, func(at int64, v int64) error { got = append(got, row{at, v}); return nil })
			for _, r := range all {
				if from <= r.at && r.at <= to {
					want = append(want, r)
				}
			}
			if !slices.EqualFunc(got, want, func(a, b row) bool { return cmp.Compare(a.at, b.at) == 0 && a.v == b.v }) {
				rt.Fatalf("[%d, %d]: %v, want %v", from, to, got, want)
			}
			if kept := len(s.at) - s.head; kept != len(all) || len(s.at) > 2*len(all)+130 {
				rt.Fatalf("%d are kept in %d places, want %d", kept, len(s.at), len(all))
			}
		}
	})
}
