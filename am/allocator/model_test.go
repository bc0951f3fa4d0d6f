package allocator

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/thalweg/thalweg/yarnrpc/yarn"
)

// rm is a deliberately plain ResourceManager: counts per priority, set by asks and lowered by grants.
type rm struct {
	open    map[int32]int
	fresh   []Container // granted, not told yet
	live    map[yarn.ContainerID]Container
	ended   []Status // not told yet
	next    int64
	granted int
}

func newRM() *rm { return &rm{open: map[int32]int{}, live: map[yarn.ContainerID]Container{}} }

func (r *rm) grant(n int) {
	for p := int32(1); p <= 2; p++ {
		for ; n > 0 && r.open[p] > 0; n-- {
			r.open[p]--
			r.next++
			r.granted++
			c := Container{ID: yarn.ContainerID{ID: r.next}, Priority: p, RequestID: -1}
			r.live[c.ID] = c
			r.fresh = append(r.fresh, c)
		}
	}
}

func (r *rm) end(id yarn.ContainerID, exit int32) {
	if _, ok := r.live[id]; ok {
		delete(r.live, id)
		r.ended = append(r.ended, Status{ID: id, Exit: exit})
	}
}

func (r *rm) ask(req Allocate) {
	for _, k := range req.Asks {
		r.open[k.Priority] = k.Count
	}
	for _, id := range req.Releases {
		r.end(id, yarn.ExitAborted)
	}
}

func (r *rm) pull(at time.Time) Answer {
	a := Answer{At: at, Granted: r.fresh, Completed: r.ended}
	r.fresh, r.ended = nil, nil
	return a
}

// world drives the ledger and the ResourceManager.
type world struct {
	t      *rapid.T
	a      *Allocator
	rm     *rm
	at     time.Time
	wanted map[Spec]int
	alive  []Container // started, by our knowledge
	stops  map[yarn.ContainerID]bool
}

func (w *world) do(ev Event) (req Allocate, again bool) {
	for _, e := range w.a.Step(ev) {
		switch e := e.(type) {
		case Allocate:
			req = e
		case BeatNow:
			again = true
		case Start:
			w.alive = append(w.alive, e.Container)
		case Stop:
			w.stops[e.Container.ID] = true
		case Failed:
			w.t.Fatal("gave up without a limit")
		case Ended, Leaving, Staying, Excluded, Included, Paused:
		}
	}
	return req, again
}

// call is one allocate call; before and between are grants that the ResourceManager makes before it sees the asks, and between the asks and
// the answer.
func (w *world) call(before, between int) (again bool) {
	w.at = w.at.Add(100 * time.Millisecond)
	req, _ := w.do(Beat{At: w.at})
	w.rm.grant(before)
	w.rm.ask(req)
	w.rm.grant(between)
	_, again = w.do(w.rm.pull(w.at))
	return again
}

func (w *world) pick() (Container, bool) {
	if len(w.alive) == 0 {
		return Container{}, false
	}
	i := rapid.IntRange(0, len(w.alive)-1).Draw(w.t, "which")
	c := w.alive[i]
	return c, true
}

func TestLedgerConvergesWhateverHappens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{t: t, a: New(Options{FailureRate: 5, RetryInterval: time.Second, RegisterTimeout: time.Minute, RecoveryTimeout: time.Second}), rm: newRM(), at: time.Unix(0, 0), wanted: map[Spec]int{}, stops: map[yarn.ContainerID]bool{}}
		steps := rapid.IntRange(1, 60).Draw(t, "steps")
		for range steps {
			switch rapid.IntRange(0, 10).Draw(t, "op") {
			case 0, 1:
				s := specOf(rapid.SampledFrom([]string{"small", "big"}).Draw(t, "size"))
				w.wanted[s] = rapid.IntRange(0, 8).Draw(t, "want")
				w.do(Want{Spec: s, Count: w.wanted[s]})
			case 2, 3, 4:
				w.call(rapid.IntRange(0, 3).Draw(t, "before"), rapid.IntRange(0, 3).Draw(t, "between"))
			case 5:
				if c, ok := w.pick(); ok {
					w.do(Started{ID: c.ID})
				}
			case 6:
				if c, ok := w.pick(); ok {
					w.do(Registered{ID: c.ID})
				}
			case 7:
				if c, ok := w.pick(); ok {
					w.do(StartFailed{At: w.at, ID: c.ID, Reason: "refused"})
				}
			case 8:
				if c, ok := w.pick(); ok {
					w.rm.end(c.ID, rapid.SampledFrom([]int32{0, 1, 137, yarn.ExitPreempted, yarn.ExitAborted, yarn.ExitKilledExceededPmem}).Draw(t, "exit"))
				}
			case 9:
				if c, ok := w.pick(); ok {
					w.do(Release{At: w.at, ID: c.ID})
				}
			case 10: // the ResourceManager is restarted: it forgets asks and grants that nobody heard of
				w.rm.open = map[int32]int{}
				for _, c := range w.rm.fresh {
					delete(w.rm.live, c.ID)
				}
				w.rm.fresh = nil
				w.do(Resync{})
			}
		}
		// Now all is quiet: what is granted comes up, and the ledger must settle.
		for round := 0; ; round++ {
			if round > 200 {
				t.Fatalf("does not settle: %+v, open at the ResourceManager %v", w.a.Counts(), w.rm.open)
			}
			w.at = w.at.Add(time.Second)
			w.do(Tick{At: w.at})
			w.call(0, 3)
			for _, c := range w.a.Containers() {
				if _, ok := w.rm.live[c.ID]; ok {
					w.do(Registered{ID: c.ID})
				}
			}
			// More registered than wanted is the caller's to release.
			live := map[int32][]Container{}
			for _, c := range w.a.Containers() {
				live[c.Priority] = append(live[c.Priority], c)
			}
			settled := true
			for s, n := range w.wanted {
				p := w.a.bySpec[s].priority
				for extra := len(live[p]) - n; extra > 0; extra-- {
					w.do(Release{At: w.at, ID: live[p][extra-1].ID})
				}
				settled = settled && len(live[p]) == n && w.rm.open[p] == 0
			}
			n := w.a.Counts()
			if settled && n.Releasing == 0 && n.Open == 0 && len(w.rm.fresh) == 0 && len(w.rm.ended) == 0 {
				break
			}
		}
		total := 0
		for _, n := range w.wanted {
			total += n
		}
		if len(w.rm.live) != total {
			t.Errorf("%d containers live, %d wanted, %d granted in all", len(w.rm.live), total, w.rm.granted)
		}
	})
}

// TestSlowGrantsAreNotAskedForTwice is FLINK-12342 by numbers: 50 workers from a ResourceManager that grants 5 per beat.
func TestSlowGrantsAreNotAskedForTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{t: t, a: New(Options{}), rm: newRM(), at: time.Unix(0, 0), stops: map[yarn.ContainerID]bool{}}
		s := specOf("small")
		w.do(Want{Spec: s, Count: 50})
		w.call(0, 0)
		calls := 0
		for ; w.a.Counts().Open > 0; calls++ {
			before := rapid.IntRange(0, 5).Draw(t, "before")
			w.call(before, 5-before)
		}
		w.call(5, 5)
		w.call(5, 5)
		if w.rm.granted != 50 || len(w.rm.live) != 50 || calls != 10 {
			t.Errorf("granted %d in %d calls, %d live; want exactly 50 in 10", w.rm.granted, calls, len(w.rm.live))
		}
	})
}
