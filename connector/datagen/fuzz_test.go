package datagen

import (
	"bytes"
	"testing"

	"github.com/thalweg/thalweg/connector"
)

// A split's and the enumerator's state are taken as they were, or refused.
func FuzzState(f *testing.F) {
	f.Add(split{1, 3, 7}.encode().State)
	f.Add([]byte{1})
	src := Source(func(n int64) int64 { return n }, Count(10))
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := decode(connector.Split{State: b}); err == nil && !bytes.Equal(s.encode().State, b) {
			t.Fatalf("%x is %x", b, s.encode().State)
		}
		e, err := src.Enumerator(nil, b)
		if err != nil {
			return
		}
		if _, err := e.Snapshot(1); err != nil {
			t.Fatal(err)
		}
	})
}
