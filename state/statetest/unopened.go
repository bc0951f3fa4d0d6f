package statetest

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/state/backend"
)

// Unopened runs versions of a program, each of which opens some of the states, maybe some of them late, changes them, and hands its snapshot
// on to the next, at another parallelism and in another backend. What a version does not open must be there for those after it.
func Unopened(t *testing.T, factories ...Factory) {
	rapid.Check(t, func(rt *rapid.T) {
		u := newUnopened(rt)
		var handles []state.Handle
		var store *Store
		format := ""
		for range rapid.IntRange(2, 6).Draw(rt, "versions") {
			f := rapid.SampledFrom(factories).Draw(rt, "backend")
			for format != "" && format != "canonical" && !f.Native {
				f = factories[(slices.IndexFunc(factories, func(g Factory) bool { return g.Name == f.Name })+1)%len(factories)]
			}
			handles, store = u.version(u.plan(), f, handles, store)
			format = handles[0].Format
		}
	})
}

// UnopenedSchemas makes values of two schemas in native, a backend that keeps them as they are, and hands them on unopened through savepoints of
// both backends.
func UnopenedSchemas(t *testing.T, native, other Factory) {
	rapid.Check(t, func(rt *rapid.T) {
		u := newUnopened(rt)
		var handles []state.Handle
		var store *Store
		for _, s := range []struct {
			f     Factory
			size  string
			open  []string
			canon bool
		}{
			{native, "small", []string{"a", "t"}, false},
			{native, "grown", []string{"a"}, false},
			{native, "", nil, true},
			{other, "", []string{"b"}, true},
			{native, "", []string{"b"}, true},
			{other, "", nil, true},
			{native, "", nil, false},
			{native, "", []string{"c"}, true},
			{rapid.SampledFrom([]Factory{native, other}).Draw(rt, "last"), "grown", []string{"a", "b", "t"}, true},
		} {
			u.size = s.size
			p := plan{parallelism: rapid.IntRange(1, 4).Draw(rt, "parallelism"), open: s.open, told: rapid.Bool().Draw(rt, "told"), canonical: [2]bool{s.canon, s.canon}}
			handles, store = u.version(p, s.f, handles, store)
		}
	})
}

// plan is what a version does.
type plan struct {
	parallelism int
	open        []string
	told        bool   // that all is open
	late        string // opened after a first snapshot; "" for one snapshot
	canonical   [2]bool
}

var stateNames = []string{"a", "b", "c", "t", "x"}

func (u *unopened) plan() plan {
	p := plan{parallelism: rapid.IntRange(1, 4).Draw(u.rt, "parallelism"), open: rapid.SliceOfDistinct(rapid.SampledFrom(stateNames), rapid.ID).Draw(u.rt, "open"),
		told: rapid.Bool().Draw(u.rt, "told"), canonical: [2]bool{rapid.Bool().Draw(u.rt, "canonical"), rapid.Bool().Draw(u.rt, "last")}}
	if rapid.Bool().Draw(u.rt, "twice") {
		p.late = rapid.SampledFrom(stateNames).Draw(u.rt, "late")
	}
	return p
}

type entryKey struct {
	ns int64
	k  string
}

// small and grown are two versions of a value.
type small struct{ N int64 }

type grown struct {
	S string
	N int64
}

type unopened struct {
	rt     *rapid.T
	tables map[string]map[entryKey]grown
	timers map[string]map[timer]bool
	grown  map[string]bool // tables that were opened with the grown value
	size   string          // "small" or "grown" when it is decided
	hash   *state.Hasher[string]
}

func newUnopened(rt *rapid.T) *unopened {
	return &unopened{rt: rt, tables: map[string]map[entryKey]grown{"a": {}, "b": {}, "c": {}}, timers: map[string]map[timer]bool{"t": {}, "x": {}},
		grown: map[string]bool{}, hash: state.NewHasher(serde.Must[string]())}
}

func (u *unopened) key(k string) state.Key[string] { return state.KeyOf(u.hash, k, maxParallelism) }

// version runs one version and returns its snapshot.
func (u *unopened) version(p plan, f Factory, restore []state.Handle, from *Store) ([]state.Handle, *Store) {
	rt := u.rt
	root, err := os.MkdirTemp("", "unopened")
	check(rt, err)
	defer os.RemoveAll(root) //nolint:errcheck // of a test
	bs := make([]state.Backend, p.parallelism)
	for i := range bs {
		bs[i], err = f.New(state.Config{Range: state.RangeOf(maxParallelism, len(bs), i), MaxParallelism: maxParallelism,
			Dir: filepath.Join(root, fmt.Sprint(i)), MemoryBytes: 16 << 20, Restore: restore, Source: from})
		check(rt, err)
		defer func() { check(rt, bs[i].Close()) }()
	}
	for _, n := range p.open {
		u.use(n, bs)
	}
	if p.told {
		u.opened(bs, p.open)
		if from != nil {
			from.Remove(from.Names()...) // nobody may need them any more
		}
	}
	store := &Store{InlineLimit: 40}
	id := int64(1)
	snapshot := func() (hs []state.Handle) {
		for _, b := range bs {
			s, err := b.Snapshot(id, p.canonical[id-1])
			check(rt, err)
			h, err := s.Write(context.Background(), store)
			check(rt, err)
			hs = append(hs, h)
		}
		for _, b := range bs {
			b.CheckpointCompleted(id)
		}
		id++
		return hs
	}
	if p.late == "" {
		id = 2
		return snapshot(), store
	}
	snapshot()
	if !slices.Contains(p.open, p.late) {
		u.use(p.late, bs)
	}
	return snapshot(), store
}

