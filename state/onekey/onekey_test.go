package onekey_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/state/backend"
	"github.com/thalweg/thalweg/state/hashmap"
	"github.com/thalweg/thalweg/state/onekey"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var cfg = state.Config{Range: state.Range{End: 128}, MaxParallelism: 128}

// TestAgainstHashmap: for one key after the other, the same calls have the same results as with the backend of STREAMING, where each key
// finds nothing before its first record.
func TestAgainstHashmap(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		one, err := onekey.New(cfg)
		if err != nil {
			rt.Fatal(err)
		}
		all, err := hashmap.New(cfg)
		if err != nil {
			rt.Fatal(err)
		}
		a, b := open(rt, one), open(rt, all)
		for i := range rapid.IntRange(1, 4).Draw(rt, "keys") {
			name := fmt.Sprintf("key-%d", i)
			key := state.Key[string]{Key: name, Hash: state.Hash32([]byte(name))}
			key.Group = state.GroupOf(key.Hash, cfg.MaxParallelism)
			for range rapid.IntRange(0, 60).Draw(rt, "calls") {
				op := call(rapid.IntRange(0, 12).Draw(rt, "op"), key, int64(rapid.IntRange(0, 4).Draw(rt, "ns")), rapid.StringN(0, 3, 3).Draw(rt, "v"))
				if x, y := op(rt, a), op(rt, b); x != y {
					rt.Fatalf("onekey says %s, hashmap %s", x, y)
				}
			}
			one.Clear()
			clearAll(rt, b)
			if a.t.Len()+a.m.Len()+a.x.Len() != 0 {
				rt.Fatal("something is left of a key")
			}
		}
	})
}

type stores struct {
	t state.Table[string, string]
	m state.MapTable[string, string, []string]
	x state.Timers[string]
}

func open(rt *rapid.T, b state.Backend) (s stores) {
	var err error
	check := func() {
		if err != nil {
			rt.Fatal(err)
		}
	}
	str := serde.Must[string]()
	s.t, err = backend.OpenTable(b, state.TableDesc[string, string]{Name: "t", Key: str, Value: str})
	check()
	s.m, err = backend.OpenMap(b, state.MapDesc[string, string, []string]{Name: "m", Key: str, Sub: str, Value: serde.Must[[]string]()})
	check()
	s.x, err = backend.OpenTimers(b, state.TimersDesc[string]{Name: "x", Key: str})
	check()
	return s
}

func clearAll(rt *rapid.T, s stores) {
	for _, drop := range []interface {
		Namespaces([]state.Namespace) ([]state.Namespace, error)
		DropNamespace(state.Namespace) error
	}{s.t, s.m} {
		ns, err := drop.Namespaces(nil)
		for _, n := range ns {
			if err == nil {
				err = drop.DropNamespace(n)
			}
		}
		if err != nil {
			rt.Fatal(err)
		}
	}
	if err := s.x.PopUntil(1<<60, func(state.Key[string], state.Namespace, int64) error { return nil }); err != nil {
		rt.Fatal(err)
	}
}

// call is one call with its results as text.
func call(op int, k state.Key[string], ns int64, v string) func(*rapid.T, stores) string {
	return func(rt *rapid.T, s stores) string {
		e := s.m.Entry(k, v)
		switch op {
		case 0:
			return fmt.Sprint(s.t.Put(k, ns, v))
		case 1:
			got, ok, err := s.t.Get(k, ns)
			return fmt.Sprint(got, ok, err)
		case 2:
			p, ok, err := s.t.Ref(k, ns)
			*p += v
			return fmt.Sprint(*p, ok, err)
		case 3:
			return fmt.Sprint(s.t.Delete(k, ns), s.m.Delete(e, ns))
		case 4:
			a, err := s.t.Namespaces(nil)
			b, err2 := s.m.Namespaces(nil)
			return fmt.Sprint(a, err, b, err2, s.t.Len(), s.m.Len())
		case 5:
			return fmt.Sprint(s.t.DropNamespace(ns), s.m.DropNamespace(ns))
		case 6:
			var all []string
			err := s.t.Scan(ns, func(k state.Key[string], v *string) error { all = append(all, fmt.Sprint(k, *v)); return nil })
			return fmt.Sprint(all, err)
		case 7:
			p, ok, err := s.m.Ref(e, ns)
			*p = append(*p, v)
			return fmt.Sprint(*p, ok, err)
		case 8:
			return fmt.Sprint(s.m.Put(e, ns, []string{v, v}))
		case 9:
			var all []string
			add := func(sub string, v *[]string) error { all = append(all, fmt.Sprint(sub, *v)); return nil }
			err := s.m.Each(k, ns, add)
			err2 := s.m.Scan(ns, func(k state.Key[state.Pair[string, string]], v *[]string) error { return add(fmt.Sprint(k), v) })
			slices.SortFunc(all, cmp.Compare[string])
			return fmt.Sprint(all, err, err2)
		case 10:
			return fmt.Sprint(s.m.Clear(k, ns))
		case 11:
			return fmt.Sprint(s.x.Register(k, ns, ns*7%5), s.x.Register(k, 0, ns), s.x.Delete(k, ns, int64(len(v))), s.x.Len())
		default:
			at, ok := s.x.Next()
			var fired []int64
			err := s.x.PopUntil(ns, func(k state.Key[string], _ state.Namespace, at int64) error {
				fired = append(fired, at)
				if at < ns {
					return s.x.Register(k, 9, at+1) // becomes due in this very call
				}
				return nil
			})
			return fmt.Sprint(at, ok, fired, err)
		}
	}
}

// A second key while one is held is a bug of the caller, and is told.
func TestOneKeyOnly(t *testing.T) {
	b, err := onekey.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	str := serde.Must[string]()
	tb, err := onekey.OpenTable(b, state.TableDesc[string, string]{Name: "t", Key: str, Value: str})
	if err != nil {
		t.Fatal(err)
	}
	if err := tb.Put(state.Key[string]{Key: "a"}, 0, "x"); err != nil {
		t.Fatal(err)
	}
	if err := tb.Put(state.Key[string]{Key: "b"}, 0, "x"); err == nil {
		t.Error("the state of two keys was taken")
	}
	if _, found, err := tb.Get(state.Key[string]{Key: "b"}, 0); found || err != nil {
		t.Error(found, err)
	}
	if _, err := onekey.OpenTable(b, state.TableDesc[string, int64]{Name: "t", Key: str, Value: serde.Must[int64]()}); err == nil {
		t.Error("a table was opened with other types")
	}
	if _, err := b.Snapshot(1, false); err == nil {
		t.Error("a snapshot was taken")
	}
}

// Timers of one key that are registered from the last to the first, as windows and joins of unsorted input do, cost no more each than others.
func BenchmarkTimersBackwards(b *testing.B) {
	for _, n := range []int64{1_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			be, err := onekey.New(cfg)
			if err != nil {
				b.Fatal(err)
			}
			x, err := onekey.OpenTimers(be, state.TimersDesc[string]{Name: "x", Key: serde.Must[string]()})
			if err != nil {
				b.Fatal(err)
			}
			k := state.Key[string]{Key: "k"}
			for b.Loop() {
				for at := n; at > 0; at-- {
					if err := x.Register(k, 0, at); err != nil {
						b.Fatal(err)
					}
				}
				if err := x.PopUntil(n, func(state.Key[string], state.Namespace, int64) error { return nil }); err != nil {
					b.Fatal(err)
				}
				be.Clear()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/timer")
		})
	}
}
