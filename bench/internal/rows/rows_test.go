package rows

import (
	"testing"

	"github.com/thalweg/thalweg/bench/internal/tally"
)

// The first events meet each key once, and the plain computation is that of rows that are updated one by one.
func TestRows(t *testing.T) {
	const keys, events = 1009, 5000
	rows := map[int64]*Row{}
	var got tally.Tally
	for n := range int64(events) {
		k := Key(n, keys)
		if k < 0 || k >= keys || n < keys && rows[k] != nil {
			t.Fatalf("event %d has key %d", n, k)
		}
		if rows[k] == nil {
			rows[k] = &Row{}
		}
		r := rows[k].Update(k)
		got.Add(1, r.Sum())
	}
	if want := Expected(events, keys); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