// opened checks what backends tell of what is not open.
func (u *unopened) opened(bs []state.Backend, open []string) {
	got := map[string]bool{}
	for _, b := range bs {
		all, err := b.Opened()
		check(u.rt, err)
		for _, x := range all {
			got[x.Name] = true
		}
	}
	want := map[string]bool{}
	for n, m := range u.tables {
		want[n] = len(m) > 0
	}
	for n, m := range u.timers {
		want[n] = len(m) > 0
	}
	for _, n := range open {
		delete(want, n)
	}
	maps.DeleteFunc(want, func(_ string, some bool) bool { return !some })
	if !maps.Equal(got, want) {
		u.rt.Fatalf("not open, but there: %v, want %v", got, want)
	}
}

// use opens a state in every subtask, compares it, and changes it.
func (u *unopened) use(name string, bs []state.Backend) {
	if m, ok := u.timers[name]; ok {
		u.useTimers(name, m, bs)
		return
	}
	if u.grown[name] || u.size == "grown" || u.size == "" && rapid.Bool().Draw(u.rt, "grown") {
		u.grown[name] = true
		useTable(u, name, bs, func(g grown) grown { return g }, func(g grown) grown { return g })
	} else {
		useTable(u, name, bs, func(s small) grown { return grown{N: s.N} }, func(g grown) small { return small{g.N} })
	}
}

func useTable[V any](u *unopened, name string, bs []state.Backend, up func(V) grown, down func(grown) V) {
	rt, m := u.rt, u.tables[name]
	tables := make([]state.Table[string, V], len(bs))
	got := map[entryKey]grown{}
	for i, b := range bs {
		t, err := backend.OpenTable(b, state.TableDesc[string, V]{Name: name, Key: serde.Must[string](), Value: serde.Must[V]()})
		check(rt, err)
		nss, err := t.Namespaces(nil)
		check(rt, err)
		for _, ns := range nss {
			check(rt, t.Scan(ns, func(k state.Key[string], v *V) error {
				got[entryKey{ns, strings.Clone(k.Key)}] = up(*v)
				return nil
			}))
		}
		tables[i] = t
	}
	if d := diff(m, got); d != "" {
		rt.Fatalf("state %s: %s", name, d)
	}
	for range rapid.IntRange(0, 10).Draw(rt, "changes") {
		e := entryKey{rapid.Int64Range(-1, 1).Draw(rt, "ns"), fmt.Sprint("k", rapid.IntRange(0, 15).Draw(rt, "k"))}
		k := u.key(e.k)
		t := tables[state.SubtaskOf(maxParallelism, len(bs), k.Group)]
		if rapid.IntRange(0, 3).Draw(rt, "delete") == 0 {
			check(rt, t.Delete(k, e.ns))
			delete(m, e)
			continue
		}
		v := down(grown{S: rapid.StringN(0, 5, -1).Draw(rt, "s"), N: rapid.Int64().Draw(rt, "n")})
		check(rt, t.Put(k, e.ns, v))
		m[e] = up(v)
	}
}

func (u *unopened) useTimers(name string, m map[timer]bool, bs []state.Backend) {
	rt := u.rt
	sets := make([]state.Timers[string], len(bs))
	got := map[timer]bool{}
	for i, b := range bs {
		s, err := backend.OpenTimers(b, state.TimersDesc[string]{Name: name, Key: serde.Must[string]()})
		check(rt, err)
		check(rt, s.PopUntil(1<<62, func(k state.Key[string], ns, at int64) error {
			got[timer{strings.Clone(k.Key), ns, at}] = true
			return nil
		}))
		sets[i] = s
	}
	if d := diff(m, got); d != "" {
		rt.Fatalf("timers %s: %s", name, d)
	}
	clear(m)
	for range rapid.IntRange(0, 10).Draw(rt, "timers") {
		x := timer{fmt.Sprint("k", rapid.IntRange(0, 15).Draw(rt, "k")), rapid.Int64Range(-1, 1).Draw(rt, "ns"), rapid.Int64Range(-5, 50).Draw(rt, "at")}
		k := u.key(x.key)
		check(rt, sets[state.SubtaskOf(maxParallelism, len(bs), k.Group)].Register(k, x.ns, x.at))
		m[x] = true
	}
}
