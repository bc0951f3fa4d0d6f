package inspect_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/thalweg/thalweg/checkpoint/inspect"
	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/checkpoint/storage"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/local"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/state/backend"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const groups, parallelism = 8, 2

type total struct {
	Sum   int64
	Names []string
}

// content is what a snapshot is to hold.
type content struct {
	totals map[string]total          // by key, namespace 7
	seen   map[string]map[int32]bool // a map state
	timers map[string]map[int64]bool // by key
	items  []string                  // operator state
}

func files() *fs.Registry {
	reg := &fs.Registry{}
	local.Register(reg)
	return reg
}

// write makes a snapshot as tasks and coordinator make it.
func write(t *rapid.T, dir, kind string, canonical bool, c content) {
	reg := files()
	op := metadata.Operator{ID: graph.OperatorID{ID: graph.ID{1}}, UID: "totals", Name: "customer totals", Parallelism: parallelism, MaxParallelism: groups}
	ok := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	text := serde.Must[string]()
	h := state.NewHasher(text)
	for i := range parallelism {
		b, err := backend.New(kind, state.Config{Range: state.RangeOf(groups, parallelism, i), MaxParallelism: groups, Dir: fmt.Sprintf("%s-db-%d", dir, i), MemoryBytes: 16 << 20})
		ok(err)
		table, err := backend.OpenTable(b, state.TableDesc[string, total]{Name: "totals", Key: text, Value: serde.Must[total]()})
		ok(err)
		seen, err := backend.OpenMap(b, state.MapDesc[string, int32, bool]{Name: "user-seen", Key: text, Sub: serde.Must[int32](), Value: serde.Must[bool]()})
		ok(err)
		timers, err := backend.OpenTimers(b, state.TimersDesc[string]{Name: "timers", Key: text})
		ok(err)
		mine := func(k string) (state.Key[string], bool) {
			key := state.KeyOf(h, k, groups)
			return key, b.Range().Contains(int(key.Group))
		}
		for k, v := range c.totals {
			if key, is := mine(k); is {
				ok(table.Put(key, 7, v))
			}
		}
		for k, m := range c.seen {
			if key, is := mine(k); is {
				for sub, v := range m {
					ok(seen.Put(seen.Entry(key, sub), 0, v))
				}
			}
		}
		for k, m := range c.timers {
			if key, is := mine(k); is {
				for at := range m {
					ok(timers.Register(key, 0, at))
				}
			}
		}
		snap, err := b.Snapshot(1, canonical)
		ok(err)
		sink := storage.NewSink(reg, "file://"+dir, "", 64)
		handle, err := snap.Write(context.Background(), sink)
		ok(err)
		ok(sink.Close())
		ok(b.Close())
		s := metadata.Subtask{Index: i, Keyed: []state.Handle{handle}}
		list := metadata.ListState{Name: "buffer"}
		for j, item := range c.items {
			if j%parallelism == i {
				list.Items = append(list.Items, []byte(item))
			}
		}
		s.Lists = []metadata.ListState{list}
		op.Subtasks = append(op.Subtasks, s)
	}
	f, _, err := reg.Resolve(context.Background(), "file://"+dir)
	ok(err)
	_, _, err = storage.WriteMetadata(context.Background(), f, "file://"+dir, metadata.Checkpoint{ID: 1, Canonical: canonical, Trigger: time.UnixMilli(1), JobName: "j", Operators: []metadata.Operator{op}})
	ok(err)
}

// lines are the entries of c as the product shows them.
func (c content) lines() []string {
	var all []string
	js := func(v any) string {
		b, _ := json.Marshal(v)
		return string(b)
	}
	for k, v := range c.totals {
		all = append(all, fmt.Sprintf("totals 7 %s = %s", js(k), js(v)))
	}
	for k, m := range c.seen {
		for sub, v := range m {
			all = append(all, fmt.Sprintf("user-seen 0 %s [%d] = %v", js(k), sub, v))
		}
	}
	for k, m := range c.timers {
		for at := range m {
			all = append(all, fmt.Sprintf("timers 0 %s at %d", js(k), at))
		}
	}
	for _, item := range c.items {
		all = append(all, "buffer 0 "+js([]byte(item)))
	}
	slices.Sort(all)
	return all
}

