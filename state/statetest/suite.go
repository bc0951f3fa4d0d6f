package statetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/state/backend"
)

// Suite runs every test that needs no random operations. reader may be any backend; it reads f's canonical snapshots.
func Suite(t *testing.T, f, reader Factory) {
	for name, test := range map[string]func(*testing.T, Factory, Factory){
		"OverlappingSnapshots": overlappingSnapshots,
		"ReusedPages":          reusedPages,
		"AbortedCheckpoint":    abortedCheckpoint,
		"NativeSavepoint":      nativeSavepoint,
		"FailingSink":          failingSink,
		"Corruption":           corruption,
		"BadHandles":           badHandles,
		"CloseAnytime":         closeAnytime,
		"Evolution":            evolution,
		"Rescale":              rescale,
		"OpenTwice":            openTwice,
		"Take":                 take,
		"Texts":                Texts,
	} {
		t.Run(name, func(t *testing.T) { test(t, f, reader) })
	}
}

func (c *Cluster) put(t TB, m *model, ns int64, k string, v Value) {
	t.Helper()
	s, key := c.str(k)
	check(t, s.Strings.Put(key, ns, v))
	m.putString(ns, strings.Clone(k), copyValue(v))
	c.mangle()
}

func (c *Cluster) change(t TB, m *model, ns int64, k string) {
	t.Helper()
	s, key := c.str(k)
	p, _, err := s.Strings.Ref(key, ns)
	check(t, err)
	change(p)
	v := copyValue(m.strings[ns][k])
	change(&v)
	m.putString(ns, strings.Clone(k), v)
	c.mangle()
}

func fill(t TB, c *Cluster, m *model, n int) {
	t.Helper()
	for i := range n {
		p := "p"
		c.put(t, m, int64(i%3), fmt.Sprint("key-", i), Value{N: int64(i), L: []int32{1, 2, 3}, M: map[string]int64{"x": 1}, P: &p})
		s, key := c.flat(Flat{A: int32(i)})
		check(t, s.Flats.Put(key, int64(i%2), int64(i)))
		m.putFlat(int64(i%2), Flat{A: int32(i)}, int64(i))
		s, sk := c.str(fmt.Sprint("key-", i))
		check(t, s.Timers.Register(sk, int64(i%5), int64(i/2)))
		m.timers[timer{fmt.Sprint("key-", i), int64(i % 5), int64(i / 2)}] = true
		c.mangle()
	}
}

// verify restores handles and compares.
func verify(t TB, f Factory, parallelism int, hs []state.Handle, src state.Source, m *model) {
	t.Helper()
	c := NewCluster(t, f, parallelism, hs, src)
	compare(t, c, m)
	drainTimers(t, c, m)
	check(t, c.Close())
}

// drainTimers fires every timer and compares, order included.
func drainTimers(t TB, c *Cluster, m *model) {
	t.Helper()
	got := map[timer]bool{}
	for _, s := range c.Subtasks {
		last := int64(-1 << 63)
		check(t, s.Timers.PopUntil(1<<63-1, func(k state.Key[string], ns, at int64) error {
			if at < last {
				return fmt.Errorf("timer at %d after %d", at, last)
			}
			last = at
			tm := timer{strings.Clone(k.Key), ns, at}
			if got[tm] {
				return fmt.Errorf("timer %+v fired twice", tm)
			}
			got[tm] = true
			return nil
		}))
	}
	if d := diff(m.timers, got); d != "" {
		t.Fatalf("%s: timers differ: %s", c.Factory.Name, d)
	}
}

// Snapshots that overlap each see their own moment, in whatever order they end.
func overlappingSnapshots(t *testing.T, f, reader Factory) {
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 0, 2}} {
		c, m, store := NewCluster(t, f, 2, nil, nil), newModel(), &Store{}
		fill(t, c, m, 200)
		var snaps [][]state.Snapshot
		var models []*model
		for id := range 3 {
			snaps = append(snaps, c.Snapshot(t, int64(id+1), id != 1))
			models = append(models, m.clone())
			for i := range 100 - 50*min(id, 2) { // none after the last: pages then are older than the epoch
				c.change(t, m, int64(i%3), fmt.Sprint("key-", i))
			}
		}
		for _, o := range order {
			hs := WriteAll(t, snaps[o], store)
			r := reader
			if o == 1 {
				r = f
			}
			verify(t, r, 3, hs, store, models[o])
			for i := range 150 {
				c.change(t, m, int64(i%3), fmt.Sprint("key-", i))
			}
			compare(t, c, m)
		}
		check(t, c.Close())
	}
}

