package ha

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rs/zerolog"
	"pgregory.net/rapid"

	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/local"
	"github.com/thalweg/thalweg/fs/mem"
	"github.com/thalweg/thalweg/runtime/graph"
)

// Contending attempts run as goroutines, and a scheduler drawn by rapid lets one file-system operation of one of them happen at a time,
// so that every interleaving of operations, with attempts stopped for as long as it likes, is within reach. The answers of some
// operations are lost after they have happened.

var errLost = errors.New("the answer was lost")

// attempt is one owner's thread.
type attempt struct {
	n     int
	h     *history
	turn  chan bool     // from the scheduler: go on; true: the answer is lost
	yield chan struct{} // to the scheduler: about to do an operation; closed at the end
}

type steppedFS struct {
	fs.FileSystem
	a *attempt
}

func (s steppedFS) step(what string, op func() error) error {
	s.a.yield <- struct{}{}
	lost := <-s.a.turn
	err := op()
	if err == nil && lost {
		err = errLost
	}
	s.a.h.now("attempt %d:     %s: %v", s.a.n, strings.ReplaceAll(what, graph.ID{1}.String(), "J"), err)
	return err
}

func (s steppedFS) Create(ctx context.Context, p string, overwrite bool) (w fs.Writer, err error) {
	err = s.step("create "+p, func() error { w, err = s.FileSystem.Create(ctx, p, overwrite); return err })
	if errors.Is(err, errLost) { // as a NameNode's client would: the lease is given up, the file is there
		_ = w.Close()
	}
	return w, err
}

func (s steppedFS) Rename(ctx context.Context, from, to string) error {
	return s.step("rename "+from+" "+path.Base(to), func() error { return s.FileSystem.Rename(ctx, from, to) })
}

func (s steppedFS) List(ctx context.Context, dir string) (l []fs.Info, err error) {
	err = s.step("list "+dir, func() error { l, err = s.FileSystem.List(ctx, dir); return err })
	return l, err
}

func (s steppedFS) Stat(ctx context.Context, p string) (i fs.Info, err error) {
	err = s.step("stat "+p, func() error { i, err = s.FileSystem.Stat(ctx, p); return err })
	return i, err
}

func (s steppedFS) Remove(ctx context.Context, p string, recursive bool) error {
	return s.step("remove "+p, func() error { return s.FileSystem.Remove(ctx, p, recursive) })
}

func (s steppedFS) Open(ctx context.Context, p string) (r fs.Reader, err error) {
	err = s.step("open "+p, func() error { r, err = s.FileSystem.Open(ctx, p); return err })
	return r, err
}

// opening is a successful OpenJob.
type opening struct {
	epoch, at int64
	p         Pointer
	first     int64
}

// stored is an accepted StorePointer.
type stored struct {
	epoch, id, begin int64
}

// history is what the attempts saw; the clock counts events.
type history struct {
	mu      sync.Mutex
	clock   int64
	opens   []opening
	stores  []stored
	ends    []opening // p is unused
	tried   map[int64]bool
	usedIDs map[int64]int64 // checkpoint number > epoch
	log     []string
	bad     []string
	epochs  map[int64]int // epoch > attempt
	fenced  []int64       // epochs that were told so
}

func newHistory() *history {
	return &history{tried: map[int64]bool{}, usedIDs: map[int64]int64{}, epochs: map[int64]int{}}
}

func (h *history) now(format string, args ...any) int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clock++
	h.log = append(h.log, fmt.Sprintf("%4d %s", h.clock, fmt.Sprintf(format, args...)))
	return h.clock
}