func read(t *rapid.T, s *inspect.Snapshot) []string {
	var all []string
	states, err := s.Find("", "")
	if err != nil {
		t.Fatal(err)
	}
	for _, st := range states {
		err := s.Each(context.Background(), st, func(e inspect.Entry) error {
			line := fmt.Sprintf("%s %d %s", st.Name, e.Namespace, string(e.Key))
			switch st.Kind {
			case inspect.Map:
				line += fmt.Sprintf(" [%s] = %s", e.MapKey, e.Value)
			case inspect.Timers:
				line += fmt.Sprintf(" at %d", *e.Time)
			case inspect.Items:
				line += string(e.Value)
			default:
				line += fmt.Sprintf(" = %s", e.Value)
			}
			all = append(all, line)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if n, _, err := s.Count(context.Background(), st); err != nil || n < 0 {
			t.Fatalf("count %s: %d, %v", st.Name, n, err)
		}
	}
	slices.Sort(all)
	return all
}

func draw(t *rapid.T, name string) content {
	key := rapid.StringMatching(`[a-d]{1,2}`)
	return content{
		totals: rapid.MapOfN(key, rapid.Custom(func(t *rapid.T) total {
			return total{rapid.Int64Range(-2, 2).Draw(t, "sum"), rapid.SliceOfN(key, 0, 2).Draw(t, "names")}
		}), 0, 8).Draw(t, name+" totals"),
		seen:   rapid.MapOfN(key, rapid.MapOfN(rapid.Int32Range(-2, 2), rapid.Bool(), 1, 3), 0, 5).Draw(t, name+" seen"),
		timers: rapid.MapOfN(key, rapid.MapOfN(rapid.Int64Range(-5, 5), rapid.Just(true), 1, 3), 0, 5).Draw(t, name+" timers"),
		items:  rapid.SliceOfN(key, 0, 4).Draw(t, name+" items"),
	}
}

// Every entry of a snapshot is shown, whatever the form of its files, and the differences of two add up to what differs.
func TestSnapshotsAreShownAndCompared(t *testing.T) {
	root := t.TempDir()
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		open := func(name string, c content) *inspect.Snapshot {
			n++
			dir := fmt.Sprintf("%s/savepoint-%d", root, n)
			kind := rapid.SampledFrom([]string{backend.HashMap, backend.Pebble}).Draw(t, name+" backend")
			write(t, dir, kind, rapid.Bool().Draw(t, name+" canonical"), c)
			s, err := inspect.Open(context.Background(), files(), "file://"+dir)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		a, b := draw(t, "old"), draw(t, "new")
		before, after := open("old", a), open("new", b)
		defer func() {
			if err := before.Close(); err != nil {
				t.Error(err)
			}
			if err := after.Close(); err != nil {
				t.Error(err)
			}
		}()
		was, is := a.lines(), b.lines()
		if got := read(t, before); !slices.Equal(got, was) {
			t.Fatalf("got  %q\nwant %q", got, was)
		}
		if got := read(t, after); !slices.Equal(got, is) {
			t.Fatalf("got  %q\nwant %q", got, is)
		}
		changes, err := inspect.Diff(context.Background(), before, after, 100)
		if err != nil {
			t.Fatal(err)
		}
		var added, removed, changed, same int64
		for _, c := range changes {
			added, removed, changed, same = added+c.Added, removed+c.Removed, changed+c.Changed, same+c.Same
			if n := int64(len(c.Samples)); (c.Old == nil || c.Old.Kind != inspect.Items) && (c.New == nil || c.New.Kind != inspect.Items) && n != c.Added+c.Removed+c.Changed {
				t.Errorf("%d samples of %+v", n, c)
			}
		}
		// A changed entry is one of each side; equal lines are the same ones (items may repeat).
		left := map[string]int{}
		for _, l := range was {
			left[l]++
		}
		equal := 0
		for _, l := range is {
			if left[l] > 0 {
				left[l]--
				equal++
			}
		}
		if int(same) != equal || int(same+changed+removed) != len(was) || int(same+changed+added) != len(is) {
			t.Errorf("%d the same, %d changed, %d removed, %d added of\n%q\n%q", same, changed, removed, added, was, is)
		}
	})
}

func TestStatesAreListedAndFound(t *testing.T) {
	dir := t.TempDir() + "/savepoint-x"
	rapid.Check(t, func(t *rapid.T) { // for write's T; one run is enough
		if _, err := inspect.Open(context.Background(), files(), "file://"+dir); err == nil {
			return
		}
		write(t, dir, backend.HashMap, true, content{totals: map[string]total{"a": {Sum: 1}}, items: []string{"x"}})
	})
	s, err := inspect.Open(t.Context(), files(), "file://"+dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	var got []string
	for _, o := range s.Operators() {
		for _, st := range o.States {
			got = append(got, fmt.Sprintf("%s %s %s %s %s", o.UID, st.Name, st.Kind, st.Key, st.Value))
		}
	}
	want := []string{"totals timers timers string ", "totals totals value string inspect_test.total", "totals user-seen map string map[int32]bool", "totals buffer operator list  "}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	for _, operator := range []string{"totals", "customer totals", "01000"} {
		if found, err := s.Find(operator, "seen"); err != nil || len(found) != 1 {
			t.Errorf("%s: %v, %v", operator, found, err)
		}
	}
	for _, c := range [][2]string{{"other", ""}, {"totals", "none"}} {
		if _, err := s.Find(c[0], c[1]); err == nil || !strings.Contains(err.Error(), "there are") {
			t.Errorf("%v: %v", c, err)
		}
	}
}