// What Take hands over as owned may be changed: neither the table nor a snapshot that is being written sees it. Afterwards the entry is gone.
func take(t *testing.T, f, reader Factory) {
	c, m, store := NewCluster(t, f, 1, nil, nil), newModel(), &Store{}
	fill(t, c, m, 300)
	s := c.Subtasks[0]
	table, ok := s.Strings.(state.Taker[string, Value])
	if !ok {
		t.Fatalf("%s has no Take", f.Name)
	}
	owned := 0
	takeSome := func(from, to int, changed bool) {
		for i := from; i < to; i++ {
			ns, name := int64(i%3), fmt.Sprint("key-", i)
			if changed {
				c.change(t, m, ns, name)
			}
			_, key := c.str(name)
			v, own, err := table.Take(key, ns)
			check(t, err)
			if own {
				owned++
				if got, want := fmt.Sprint(v.N, v.S, v.L, v.M), m.strings[ns][name]; got != fmt.Sprint(want.N, want.S, want.L, want.M) {
					t.Errorf("took %s of %s, want %+v", got, name, want)
				}
				clear(v.L)
				clear(v.M)
			}
			delete(m.strings[ns], name)
			if _, found, err := s.Strings.Get(key, ns); found || err != nil {
				t.Errorf("%s is there after Take (%v)", name, err)
			}
			if _, own, err = table.Take(key, ns); own || err != nil {
				t.Errorf("took %s twice (%v)", name, err)
			}
			c.mangle()
		}
	}
	takeSome(0, 100, true)
	if owned != 100 {
		t.Errorf("%d of 100 values were owned that had just been changed", owned)
	}
	snaps, then := c.Snapshot(t, 1, true), m.clone()
	takeSome(100, 200, false)
	for i := 200; i < 250; i++ {
		c.change(t, m, int64(i%3), fmt.Sprint("key-", i))
	}
	takeSome(200, 300, false)
	verify(t, reader, 2, WriteAll(t, snaps, store), store, then)
	compare(t, c, m)
	check(t, c.Close())
}

// Memory of a dropped namespace is not used again while a snapshot reads it.
func reusedPages(t *testing.T, f, reader Factory) {
	c, m, store := NewCluster(t, f, 1, nil, nil), newModel(), &Store{}
	fill(t, c, m, 1000)
	snaps, then := c.Snapshot(t, 1, true), m.clone()
	for ns := range int64(3) {
		check(t, c.Subtasks[0].Flats.DropNamespace(ns))
		check(t, c.Subtasks[0].Strings.DropNamespace(ns))
		delete(m.flats, ns)
		delete(m.strings, ns)
	}
	for i := range int32(2000) {
		s, key := c.flat(Flat{A: -i})
		check(t, s.Flats.Put(key, 7, 7))
		m.putFlat(7, Flat{A: -i}, 7)
	}
	hs := WriteAll(t, snaps, store)
	verify(t, reader, 2, hs, store, then)
	compare(t, c, m)
	verify(t, reader, 2, WriteAll(t, c.Snapshot(t, 2, true), store), store, m)
	check(t, c.Close())
}

