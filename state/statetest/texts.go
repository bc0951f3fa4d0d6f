package statetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/state/backend"
)

// Note is a value that holds nothing but strings.
type Note struct {
	N     int64
	Title string
	Text  string
}

// Texts checks tables of values with strings, which backends keep together, under puts, changes in place, deletions and snapshots: the values
// are those of a map, the snapshots those of the map then, and no string that was read ever changes.
func Texts(t *testing.T, f, reader Factory) {
	const keys, steps = 300, 20_000
	desc := state.TableDesc[int64, Note]{Name: "notes", Key: serde.Must[int64](), Value: serde.Must[Note]()}
	open := func(f Factory, hs []state.Handle, src state.Source) (state.Backend, state.Table[int64, Note]) {
		b, err := f.New(state.Config{Range: state.Range{End: 128}, MaxParallelism: 128, Dir: filepath.Join(t.TempDir(), "state"), Restore: hs, Source: src})
		check(t, err)
		table, err := backend.OpenTable(b, desc)
		check(t, err)
		return b, table
	}
	compare := func(table state.Table[int64, Note], want map[int64]Note) {
		t.Helper()
		n := 0
		check(t, table.Scan(0, func(k state.Key[int64], v *Note) error {
			if n++; *v != want[k.Key] {
				return fmt.Errorf("%s: the note of %d is %.50v, want %.50v", f.Name, k.Key, *v, want[k.Key])
			}
			return nil
		}))
		if n != len(want) {
			t.Fatalf("%s: %d notes, want %d", f.Name, n, len(want))
		}
	}
	b, table := open(f, nil, nil)
	keeper, _ := table.(state.Keeper[Note])
	hasher, r := state.NewHasher(desc.Key), rand.New(rand.NewPCG(1, 2))
	want, read, buf := map[int64]Note{}, [][2]string{}, []byte(nil)
	var pending state.Snapshot
	var frozen map[int64]Note
	for id := range int64(steps) {
		k := state.KeyOf(hasher, r.Int64N(keys), 128)
		w := Note{id, fmt.Sprint("title of ", k.Key), strings.Repeat("x", []int{0, 1, 30, 200, 2000}[r.IntN(5)]) + fmt.Sprint(id)}
		buf = append(append(buf[:0], w.Title...), w.Text...) // where a record's strings would be
		all := unsafe.String(unsafe.SliceData(buf), len(buf))
		v := Note{w.N, all[:len(w.Title)], all[len(w.Title):]}
		switch op := r.IntN(10); {
		case op < 4:
			check(t, table.Put(k, 0, v))
			want[k.Key] = w
		case op < 6:
			p, _, err := table.Ref(k, 0)
			check(t, err)
			p.N, p.Title, p.Text = v.N, v.Title, v.Text
			if keeper == nil || !keeper.Keep(p) {
				*p = desc.Value.Clone(*p)
			}
			want[k.Key] = w
		case op < 9:
			got, found, err := table.Get(k, 0)
			check(t, err)
			if was, ok := want[k.Key]; found != ok || got != was {
				t.Fatalf("%s: step %d: the note of %d is %.50v %v, want %.50v", f.Name, id, k.Key, got, found, was)
			}
			if found && len(read) < steps {
				read = append(read, [2]string{got.Text, strings.Clone(got.Text)})
			}
		default:
			check(t, table.Delete(k, 0))
			delete(want, k.Key)
		}
		for i := range buf {
			buf[i] = '?'
		}
		if id%2000 == 999 {
			var err error
			pending, err = b.Snapshot(id, true)
			check(t, err)
			frozen = map[int64]Note{}
			for k, v := range want {
				frozen[k] = v
			}
		}
		if id%2000 == 1500 {
			store := &Store{}
			h, err := pending.Write(context.Background(), store)
			check(t, err)
			from, restored := open(reader, []state.Handle{h}, store)
			compare(restored, frozen)
			check(t, from.Close())
		}
	}
	compare(table, want)
	for _, s := range read {
		if s[0] != s[1] {
			t.Fatalf("%s: a string that was read changed from %.50q to %.50q", f.Name, s[1], s[0])
		}
	}
	check(t, b.Close())
}