// check judges what happened; top is the highest epoch that exists.
func (h *history) check(top int64) error {
	if len(h.bad) > 0 {
		return errors.New(h.bad[0])
	}
	for _, o := range h.opens {
		last := int64(0)
		for _, s := range h.stores {
			if s.epoch >= o.epoch {
				continue
			}
			if s.begin > o.at {
				return fmt.Errorf("epoch %d stored %d after epoch %d had taken over", s.epoch, s.id, o.epoch)
			}
			last = max(last, s.id)
		}
		if o.p.ID < last {
			return fmt.Errorf("epoch %d found pointer %d, but %d was accepted before", o.epoch, o.p.ID, last)
		}
		if o.p.ID != 0 && !h.tried[o.p.ID] {
			return fmt.Errorf("epoch %d found pointer %d, which nobody stored", o.epoch, o.p.ID)
		}
		for _, e := range h.ends {
			if e.epoch < o.epoch && e.at < o.at {
				// ended before the take-over ended: then it must have been refused
				return fmt.Errorf("epoch %d opened the job that epoch %d had ended", o.epoch, e.epoch)
			}
		}
	}
	for _, e := range h.fenced {
		if e == top && len(h.ends) == 0 {
			return fmt.Errorf("epoch %d was fenced, there is none above", e)
		}
	}
	if len(h.ends) > 1 {
		return fmt.Errorf("the job ended in epochs %d and %d", h.ends[0].epoch, h.ends[1].epoch)
	}
	return nil
}

// live is one application attempt's life: acquire, take over, store pointers, perhaps end the job.
func (h *history) live(ctx context.Context, s *FileStore, n, pointers int, end bool) {
	id := graph.JobID{ID: graph.ID{1}}
	var epoch int64
	again := func(what string, fn func() error) error { // as coordinator.Runner does
		for {
			err := fn()
			if errors.Is(err, ErrFenced) {
				h.mu.Lock()
				h.fenced = append(h.fenced, epoch)
				h.mu.Unlock()
			}
			if !errors.Is(err, errLost) {
				return err
			}
			h.now("attempt %d: %s: lost answer", n, what)
		}
	}
	if err := again("acquire", func() (err error) { epoch, err = s.AcquireEpoch(ctx, "test"); return err }); err != nil {
		h.now("attempt %d: acquire: %v", n, err)
		return
	}
	h.now("attempt %d: epoch %d", n, epoch)
	h.mu.Lock()
	if by, dup := h.epochs[epoch]; dup {
		h.bad = append(h.bad, fmt.Sprintf("attempts %d and %d have both epoch %d", by, n, epoch))
	}
	h.epochs[epoch] = n
	h.mu.Unlock()
	if err := again("put", func() error { return s.PutJob(ctx, Job{ID: id, Name: "job"}) }); err != nil {
		h.now("attempt %d: put: %v", n, err)
		return
	}
	var p Pointer
	var first int64
	if err := again("open", func() (err error) { p, first, err = s.OpenJob(ctx, id); return err }); err != nil {
		h.now("attempt %d: open: %v", n, err)
		return
	}
	at := h.now("attempt %d: opened at %+v, first %d", n, p, first)
	h.mu.Lock()
	h.opens = append(h.opens, opening{epoch: epoch, at: at, p: p, first: first})
	h.mu.Unlock()
	next, reserved := first, first
	for i := range pointers {
		if i%3 == 2 { // an aborted checkpoint's number is used up
			h.use(next, epoch)
			next++
		}
		if next > reserved {
			if err := again("reserve", func() error { return s.ReserveIDs(ctx, id, next) }); err != nil {
				h.now("attempt %d: reserve: %v", n, err)
				return
			}
			reserved = next
		}
		h.use(next, epoch)
		dir := fmt.Sprintf("hdfs://nn/c/chk-%d", next)
		if i%4 == 3 {
			dir = fmt.Sprintf("hdfs://nn/sp/s%d", next)
		}
		begin := h.now("attempt %d: store %d", n, next)
		h.mu.Lock()
		h.tried[next] = true
		h.mu.Unlock()
		if err := again("store", func() error { return s.StorePointer(ctx, id, Pointer{ID: next, Dir: dir}) }); err != nil {
			h.now("attempt %d: store %d: %v", n, next, err)
			return
		}
		h.now("attempt %d: stored %d", n, next)
		h.mu.Lock()
		h.stores = append(h.stores, stored{epoch: epoch, id: next, begin: begin})
		h.mu.Unlock()
		reserved = max(reserved, next+1)
		next++
	}
	if end {
		err := again("end", func() error { return s.EndJob(ctx, id, Result{State: "FINISHED"}) })
		at := h.now("attempt %d: end: %v", n, err)
		if err == nil {
			h.mu.Lock()
			h.ends = append(h.ends, opening{epoch: epoch, at: at})
			h.mu.Unlock()
		}
	}
}

func (h *history) use(id, epoch int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if by, ok := h.usedIDs[id]; ok && by != epoch {
		h.bad = append(h.bad, fmt.Sprintf("checkpoint number %d is used in epochs %d and %d", id, by, epoch))
	}
	h.usedIDs[id] = epoch
}