// A savepoint in the backend's own form refers to no file of a checkpoint, and no checkpoint to one of its files, whatever is told of it.
func nativeSavepoint(t *testing.T, f, _ Factory) {
	c, m, store := NewCluster(t, f, 2, nil, nil), newModel(), &Store{}
	fill(t, c, m, 300)
	tell := func(id int64) {
		for _, s := range c.Subtasks {
			s.Backend.CheckpointCompleted(id)
		}
	}
	WriteAll(t, c.Snapshot(t, 1, false), store)
	tell(1)
	checkpoint := store.Names()
	savepoint := WriteAll(t, c.Snapshot(t, 2, false), state.Anew{Sink: store, Apart: true})
	tell(2)
	then := m.clone()
	for i := range 50 {
		c.put(t, m, 1, fmt.Sprint("later-", i), Value{N: int64(i)})
	}
	next := WriteAll(t, c.Snapshot(t, 3, false), store)
	own := map[string]bool{}
	for _, h := range savepoint {
		for _, x := range h.Files {
			own[x.Ref.Name] = true
		}
	}
	for _, n := range checkpoint {
		if own[n] {
			t.Errorf("the savepoint refers to %s of the checkpoint before", n)
		}
	}
	for _, h := range next {
		for _, x := range h.Files {
			if own[x.Ref.Name] {
				t.Errorf("the checkpoint refers to %s of the savepoint before", x.Ref.Name)
			}
		}
	}
	verify(t, f, 3, next, store, m)
	for _, n := range store.Names() {
		if !own[n] {
			store.Remove(n)
		}
	}
	verify(t, f, 1, savepoint, store, then)
	check(t, c.Close())
}

// A checkpoint that was aborted, its files deleted, is not referred to by later ones; a completed one is.
func abortedCheckpoint(t *testing.T, f, _ Factory) {
	c, m, store := NewCluster(t, f, 2, nil, nil), newModel(), &Store{}
	files := func(hs []state.Handle) (out []string) {
		for _, h := range hs {
			for _, x := range h.Files {
				out = append(out, x.Ref.Name)
			}
		}
		return out
	}
	tell := func(id int64, completed bool) {
		for _, s := range c.Subtasks {
			if completed {
				s.Backend.CheckpointCompleted(id)
			} else {
				s.Backend.CheckpointAborted(id)
			}
		}
	}
	var last []state.Handle
	for round := range int64(4) {
		for i := range 300 {
			c.put(t, m, round, fmt.Sprint("key-", i), Value{N: round, S: strings.Repeat("s", 100)})
		}
		aborted := WriteAll(t, c.Snapshot(t, 2*round+1, false), store)
		for _, n := range files(aborted) {
			if !slices.Contains(files(last), n) {
				store.Remove(n)
			}
		}
		tell(2*round+1, false)
		hs := WriteAll(t, c.Snapshot(t, 2*round+2, false), store)
		checkHandles(t, c, hs)
		tell(2*round+2, true)
		for _, n := range store.Names() {
			if !slices.Contains(files(hs), n) {
				store.Remove(n)
			}
		}
		last = hs
		verify(t, f, 3, hs, store, m)
		verify(t, f, 2, hs, store, m)
	}
	if f.Native { // nothing changes any more: only the small file is sent, as soon as the store has come to rest
		var sent []string
		for id := int64(100); ; id++ {
			sent = nil
			for _, h := range WriteAll(t, c.Snapshot(t, id, false), store) {
				for _, x := range h.Files {
					if x.Ref.Scope == state.Exclusive && x.Ref.Size != h.New {
						sent = append(sent, fmt.Sprintf("%d of %d bytes", h.New, h.Size))
					}
				}
			}
			if len(sent) == 0 {
				break
			}
			if id == 150 {
				t.Errorf("checkpoints without changes go on to send %v", sent)
				break
			}
			tell(id, true)
		}
	}
	check(t, c.Close())
}

// A sink that fails leaves nothing open, and the next snapshot is complete.
func failingSink(t *testing.T, f, _ Factory) {
	c, m := NewCluster(t, f, 1, nil, nil), newModel()
	fill(t, c, m, 500)
	for id, limit := range []int{1, 100, 5000, 20000} {
		bad := &Store{FailAfter: limit}
		for i, s := range c.Snapshot(t, int64(id+1), id%2 == 0) {
			if _, err := s.Write(context.Background(), bad); !errors.Is(err, ErrInjected) {
				t.Fatalf("write %d to a failing sink: %v", i, err)
			}
		}
		if n := bad.OpenStreams(); n != 0 {
			t.Fatalf("%d streams left open", n)
		}
		c.Subtasks[0].Backend.CheckpointAborted(int64(id + 1))
		c.change(t, m, 0, "key-3")
	}
	good := &Store{}
	verify(t, f, 2, WriteAll(t, c.Snapshot(t, 9, false), good), good, m)
	check(t, c.Close())
}

