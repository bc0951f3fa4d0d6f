package statetest

import (
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

// lifetime is the time to live of the suite's values.
const lifetime = 10

type (
	timedList = []state.Timed[int64]
	place     struct {
		ns       int64
		key, sub string
	}
)

// live is a state.TTL.Live of one value, liveList of a list.
func live(v state.Timed[string], now int64) (state.Timed[string], bool, bool) {
	return v, v.At+lifetime > now, false
}

func liveList(v timedList, now int64) (timedList, bool, bool) {
	var left timedList
	for _, e := range v {
		if e.At+lifetime > now {
			left = append(left, e)
		}
	}
	return left, len(left) > 0, len(left) != len(v)
}

// mapTask is one subtask of the map suite.
type mapTask struct {
	backend state.Backend
	maps    state.MapTable[string, string, Value]
	timed   state.MapTable[string, string, state.Timed[string]]
	lists   state.Table[string, timedList]
}

// mapMachine drives maps and values that expire, and plain Go maps beside them.
type mapMachine struct {
	factories []Factory
	factory   Factory
	tasks     []*mapTask
	root      string
	now       int64
	id        int64
	store     *Store
	hasher    *state.Hasher[string]
	pending   []state.Snapshot
	maps      map[place]Value
	timed     map[place]state.Timed[string]
	lists     map[string]timedList
}

// Maps runs random operations on map tables and on values that expire, and compares with Go maps after each step; snapshots move the
// state to other parallelisms and, in canonical form, to other factories.
func Maps(t *testing.T, factories ...Factory) {
	rapid.Check(t, func(t *rapid.T) {
		root, err := os.MkdirTemp("", "statetest")
		check(t, err)
		x := &mapMachine{factories: factories, factory: rapid.SampledFrom(factories).Draw(t, "factory"), root: root, now: 100, store: &Store{},
			hasher: state.NewHasher(serde.Must[string]()), maps: map[place]Value{}, timed: map[place]state.Timed[string]{}, lists: map[string]timedList{}}
		x.open(t, rapid.IntRange(1, 4).Draw(t, "parallelism"), nil)
		defer func() {
			x.close(t)
			check(t, os.RemoveAll(root))
		}()
		t.Repeat(map[string]func(*rapid.T){
			"":      x.compare,
			"maps":  x.doMaps,
			"maps2": x.doMaps,
			"fill":  x.fill,
			"clear": x.clear,
			"drop":  x.drop,
			"timed": x.doTimed,
			"lists": x.doLists,
			"sweep": x.sweep,
			"snap":  x.snapshot,
			"move":  x.move,
		})
	})
}

func (x *mapMachine) open(t TB, parallelism int, restore []state.Handle) {
	t.Helper()
	x.id++
	x.tasks = nil
	now := func() int64 { return x.now }
	for i := range parallelism {
		b, err := x.factory.New(state.Config{Range: state.RangeOf(maxParallelism, parallelism, i), MaxParallelism: maxParallelism,
			Dir: filepath.Join(x.root, fmt.Sprint(x.id, "-", i)), MemoryBytes: 16 << 20, Restore: restore, Source: x.store, ReuseRestored: true})
		check(t, err)
		s := &mapTask{backend: b}
		x.tasks = append(x.tasks, s)
		str, num := serde.Must[string](), serde.Must[int64]()
		s.maps, err = backend.OpenMap(b, state.MapDesc[string, string, Value]{Name: "maps", Key: str, Sub: str, Value: serde.Must[Value]()})
		check(t, err)
		s.timed, err = backend.OpenMap(b, state.MapDesc[string, string, state.Timed[string]]{Name: "timed", Key: str, Sub: str, Value: state.TimedCodec(str),
			Adapt: state.AdaptTimed(str), TTL: &state.TTL[state.Timed[string]]{Now: now, Live: live, Snapshots: true}})
		check(t, err)
		s.lists, err = backend.OpenTable(b, state.TableDesc[string, timedList]{Name: "lists", Key: str, Value: state.ListCodec(state.TimedCodec(num)),
			Adapt: state.AdaptList(state.AdaptTimed(num)), TTL: &state.TTL[timedList]{Now: now, Live: liveList, Snapshots: true}})
		check(t, err)
	}
}

func (x *mapMachine) close(t TB) {
	t.Helper()
	for _, s := range x.pending {
		s.Discard()
	}
	x.pending = nil
	for _, s := range x.tasks {
		check(t, s.backend.Close())
	}
}

func (x *mapMachine) at(k string) (*mapTask, state.Key[string]) {
	key := state.KeyOf(x.hasher, k, maxParallelism)
	return x.tasks[state.SubtaskOf(maxParallelism, len(x.tasks), key.Group)], key
}

var genMapNS = rapid.SampledFrom([]int64{0, 0, 0, -60000, 1<<63 - 1})

func drawPlace(t *rapid.T) place {
	return place{genMapNS.Draw(t, "ns"), genKey.Draw(t, "key"), fmt.Sprint(rapid.IntRange(0, 12).Draw(t, "sub"))}
}

func (x *mapMachine) doMaps(t *rapid.T) {
	for range rapid.IntRange(1, 15).Draw(t, "times") {
		p := drawPlace(t)
		s, key := x.at(p.key)
		e := s.maps.Entry(key, p.sub)
		old, had := x.maps[p]
		switch rapid.IntRange(0, 3).Draw(t, "op") {
		case 0:
			v := genValue().Draw(t, "value")
			check(t, s.maps.Put(e, p.ns, v))
			x.maps[p] = copyValue(v)
		case 1:
			got, found, err := s.maps.Get(e, p.ns)
			check(t, err)
			if found != had || diff(got, old) != "" {
				t.Fatalf("get %+v: %+v %v, want %+v %v", p, got, found, old, had)
			}
		case 2:
			v, found, err := s.maps.Ref(e, p.ns)
			check(t, err)
			if found != had || diff(*v, old) != "" {
				t.Fatalf("ref %+v: %+v %v, want %+v %v", p, *v, found, old, had)
			}
			change(v)
			n := copyValue(old)
			change(&n)
			x.maps[p] = n
		case 3:
			check(t, s.maps.Delete(e, p.ns))
			delete(x.maps, p)
		}
	}
}

// drawLarge is most often the place of one of two maps, so that the same map is filled, moved and cleared.
func drawLarge(t *rapid.T) place {
	p := drawPlace(t)
	if rapid.IntRange(0, 9).Draw(t, "hot") > 0 {
		p = place{0, rapid.SampledFrom([]string{"a", "b"}).Draw(t, "large"), ""}
	}
	return p
}

// fill makes one map large.
func (x *mapMachine) fill(t *rapid.T) {
	p := drawLarge(t)
	s, key := x.at(p.key)
	for i := range rapid.IntRange(1, 200).Draw(t, "n") {
		p.sub = fmt.Sprint(i)
		check(t, s.maps.Put(s.maps.Entry(key, p.sub), p.ns, Value{N: int64(i)}))
		x.maps[p] = Value{N: int64(i)}
	}
}

func (x *mapMachine) clear(t *rapid.T) {
	p := drawLarge(t)
	s, key := x.at(p.key)
	check(t, s.maps.Clear(key, p.ns))
	maps.DeleteFunc(x.maps, func(q place, _ Value) bool { return q.key == p.key && q.ns == p.ns })
}

func (x *mapMachine) drop(t *rapid.T) {
	ns := genMapNS.Draw(t, "ns")
	for _, s := range x.tasks {
		check(t, s.maps.DropNamespace(ns))
	}
	maps.DeleteFunc(x.maps, func(q place, _ Value) bool { return q.ns == ns })
}

func (x *mapMachine) doTimed(t *rapid.T) {
	for range rapid.IntRange(1, 40).Draw(t, "times") {
		x.now += rapid.Int64Range(0, 1).Draw(t, "pass")
		p := drawPlace(t)
		s, key := x.at(p.key)
		v := state.Timed[string]{At: x.now, V: fmt.Sprint(x.now)}
		check(t, s.timed.Put(s.timed.Entry(key, p.sub), p.ns, v))
		x.timed[p] = v
	}
}

func (x *mapMachine) doLists(t *rapid.T) {
	for range rapid.IntRange(1, 20).Draw(t, "times") {
		x.now += rapid.Int64Range(0, 1).Draw(t, "pass")
		k := genKey.Draw(t, "key")
		s, key := x.at(k)
		l, _, err := s.lists.Ref(key, 0)
		check(t, err)
		*l, _, _ = liveList(*l, x.now)
		x.lists[k], _, _ = liveList(x.lists[k], x.now)
		e := state.Timed[int64]{At: x.now, V: rapid.Int64().Draw(t, "v")}
		*l = append(*l, e)
		x.lists[k] = append(x.lists[k], e)
	}
}

// sweep lets time pass and goes over everything: nothing that has expired is left.
func (x *mapMachine) sweep(t *rapid.T) {
	x.now += rapid.Int64Range(0, 2*lifetime).Draw(t, "pass")
	step := rapid.IntRange(1, 100).Draw(t, "step")
	for _, s := range x.tasks {
		for range 4 + 1000/step {
			check(t, s.timed.(state.Sweeper).Sweep(step))
			check(t, s.lists.(state.Sweeper).Sweep(step))
		}
	}
	maps.DeleteFunc(x.timed, func(_ place, v state.Timed[string]) bool { return v.At+lifetime <= x.now })
	for k, l := range x.lists {
		if l, keep, _ := liveList(l, x.now); keep {
			x.lists[k] = l
		} else {
			delete(x.lists, k)
		}
	}
	timed, lists := x.scanTimed(t)
	if d := diff(x.timed, timed); d != "" {
		t.Fatalf("%s: after the sweep (-model +got): %s", x.factory.Name, d)
	}
	if d := diff(x.lists, lists); d != "" {
		t.Fatalf("%s: lists after the sweep (-model +got): %s", x.factory.Name, d)
	}
}

func (x *mapMachine) scanTimed(t TB) (map[place]state.Timed[string], map[string]timedList) {
	t.Helper()
	timed, lists := map[place]state.Timed[string]{}, map[string]timedList{}
	for _, s := range x.tasks {
		nss, err := s.timed.Namespaces(nil)
		check(t, err)
		for _, ns := range nss {
			check(t, s.timed.Scan(ns, func(k state.Key[state.Pair[string, string]], v *state.Timed[string]) error {
				timed[place{ns, k.Key.Key, k.Key.Sub}] = *v
				return nil
			}))
		}
		check(t, s.lists.Scan(0, func(k state.Key[string], v *timedList) error {
			lists[k.Key] = slices.Clone(*v)
			return nil
		}))
	}
	return timed, lists
}

// compare looks at every map key by key and as a whole; of values that expire, those that have not are there as they were.
func (x *mapMachine) compare(t *rapid.T) {
	got := map[place]Value{}
	for _, s := range x.tasks {
		nss, err := s.maps.Namespaces(nil)
		check(t, err)
		for _, ns := range nss {
			check(t, s.maps.Scan(ns, func(k state.Key[state.Pair[string, string]], v *Value) error {
				p := place{ns, strings.Clone(k.Key.Key), strings.Clone(k.Key.Sub)}
				if _, twice := got[p]; twice {
					return fmt.Errorf("%+v scanned twice", p)
				}
				got[p] = copyValue(*v)
				return nil
			}))
		}
	}
	if d := diff(x.maps, got); d != "" {
		t.Fatalf("%s: maps differ (-model +got): %s", x.factory.Name, d)
	}
	byKey := map[place]map[string]Value{}
	for p, v := range x.maps {
		q := place{p.ns, p.key, ""}
		if byKey[q] == nil {
			byKey[q] = map[string]Value{}
		}
		byKey[q][p.sub] = v
	}
	for _, k := range []string{"", "a", "b", "c", "d", "e", "f", "g", "h", "a longer key that is no short string", "absent"} {
		s, key := x.at(k)
		for _, ns := range []int64{0, -60000, 1<<63 - 1} {
			one := map[string]Value{}
			check(t, s.maps.Each(key, ns, func(sub string, v *Value) error {
				if _, twice := one[sub]; twice {
					return fmt.Errorf("%q is twice in the map of %q", sub, k)
				}
				one[strings.Clone(sub)] = copyValue(*v)
				return nil
			}))
			if want := byKey[place{ns, k, ""}]; len(one) != len(want) || len(want) > 0 && diff(want, one) != "" {
				t.Fatalf("%s: map of %q in %d: %s", x.factory.Name, k, ns, diff(want, one))
			}
		}
	}
	timed, lists := x.scanTimed(t)
	for p, v := range x.timed {
		if g, ok := timed[p]; v.At+lifetime > x.now && (!ok || g != v) {
			t.Fatalf("%s: %+v is %+v %v, want %+v", x.factory.Name, p, g, ok, v)
		}
	}
	for k, l := range x.lists {
		want, _, _ := liveList(l, x.now)
		if g, _, _ := liveList(lists[k], x.now); !slices.Equal(g, want) {
			t.Fatalf("%s: list of %q is %+v, want %+v", x.factory.Name, k, g, want)
		}
	}
}

// snapshot leaves a snapshot open, so that later changes meet frozen pages and changes not yet applied.
func (x *mapMachine) snapshot(t *rapid.T) {
	for _, s := range x.pending {
		s.Discard()
	}
	x.pending = nil
	x.id++
	for _, s := range x.tasks {
		n, err := s.backend.Snapshot(x.id, rapid.Bool().Draw(t, "canonical"))
		check(t, err)
		x.pending = append(x.pending, n)
	}
}

// move restarts from a snapshot taken before further changes were made.
func (x *mapMachine) move(t *rapid.T) {
	x.id++
	canonical := rapid.Bool().Draw(t, "canonical")
	var snaps []state.Snapshot
	for _, s := range x.tasks {
		n, err := s.backend.Snapshot(x.id, canonical)
		check(t, err)
		snaps = append(snaps, n)
	}
	for _, s := range x.tasks { // the snapshot does not see this
		for _, k := range []string{"a", "c"} {
			if at, key := x.at(k); at == s {
				check(t, s.maps.Clear(key, 0))
				check(t, s.maps.Put(s.maps.Entry(key, "late"), 0, Value{N: -1}))
			}
		}
	}
	hs := WriteAll(t, snaps, x.store)
	x.close(t)
	if hs[0].Format == "canonical" {
		x.factory = rapid.SampledFrom(x.factories).Draw(t, "reader")
	}
	x.open(t, rapid.IntRange(1, 4).Draw(t, "parallelism"), hs)
	if canonical { // what has expired was left out
		timed, _ := x.scanTimed(t)
		for p, v := range timed {
			if v.At+lifetime <= x.now {
				t.Fatalf("%+v is in a snapshot at %d, though it expired: %+v", p, x.now, v)
			}
		}
	}
}
