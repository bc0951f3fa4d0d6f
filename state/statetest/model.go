package statetest

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/thalweg/thalweg/state"
)

// timer is a timer of the model.
type timer struct {
	key string
	ns  int64
	at  int64
}

// model is the plainest implementation.
type model struct {
	strings map[int64]map[string]Value
	flats   map[int64]map[Flat]int64
	timers  map[timer]bool
}

func newModel() *model {
	return &model{map[int64]map[string]Value{}, map[int64]map[Flat]int64{}, map[timer]bool{}}
}

func copyValue(v Value) Value {
	v.S = strings.Clone(v.S)
	v.L = slices.Clone(v.L)
	v.M = maps.Clone(v.M)
	if v.P != nil {
		p := *v.P
		v.P = &p
	}
	return v
}

func (m *model) clone() *model {
	c := newModel()
	for ns, x := range m.strings {
		c.strings[ns] = map[string]Value{}
		for k, v := range x {
			c.strings[ns][k] = copyValue(v)
		}
	}
	for ns, x := range m.flats {
		c.flats[ns] = maps.Clone(x)
	}
	c.timers = maps.Clone(m.timers)
	return c
}

func (m *model) putString(ns int64, k string, v Value) {
	if m.strings[ns] == nil {
		m.strings[ns] = map[string]Value{}
	}
	m.strings[ns][k] = v
}

func (m *model) putFlat(ns int64, k Flat, v int64) {
	if m.flats[ns] == nil {
		m.flats[ns] = map[Flat]int64{}
	}
	m.flats[ns][k] = v
}

func dropEmpty[K comparable, V any](m map[int64]map[K]V) {
	for ns, x := range m {
		if len(x) == 0 {
			delete(m, ns)
		}
	}
}

// compare requires the cluster to hold exactly what the model holds.
func compare(t TB, c *Cluster, m *model) {
	t.Helper()
	dropEmpty(m.strings)
	dropEmpty(m.flats)
	gotS, gotF := map[int64]map[string]Value{}, map[int64]map[Flat]int64{}
	for i, s := range c.Subtasks {
		r := s.Backend.Range()
		collect(t, s.Strings, r, gotS, copyValue, strings.Clone)
		collect(t, s.Flats, r, gotF, func(v int64) int64 { return v }, func(k Flat) Flat { return k })
		if n := s.Timers.Len(); n < 0 {
			t.Fatalf("subtask %d: %d timers", i, n)
		}
	}
	if d := diff(m.strings, gotS); d != "" {
		t.Fatalf("%s: strings differ (-model +got): %s", c.Factory.Name, d)
	}
	if d := diff(m.flats, gotF); d != "" {
		t.Fatalf("%s: flats differ (-model +got): %s", c.Factory.Name, d)
	}
	want, ok := int64(0), false
	for x := range m.timers {
		if !ok || x.at < want {
			want, ok = x.at, true
		}
	}
	got, gotOK := int64(0), false
	for _, s := range c.Subtasks {
		if at, o := s.Timers.Next(); o && (!gotOK || at < got) {
			got, gotOK = at, true
		}
	}
	if ok != gotOK || got != want {
		t.Fatalf("%s: next timer %d %v, want %d %v", c.Factory.Name, got, gotOK, want, ok)
	}
}

// diff is cmp.Diff, which takes most of a test's time when there is nothing to tell.
func diff(want, got any) string {
	if reflect.DeepEqual(want, got) {
		return ""
	}
	return "not equal: " + cmp.Diff(want, got, cmp.AllowUnexported(place{}, timer{}))
}

func collect[K comparable, V any](t TB, tb state.Table[K, V], r state.Range, into map[int64]map[K]V, cp func(V) V, cpk func(K) K) {
	t.Helper()
	nss, err := tb.Namespaces(nil)
	if err != nil {
		t.Fatalf("namespaces: %v", err)
	}
	if !slices.IsSorted(nss) {
		t.Fatalf("namespaces %v are not sorted", nss)
	}
	for _, ns := range nss {
		if into[ns] == nil {
			into[ns] = map[K]V{}
		}
		n := 0
		if err := tb.Scan(ns, func(k state.Key[K], v *V) error {
			if !r.Contains(int(k.Group)) || state.GroupOf(k.Hash, maxParallelism) != k.Group {
				return fmt.Errorf("key %v in group %d", k.Key, k.Group)
			}
			if _, ok := into[ns][k.Key]; ok {
				return fmt.Errorf("key %v scanned twice in namespace %d", k.Key, ns)
			}
			into[ns][cpk(k.Key)] = cp(*v)
			n++
			return nil
		}); err != nil {
			t.Fatalf("scan: %v", err)
		}
		if n == 0 {
			t.Fatalf("namespace %d is listed and empty", ns)
		}
	}
}