// Files that were cut or changed give errors: never a panic, never other state.
func corruption(t *testing.T, f, _ Factory) {
	c, m, store := NewCluster(t, f, 1, nil, nil), newModel(), &Store{}
	fill(t, c, m, 40)
	for id, canonical := range []bool{true, false} {
		hs := WriteAll(t, c.Snapshot(t, int64(id+1), canonical), store)
		for _, file := range hs[0].Files {
			good := store.Content(file.Ref.Name)
			try := func(what string, b []byte) {
				store.Replace(file.Ref.Name, b)
				x, err := TryCluster(f, 1, hs, store)
				if err != nil {
					return
				}
				compare(t, x, m)
				drainTimers(t, x, m)
				check(t, x.Close())
				_ = what
			}
			step := max(len(good)/60, 1)
			for i := 0; i < len(good); i += step {
				b := slices.Clone(good)
				b[i] ^= 0x41
				try(fmt.Sprint("changed at ", i), b)
				try(fmt.Sprint("cut at ", i), good[:i])
			}
			store.Replace(file.Ref.Name, good)
		}
		verify(t, f, 1, hs, store, m)
		hs[0].Files[0].Ref.Name = "missing"
		if _, err := TryCluster(f, 1, hs, store); err == nil {
			t.Fatal("restored from a file that does not exist")
		}
	}
	check(t, c.Close())
}

// Handles that do not fit are refused with an error that says why.
func badHandles(t *testing.T, f, _ Factory) {
	c, m, store := NewCluster(t, f, 2, nil, nil), newModel(), &Store{}
	fill(t, c, m, 40)
	for id, canonical := range []bool{true, false} {
		hs := WriteAll(t, c.Snapshot(t, int64(id+1), canonical), store)
		if _, err := TryCluster(f, 1, append(slices.Clone(hs), hs[0]), store); err == nil || !strings.Contains(err.Error(), "two handles") {
			t.Errorf("a key group twice: %v", err)
		}
		_, err := f.New(state.Config{Range: state.Range{End: 8}, MaxParallelism: 32, Dir: filepath.Join(t.TempDir(), "x"), MemoryBytes: 16 << 20, Restore: hs, Source: store})
		if err == nil || !strings.Contains(err.Error(), "max parallelism") {
			t.Errorf("another max parallelism: %v", err)
		}
		foreign := slices.Clone(hs)
		foreign[0].Format = "foreign"
		if _, err := TryCluster(f, 1, foreign, store); err == nil || !strings.Contains(err.Error(), "canonical savepoint") {
			t.Errorf("a foreign format: %v", err)
		}
	}
	check(t, c.Close())
}

// blockingSink blocks every write until the context ends.
type blockingSink struct {
	Store
	entered chan struct{}
}

func (b *blockingSink) Create(ctx context.Context, _ state.Scope) (state.Stream, error) {
	b.entered <- struct{}{}
	<-ctx.Done()
	return nil, ctx.Err()
}

// Close works in the middle of a scan, with snapshots that nobody wrote, and while one is being written.
func closeAnytime(t *testing.T, f, _ Factory) {
	for i := range 12 {
		c, m := NewCluster(t, f, 1, nil, nil), newModel()
		fill(t, c, m, 300)
		first := WriteAll(t, c.Snapshot(t, 1, false), &Store{})
		_ = first
		stop := errors.New("stop")
		n := 0
		err := c.Subtasks[0].Strings.Scan(0, func(state.Key[string], *Value) error {
			if n++; n > i {
				return stop
			}
			return nil
		})
		if !errors.Is(err, stop) {
			t.Fatalf("scan: %v", err)
		}
		c.change(t, m, 0, "key-0")
		waiting := c.Snapshot(t, 2, i%2 == 0)
		running := c.Snapshot(t, 3, i%3 == 0)
		sink := &blockingSink{entered: make(chan struct{}, 100)}
		done := make(chan error)
		ctx, cancel := context.WithCancel(context.Background())
		go func() {
			_, err := running[0].Write(ctx, sink)
			done <- err
		}()
		<-sink.entered
		if !f.Native { // such a snapshot needs nothing of the backend and goes on
			cancel()
		}
		if err := c.Close(); err != nil {
			t.Fatalf("close: %v", err)
		}
		if err := <-done; err == nil {
			t.Fatal("write succeeded after its sink failed")
		}
		cancel()
		waiting[0].Discard()
		if _, err := os.Stat(c.root); !os.IsNotExist(err) {
			t.Fatalf("files left behind: %v", err)
		}
	}
}