func TestContendingAttemptsNeverBothWrite(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		inner := mem.New("ha")
		h := newHistory()
		var all []*attempt
		for n := range rapid.IntRange(2, 4).Draw(t, "attempts") {
			a := &attempt{n: n, h: h, turn: make(chan bool), yield: make(chan struct{})}
			pointers, end := rapid.IntRange(0, 6).Draw(t, "pointers"), rapid.Bool().Draw(t, "end")
			s := NewFileStore(steppedFS{inner, a}, "/ha", zerolog.Nop())
			go func() {
				h.live(context.Background(), s, a.n, pointers, end)
				close(a.yield)
			}()
			<-a.yield // stands before its first operation
			all = append(all, a)
		}
		running := all
		defer func() { // rapid gives up in the middle when it shrinks
			for _, a := range running {
				for open := true; open; {
					a.turn <- false
					_, open = <-a.yield
				}
			}
		}()
		for len(running) > 0 {
			// Mostly go on with the same attempt, so that lives get far; rarely lose an answer.
			i := rapid.IntRange(0, len(running)-1).Draw(t, "who")
			for range rapid.SampledFrom([]int{1, 1, 1, 2, 5, 20}).Draw(t, "steps") {
				running[i].turn <- rapid.IntRange(0, 19).Draw(t, "lost") == 0
				if _, open := <-running[i].yield; !open {
					running = append(running[:i:i], running[i+1:]...)
					break
				}
			}
		}
		if err := h.check(top(t, inner, "/ha")); err != nil {
			for _, l := range h.log {
				t.Log(l)
			}
			t.Log(listAll(context.Background(), inner, path.Join("/ha/jobs", graph.ID{1}.String())))
			t.Fatal(err)
		}
	})
}

// The same without a scheduler, on a real file system.
func TestContendingAttemptsOnDisk(t *testing.T) {
	f := local.New(local.WithoutSync())
	for round := range 30 {
		dir := t.TempDir()
		h := newHistory()
		var wg sync.WaitGroup
		for n := range 3 {
			wg.Go(func() { h.live(t.Context(), NewFileStore(f, dir, zerolog.Nop()), n, 25, n == 2) })
		}
		wg.Wait()
		if err := h.check(top(t, f, dir)); err != nil {
			for _, l := range h.log {
				t.Log(l)
			}
			t.Fatalf("round %d: %v", round, err)
		}
	}
}

func top(t rapid.TB, f fs.FileSystem, dir string) int64 {
	epochs, err := NewFileStore(f, dir, zerolog.Nop()).numbered(context.Background(), epochPrefix)
	if err != nil || len(epochs) == 0 {
		t.Fatalf("epochs %v, %v", epochs, err)
	}
	return epochs[len(epochs)-1]
}

// hiding lists no token of epoch 2, a few times: as a local directory may while the token is renamed.
type hiding struct {
	fs.FileSystem
	times int
}

func (h *hiding) List(ctx context.Context, p string) ([]fs.Info, error) {
	infos, err := h.FileSystem.List(ctx, p)
	if h.times--; h.times >= 0 {
		infos = slices.DeleteFunc(infos, func(i fs.Info) bool { return strings.HasPrefix(path.Base(i.Path), "e2.") })
	}
	return infos, err
}

// What an attempt left that was too late to create the first token is not taken for the token, when a listing misses that one.
func TestALeftTokenIsNotTakenForTheOne(t *testing.T) {
	f := mem.New("ha")
	dir := "/ha/jobs/" + graph.JobID{ID: graph.ID{1}}.String()
	for _, name := range []string{"e1.c0.r1." + noKey, "e2.c9.r10." + noKey, markName, openPrefix + "2"} {
		if err := fs.WriteFile(t.Context(), f, path.Join(dir, name), nil, false); err != nil {
			t.Fatal(err)
		}
	}
	s := NewFileStore(&hiding{f, 3}, "/ha", zerolog.Nop())
	tokens, err := s.tokens(t.Context(), graph.JobID{ID: graph.ID{1}})
	if err != nil || len(tokens) != 2 || newest(tokens).epoch != 2 {
		t.Errorf("%v, %v", tokens, err)
	}
}
