package rows

import (
	"fmt"
	"testing"

	"github.com/thalweg/thalweg/bench/internal/tally"
)

// The first events meet each key once, and the plain computation is that of rows that are updated one by one.
func TestRows(t *testing.T) {
	const keys, events = 1009, 5000
	for _, hot := range []int64{0, 7} {
		t.Run(fmt.Sprintf("hot %d", hot), func(t *testing.T) { testRows(t, keys, events, hot) })
	}
}

func testRows(t *testing.T, keys, events, hot int64) {
	rows := map[int64]*Row{}
	last := map[int64]bool{} // of a hot set
	var got tally.Tally
	for n := range events {
		k := Key(n, keys, hot)
		if n >= keys && hot > 0 {
			if (n-keys)%(hot*hotEvents) == 0 {
				clear(last)
			}
			if last[k] = true; int64(len(last)) > hot {
				t.Fatalf("event %d: more than %d keys are hot", n, hot)
			}
		}
		if k < 0 || k >= keys || n < keys && rows[k] != nil {
			t.Fatalf("event %d has key %d", n, k)
		}
		if rows[k] == nil {
			rows[k] = &Row{}
		}
		r := rows[k].Update(k)
		got.Add(1, r.Sum())
	}
	if want := Expected(events, keys, hot); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