type evolvedV1 struct {
	Count int32
	Gone  map[string][]int32
	Name  string
}

type evolvedV2 struct {
	Title string  `thalweg:"alias=Name"`
	Added float64 `thalweg:"default=0.5"`
	Count int64
}

type evolvedBad struct {
	Count string
	Name  string
}

// State of an earlier version of a type is read: new fields have their default, removed ones are passed over, renamed ones keep their value, numbers may
// have become wider, also those that are a whole value. What does not fit is refused.
func evolution(t *testing.T, f, reader Factory) {
	for i, canonical := range []bool{true, false} {
		store := &Store{}
		cfg := func(hs ...state.Handle) state.Config {
			return state.Config{Range: state.Range{End: 16}, MaxParallelism: 16, MemoryBytes: 16 << 20, Dir: filepath.Join(t.TempDir(), fmt.Sprint(i, len(hs))), Restore: hs, Source: store}
		}
		b, err := f.New(cfg())
		check(t, err)
		t1, err := backend.OpenTable(b, state.TableDesc[string, evolvedV1]{Name: "x", Key: serde.Must[string](), Value: serde.Must[evolvedV1]()})
		check(t, err)
		h := state.NewHasher(serde.Must[string]())
		key := func(i int) state.Key[string] { return state.KeyOf(h, fmt.Sprint("k", i), 16) }
		for i := range 50 {
			check(t, t1.Put(key(i), 5, evolvedV1{int32(i), map[string][]int32{"a": {1, 2}}, fmt.Sprint("n", i)}))
		}
		n1, err := backend.OpenTable(b, state.TableDesc[string, int32]{Name: "n", Key: serde.Must[string](), Value: serde.Must[int32]()})
		check(t, err)
		l1, err := backend.OpenTable(b, state.TableDesc[string, []float32]{Name: "l", Key: serde.Must[string](), Value: state.ListCodec(serde.Must[float32]())})
		check(t, err)
		for i := range 50 {
			check(t, n1.Put(key(i), 0, int32(-i)))
			check(t, l1.Put(key(i), 0, []float32{float32(i), 0.1}))
		}
		s, err := b.Snapshot(1, canonical)
		check(t, err)
		hs := WriteAll(t, []state.Snapshot{s}, store)
		check(t, b.Close())
		r := f
		if canonical {
			r = reader
		}
		for _, rng := range []state.Range{{End: 16}, {Start: 3, End: 9}} {
			c := cfg(hs...)
			c.Range = rng
			b, err := r.New(c)
			check(t, err)
			_, err = backend.OpenTable(b, state.TableDesc[string, evolvedBad]{Name: "x", Key: serde.Must[string](), Value: serde.Must[evolvedBad]()})
			if err == nil || !strings.Contains(err.Error(), "Count: stored int32, now string") {
				t.Fatalf("incompatible value: %v", err)
			}
			_, err = backend.OpenTable(b, state.TableDesc[int64, evolvedV1]{Name: "x", Key: serde.Must[int64](), Value: serde.Must[evolvedV1]()})
			if err == nil || !strings.Contains(err.Error(), "key") {
				t.Fatalf("another key: %v", err)
			}
			if _, err = backend.OpenTimers(b, state.TimersDesc[string]{Name: "x", Key: serde.Must[string]()}); err == nil {
				t.Fatal("a table opened as timers")
			}
			t2, err := backend.OpenTable(b, state.TableDesc[string, evolvedV2]{Name: "x", Key: serde.Must[string](), Value: serde.Must[evolvedV2]()})
			check(t, err)
			for i := range 50 {
				if k := key(i); rng.Contains(int(k.Group)) {
					v, found, err := t2.Get(k, 5)
					check(t, err)
					if want := (evolvedV2{fmt.Sprint("n", i), 0.5, int64(i)}); !found || v != want {
						t.Fatalf("key %d: %+v %v, want %+v", i, v, found, want)
					}
					check(t, t2.Put(k, 6, v))
				}
			}
			n2, err := backend.OpenTable(b, state.TableDesc[string, int64]{Name: "n", Key: serde.Must[string](), Value: serde.Must[int64]()})
			check(t, err)
			wide := serde.Must[float64]()
			l2, err := backend.OpenTable(b, state.TableDesc[string, []float64]{Name: "l", Key: serde.Must[string](), Value: state.ListCodec(wide), Adapt: state.AdaptList(state.Adapt(wide))})
			check(t, err)
			for i := range 50 {
				k := key(i)
				if !rng.Contains(int(k.Group)) {
					continue
				}
				n, found, err := n2.Get(k, 0)
				l, found2, err2 := l2.Get(k, 0)
				if err != nil || err2 != nil || !found || !found2 || n != int64(-i) || !slices.Equal(l, []float64{float64(i), float64(float32(0.1))}) {
					t.Fatalf("key %d: %v %v %v, %v %v %v", i, n, found, err, l, found2, err2)
				}
			}
			for _, form := range []bool{true, false} { // values of both versions, stored side by side
				s, err := b.Snapshot(2, form)
				check(t, err)
				hs2 := WriteAll(t, []state.Snapshot{s}, store)
				again := r
				if form {
					again = reader
				}
				c := cfg(append(hs2, state.Handle{Range: state.Range{Start: 16, End: 17}})...)
				c.Range = state.Range{Start: 4, End: 9}
				x, err := again.New(c)
				check(t, err)
				t3, err := backend.OpenTable(x, state.TableDesc[string, evolvedV2]{Name: "x", Key: serde.Must[string](), Value: serde.Must[evolvedV2]()})
				check(t, err)
				if nss, err := t3.Namespaces(nil); err != nil || !slices.Equal(nss, []int64{5, 6}) {
					t.Fatalf("namespaces %v, %v", nss, err)
				}
				for i := range 50 {
					for ns := range int64(7) {
						want := evolvedV2{fmt.Sprint("n", i), 0.5, int64(i)}
						if k := key(i); ns >= 5 && c.Range.Contains(int(k.Group)) {
							if v, found, err := t3.Get(k, ns); err != nil || !found || v != want {
								t.Fatalf("key %d in %d: %+v %v %v, want %+v", i, ns, v, found, err, want)
							}
						}
					}
				}
				check(t, x.Close())
			}
			check(t, b.Close())
		}
	}
}

