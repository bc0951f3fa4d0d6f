package statetest

import (
	"context"
	"errors"
	"testing"

	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/state/canonical"
)

// FuzzRestore gives a backend entries whose bytes are anything, in files that are whole: it refuses them, or can read, and store again, what it took.
func FuzzRestore(f *testing.F, factory Factory) {
	str, text := serde.Must[string](), "x"
	key := str.Append(nil, "key")
	f.Add(uint8(0), key, serde.Must[Value]().Append(nil, Value{N: 1, S: "s", L: []int32{1, 2}, M: map[string]int64{"a": 1}, P: &text}), int64(0), int64(0), false)
	f.Add(uint8(1), serde.Must[Flat]().Append(nil, Flat{1, 2}), serde.Must[int64]().Append(nil, 7), int64(3), int64(0), true)
	f.Add(uint8(2), key, []byte{}, int64(-1), int64(1<<60), false)
	f.Fuzz(func(t *testing.T, table uint8, key, value []byte, ns, at int64, elsewhere bool) {
		h, err := fileOf(int(table%3), key, value, ns, at, elsewhere)
		if err != nil {
			t.Fatal(err)
		}
		c, err := TryCluster(factory, 1, []state.Handle{h}, &Store{})
		if err != nil {
			return
		}
		readAll(t, c)
		again := WriteAll(t, c.Snapshot(t, 1, true), &Store{InlineLimit: 1 << 30})
		check(t, c.Close())
		// A key whose bytes are not those that its codec makes is in another key group then.
		if c, err = TryCluster(factory, 1, again, &Store{}); err != nil && !errors.Is(err, canonical.ErrCorrupt) {
			t.Fatal(err)
		} else if err != nil {
			return
		}
		readAll(t, c)
		err = c.Subtasks[0].Timers.PopUntil(1<<62, func(state.Key[string], state.Namespace, int64) error { return nil })
		check(t, err)
		check(t, c.Close())
	})
}

// readAll reads every entry.
func readAll(t TB, c *Cluster) {
	t.Helper()
	s := c.Subtasks[0]
	check(t, each(s.Strings))
	check(t, each(s.Flats))
	s.Timers.Next()
}

func each[K comparable, V any](x state.Table[K, V]) error {
	all, err := x.Namespaces(nil)
	for _, ns := range all {
		if err == nil {
			err = x.Scan(ns, func(k state.Key[K], v *V) error { return nil })
		}
	}
	return err
}

// fileOf is a file in canonical form with one entry, in the key group that its key belongs to or, with elsewhere, in another one.
func fileOf(table int, key, value []byte, ns, at int64, elsewhere bool) (state.Handle, error) {
	a, b, x := stringDesc(), flatDesc(), timersDesc()
	metas := []state.TableMeta{
		{Name: a.Name, Kind: canonical.KindTable, Key: a.Key.Schema(), Value: a.Value.Schema()},
		{Name: b.Name, Kind: canonical.KindTable, Key: b.Key.Schema(), Value: b.Value.Schema()},
		{Name: x.Name, Kind: canonical.KindTimers, Key: x.Key.Schema()},
	}
	g := int(state.GroupOf(state.Hash32(key), maxParallelism))
	if elsewhere {
		g = (g + 1) % maxParallelism
	}
	return canonical.Write(context.Background(), &Store{InlineLimit: 1 << 30}, maxParallelism, state.Range{End: maxParallelism}, metas, func(_ context.Context, w *canonical.Writer) error {
		if err := w.Begin(g); err != nil {
			return err
		}
		if table == 2 {
			return w.Timer(table, ns, at, key)
		}
		return w.Entry(table, ns, key, value)
	})
}