var (
	genKey  = rapid.SampledFrom([]string{"", "a", "b", "c", "d", "e", "f", "g", "h", "a longer key that is no short string"})
	genNS   = rapid.SampledFrom([]int64{0, 0, 0, 0, 0, 1, 60000, -60000, -1 << 63, 1<<63 - 1})
	genAt   = rapid.SampledFrom([]int64{-1 << 63, -5, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 100, 1000, 1<<63 - 1})
	genFlat = rapid.Custom(func(t *rapid.T) Flat {
		return Flat{rapid.Int32Range(-40, 40).Draw(t, "a"), rapid.Uint8Range(0, 2).Draw(t, "b")}
	})
)

func genValue() *rapid.Generator[Value] {
	return rapid.Custom(func(t *rapid.T) Value {
		v := Value{N: rapid.Int64().Draw(t, "n"), S: rapid.StringN(0, 5, 20).Draw(t, "s")}
		if rapid.Bool().Draw(t, "refs") {
			v.L = rapid.SliceOfN(rapid.Int32(), 0, 3).Draw(t, "l")
			v.M = rapid.MapOfN(rapid.SampledFrom([]string{"x", "y"}), rapid.Int64(), 0, 2).Draw(t, "m")
			s := "pointed"
			v.P = &s
		}
		return v
	})
}

// machine drives a cluster and a model with the same operations.
type machine struct {
	c         *Cluster
	m         *model
	factories []Factory
	store     *Store
	id        int64
	completed []state.Handle // of the latest completed checkpoint, or of what the backends were started from
	pending   []pending
}

// pending is a snapshot not written yet.
type pending struct {
	id        int64
	canonical bool
	snaps     []state.Snapshot
	m         *model
}

// Model runs random operations against the factories and compares with a map after each step. The first factory starts; restores
// move to any of them.
func Model(t *testing.T, factories ...Factory) {
	rapid.Check(t, func(t *rapid.T) {
		x := &machine{m: newModel(), factories: factories, store: &Store{InlineLimit: rapid.SampledFrom([]int{0, 300, 1 << 20}).Draw(t, "inline")}}
		f := rapid.SampledFrom(factories).Draw(t, "factory")
		x.c = NewCluster(t, f, rapid.IntRange(1, 3).Draw(t, "parallelism"), nil, nil)
		defer func() {
			if err := x.c.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
			for _, p := range x.pending {
				for _, s := range p.snaps {
					s.Discard()
				}
			}
		}()
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				x.c.mangle()
				compare(t, x.c, x.m)
			},
			"strings":    x.doStrings,
			"strings2":   x.doStrings,
			"flats":      x.doFlats,
			"manyFlats":  x.manyFlats,
			"drop":       x.drop,
			"timers":     x.doTimers,
			"manyTimers": x.manyTimers,
			"pop":        x.pop,
			"snapshot":   x.snapshot,
			"finish":     x.finish,
			"move":       x.move,
		})
	})
}

func (x *machine) doStrings(t *rapid.T) {
	for range rapid.IntRange(1, 15).Draw(t, "times") {
		k, ns := genKey.Draw(t, "key"), genNS.Draw(t, "ns")
		s, key := x.c.str(k)
		old, had := x.m.strings[ns][k]
		switch rapid.IntRange(0, 3).Draw(t, "op") {
		case 0:
			v := genValue().Draw(t, "value")
			lent := copyValue(v)
			lent.S = x.c.lend(v.S)
			check(t, s.Strings.Put(key, ns, lent))
			x.m.putString(ns, k, copyValue(v))
			for i := range lent.L {
				lent.L[i] = -99
			}
			clear(lent.M)
		case 1:
			got, found, err := s.Strings.Get(key, ns)
			check(t, err)
			if found != had || !cmp.Equal(got, old) {
				t.Fatalf("get %q in %d: %+v %v, want %+v %v", k, ns, got, found, old, had)
			}
		case 2:
			p, found, err := s.Strings.Ref(key, ns)
			check(t, err)
			if found != had || !cmp.Equal(*p, old) {
				t.Fatalf("ref %q in %d: %+v %v, want %+v %v", k, ns, *p, found, old, had)
			}
			change(p)
			v := copyValue(old)
			change(&v)
			x.m.putString(ns, k, v)
		case 3:
			check(t, s.Strings.Delete(key, ns))
			delete(x.m.strings[ns], k)
		}
		x.c.mangle()
	}
}