// Larger state moves over several parallelisms in both forms.
func rescale(t *testing.T, f, reader Factory) {
	c, m, store := NewCluster(t, f, 1, nil, nil), newModel(), &Store{InlineLimit: 1000}
	fill(t, c, m, 5000)
	id := int64(0)
	for _, p := range []int{3, 2, 5, 16, 1} {
		for _, canonical := range []bool{false, true} {
			id++
			hs := WriteAll(t, c.Snapshot(t, id, canonical), store)
			for _, s := range c.Subtasks {
				s.Backend.CheckpointCompleted(id)
			}
			check(t, c.Close())
			c = NewCluster(t, f, p, hs, store)
			compare(t, c, m)
			for i := range 500 {
				c.change(t, m, int64(i%3), fmt.Sprint("key-", i*7))
			}
		}
	}
	drainTimers(t, c, m)
	check(t, c.Close())
	_ = reader
}

// The same name opens the same table; another type of it is an error, as is a closed backend.
func openTwice(t *testing.T, f, _ Factory) {
	c := NewCluster(t, f, 1, nil, nil)
	b := c.Subtasks[0].Backend
	again, err := backend.OpenTable(b, stringDesc())
	check(t, err)
	if again != c.Subtasks[0].Strings {
		t.Error("opened again: another table")
	}
	if _, err := backend.OpenTable(b, state.TableDesc[string, int64]{Name: "strings", Key: serde.Must[string](), Value: serde.Must[int64]()}); err == nil {
		t.Error("opened with another value type")
	}
	if _, err := backend.OpenTimers(b, state.TimersDesc[string]{Name: "strings", Key: serde.Must[string]()}); err == nil {
		t.Error("a table opened as timers")
	}
	check(t, c.Close())
	if _, err := b.Snapshot(1, true); err == nil {
		t.Error("snapshot of a closed backend")
	}
}
