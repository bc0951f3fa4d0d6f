package metadata

import "testing"

// What a sink prepared is read as it was written, or not at all.
func FuzzDecodePrepared(f *testing.F) {
	f.Add([]byte(`{"checkpoint":3,"items":["AQI="]}`))
	f.Add([]byte(`{"checkpoint":1e99}`))
	f.Fuzz(func(t *testing.T, item []byte) {
		o := Operator{Subtasks: []Subtask{{Index: 2, Lists: []ListState{{Name: PreparedState, Items: [][]byte{item}}}}}}
		all, err := o.Prepared()
		if err == nil && len(all[2]) != 1 {
			t.Fatalf("one item is %d", len(all[2]))
		}
	})
}