// change updates a value in place, in every part that snapshots could share.
func change(v *Value) {
	v.N++
	for i := range v.L {
		v.L[i]++
	}
	v.L = append(v.L, int32(len(v.L)))
	if len(v.L) > 5 {
		v.L = v.L[:2]
	}
	if v.M == nil {
		v.M = map[string]int64{}
	}
	v.M["x"]++
	if v.P != nil {
		*v.P += "."
		if len(*v.P) > 20 {
			v.P = nil
		}
	}
}

func check(t TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v", err)
	}
}

func (x *machine) doFlats(t *rapid.T) {
	for range rapid.IntRange(1, 20).Draw(t, "times") {
		x.flat(t, genFlat.Draw(t, "key"), genNS.Draw(t, "ns"), rapid.IntRange(0, 3).Draw(t, "op"))
	}
}

func (x *machine) manyFlats(t *rapid.T) {
	ns, op := genNS.Draw(t, "ns"), rapid.IntRange(0, 3).Draw(t, "op")
	from, n := rapid.Int32Range(0, 300).Draw(t, "from"), rapid.Int32Range(1, 300).Draw(t, "n")
	for i := from; i < from+n; i++ {
		x.flat(t, Flat{A: i}, ns, op)
	}
}

func (x *machine) flat(t *rapid.T, k Flat, ns int64, op int) {
	s, key := x.c.flat(k)
	old, had := x.m.flats[ns][k]
	switch op {
	case 0:
		check(t, s.Flats.Put(key, ns, int64(k.A)))
		x.m.putFlat(ns, k, int64(k.A))
	case 1:
		got, found, err := s.Flats.Get(key, ns)
		check(t, err)
		if found != had || got != old {
			t.Fatalf("get %v in %d: %d %v, want %d %v", k, ns, got, found, old, had)
		}
	case 2:
		p, found, err := s.Flats.Ref(key, ns)
		check(t, err)
		if found != had || *p != old {
			t.Fatalf("ref %v in %d: %d %v, want %d %v", k, ns, *p, found, old, had)
		}
		*p += 3
		x.m.putFlat(ns, k, old+3)
	case 3:
		check(t, s.Flats.Delete(key, ns))
		delete(x.m.flats[ns], k)
	}
}

func (x *machine) drop(t *rapid.T) {
	ns := genNS.Draw(t, "ns")
	for _, s := range x.c.Subtasks {
		check(t, s.Strings.DropNamespace(ns))
		check(t, s.Flats.DropNamespace(ns))
	}
	delete(x.m.strings, ns)
	delete(x.m.flats, ns)
}

func (x *machine) doTimers(t *rapid.T) {
	for range rapid.IntRange(1, 10).Draw(t, "times") {
		tm := timer{genKey.Draw(t, "key"), genNS.Draw(t, "ns"), genAt.Draw(t, "at")}
		x.timer(t, tm, rapid.IntRange(0, 3).Draw(t, "op") > 0)
	}
}

func (x *machine) timer(t *rapid.T, tm timer, register bool) {
	s, key := x.c.str(tm.key)
	if register {
		check(t, s.Timers.Register(key, tm.ns, tm.at))
		x.m.timers[tm] = true
	} else {
		check(t, s.Timers.Delete(key, tm.ns, tm.at))
		delete(x.m.timers, tm)
	}
	x.c.mangle()
}

func (x *machine) manyTimers(t *rapid.T) {
	k, from, n := genKey.Draw(t, "key"), rapid.Int64Range(0, 500).Draw(t, "from"), rapid.Int64Range(1, 200).Draw(t, "n")
	reg := rapid.IntRange(0, 3).Draw(t, "op") > 0
	for i := range n {
		x.timer(t, timer{k, 0, from + i*7%n}, reg)
	}
}

