package pebble_test

import (
	"bytes"
	"testing"

	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/state/pebble"
)

// Keys that are looked for first and are not there cost no block of the last level, which holds most of a state that grows; and what is
// written meanwhile, and evicted, is found.
func TestAbsentKeysReadNoBlocks(t *testing.T) {
	c := newDiskCase(t, "none", pebble.Options{CacheBytes: 1 << 20, BlockCacheBytes: 8 << 20, MemTableBytes: 1 << 20}.Deciding(64))
	defer func() {
		if err := c.b.Close(); err != nil {
			t.Error(err)
		}
	}()
	const n, absent = 20_000, 5_000
	for k := range int64(n) {
		if err := c.put(k*3, 200); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.snapshot(); err != nil {
		t.Fatal(err)
	}
	if err := c.b.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := c.b.Filtered()
	for k := range int64(absent) { // each lookup is of a key between others, and is then written
		key := state.KeyOf(c.keys, k*3+1, 8)
		if _, found, err := c.table.Get(key, 0); err != nil || found {
			t.Fatalf("key %d: %v %v", k*3+1, found, err)
		}
		if err := c.put(k*3+1, 200); err != nil {
			t.Fatal(err)
		}
	}
	if n := c.b.Filtered() - before; n < absent*9/10 {
		t.Errorf("%d of %d lookups were ended by a filter of the last level", n, absent)
	}
	for k := range int64(n) { // the other way of lookups again, over what was written in between
		for _, x := range []int64{k * 3, k*3 + 1} {
			v, found, err := c.table.Get(state.KeyOf(c.keys, x, 8), 0)
			if want := x%3 == 0 || k < absent; err != nil || found != want || found && !bytes.Equal(v[:1], []byte{byte(x)}) {
				t.Fatalf("key %d: %v %v", x, found, err)
			}
		}
	}
}
