package hybrid

import (
	"testing"

	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/connector/datagen"
)

// The state of a chain's enumerator, and splits of any name, are taken, or refused.
func FuzzState(f *testing.F) {
	f.Add([]byte(`{"index":1,"position":"MQ==","inner":"AQ=="}`), "1:0", []byte{1})
	f.Add([]byte(`{"index":-1}`), "x", []byte{})
	f.Add([]byte(`{"index":7,"inner":null}`), "-3:a", []byte{})
	numbers := func() connector.Source[int64] {
		return datagen.Source(func(n int64) int64 { return n }, datagen.Count(10), datagen.Splits(2))
	}
	c := Source(numbers()).Then(numbers())
	f.Fuzz(func(t *testing.T, state []byte, id string, split []byte) {
		if e, err := c.Enumerator(nil, state); err == nil {
			if _, err := e.Snapshot(1); err != nil {
				t.Fatal(err)
			}
		}
		r, err := c.Reader(connector.ReaderContext{})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.AddSplits([]connector.Split{{ID: id, State: split}}); err != nil {
			return
		}
		if _, err := r.Snapshot(1); err != nil {
			t.Fatal(err)
		}
	})
}