// pop fires timers; some of them register another one, due or not, and delete one.
func (x *machine) pop(t *rapid.T) {
	until := rapid.OneOf(genAt, rapid.Int64Range(-10, 700)).Draw(t, "until")
	again := rapid.Int64Range(0, 20).Draw(t, "again")
	budget := 30
	for _, s := range x.c.Subtasks {
		last := int64(-1 << 63)
		err := s.Timers.PopUntil(until, func(k state.Key[string], ns, at int64) error {
			tm := timer{strings.Clone(k.Key), ns, at}
			if !x.m.timers[tm] {
				return fmt.Errorf("timer %+v fired, but is not registered", tm)
			}
			if at > until || at < last && budget == 30 {
				return fmt.Errorf("timer at %d fired after %d, until %d", at, last, until)
			}
			last = at
			delete(x.m.timers, tm)
			if ns == 0 && budget > 0 && again > 10 && at < 1000 {
				budget--
				n := timer{tm.key, 0, at + again}
				x.m.timers[n] = true
				if err := s.Timers.Register(k, n.ns, n.at); err != nil {
					return err
				}
				d := timer{tm.key, 0, at + 1}
				delete(x.m.timers, d)
				return s.Timers.Delete(k, d.ns, d.at)
			}
			return nil
		})
		check(t, err)
	}
	for tm := range x.m.timers {
		if tm.at <= until {
			t.Fatalf("timer %+v did not fire until %d", tm, until)
		}
	}
}

// snapshot takes the first part and keeps it open while other operations run.
func (x *machine) snapshot(t *rapid.T) {
	if len(x.pending) > 1 {
		return
	}
	x.id++
	can := rapid.Bool().Draw(t, "canonical")
	x.pending = append(x.pending, pending{x.id, can, x.c.Snapshot(t, x.id, can), x.m.clone()})
}

// finish ends one snapshot in one of the ways that there are, and looks into what was written.
func (x *machine) finish(t *rapid.T) {
	if len(x.pending) == 0 {
		return
	}
	p := x.pending[0]
	x.pending = x.pending[1:]
	switch rapid.IntRange(0, 4).Draw(t, "how") {
	case 0:
		for _, s := range p.snaps {
			s.Discard()
		}
		x.told(p.id, false)
	case 1:
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		for _, s := range p.snaps {
			if _, err := s.Write(ctx, x.store); err == nil {
				t.Fatalf("write with a cancelled context succeeded")
			}
		}
		x.told(p.id, false)
	case 2: // written, but the checkpoint is aborted and its files are deleted
		for _, h := range WriteAll(t, p.snaps, x.store) {
			x.deleteNew(h)
		}
		x.told(p.id, false)
	default:
		hs := WriteAll(t, p.snaps, x.store)
		checkHandles(t, x.c, hs)
		x.told(p.id, true)
		if !p.canonical { // a savepoint ends no checkpoint: what the one before wrote stays
			x.completed = hs
		}
		c := NewCluster(t, x.reader(t, hs), rapid.IntRange(1, 4).Draw(t, "parallelism"), hs, x.store)
		compare(t, c, p.m)
		check(t, c.Close())
	}
	if n := x.store.OpenStreams(); n != 0 {
		t.Fatalf("%d streams neither committed nor aborted", n)
	}
}

func (x *machine) told(id int64, completed bool) {
	for _, s := range x.c.Subtasks {
		if completed {
			s.Backend.CheckpointCompleted(id)
		} else {
			s.Backend.CheckpointAborted(id)
		}
	}
}

// deleteNew removes the files of an aborted checkpoint that no completed one names.
func (x *machine) deleteNew(h state.Handle) {
	keep := map[string]bool{}
	for _, c := range x.completed {
		for _, f := range c.Files {
			keep[f.Ref.Name] = true
		}
	}
	for _, f := range h.Files {
		if !keep[f.Ref.Name] {
			x.store.Remove(f.Ref.Name)
		}
	}
}

// reader is a factory that can read the handles.
func (x *machine) reader(t *rapid.T, hs []state.Handle) Factory {
	if hs[0].Format == "canonical" {
		return rapid.SampledFrom(x.factories).Draw(t, "reader")
	}
	return x.c.Factory
}

// move restarts the job from a snapshot taken now, at another parallelism and perhaps on another backend.
func (x *machine) move(t *rapid.T) {
	x.id++
	can := rapid.Bool().Draw(t, "canonical")
	for _, p := range x.pending {
		for _, s := range p.snaps {
			s.Discard()
		}
	}
	x.pending = nil
	hs := WriteAll(t, x.c.Snapshot(t, x.id, can), x.store)
	checkHandles(t, x.c, hs)
	x.told(x.id, true)
	f := x.reader(t, hs)
	check(t, x.c.Close())
	x.completed = hs
	x.c = NewCluster(t, f, rapid.IntRange(1, 4).Draw(t, "parallelism"), hs, x.store)
}
