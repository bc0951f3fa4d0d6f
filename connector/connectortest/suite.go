package connectortest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"

	"github.com/thalweg/thalweg/connector"
)

// SourceSuite describes a bounded source to TestSource.
type SourceSuite[T any] struct {
	// New makes a source over the same records each time.
	New func() connector.Source[T]
	// Key tells records apart.
	Key func(T) string
	// Want are the keys of all records.
	Want []string
	// Ordered reports whether, within a split, b may follow a; nil when there is no order.
	Ordered func(a, b T) bool
	// Failing makes a source that cannot read on, and Error is a part of what it has to say; nil when there is none.
	Failing func() connector.Source[T]
	Error   string
}

// TestSource checks that a source reads each record exactly once whatever its parallelism, across checkpoints, restores at another
// parallelism and restores of the same checkpoint again, with splits that are paused in between; that it ends in all subtasks; that its
// order within a split holds; that errors come through; and, all the while, the rules of package connector (connector.ContractError). A reader
// without splits is polled before any come. A source that stands still fails after 20 seconds, one that panics at once, each with the rule.
func TestSource[T any](t *testing.T, s SourceSuite[T]) {
	t.Helper()
	for _, par := range []int{1, 2, 5} {
		t.Run(fmt.Sprintf("reads all at parallelism %d", par), func(t *testing.T) { guarded(t, func() { s.readsAll(t, par) }) })
	}
	for seed := range uint64(6) {
		t.Run(fmt.Sprintf("restores, seed %d", seed), func(t *testing.T) { guarded(t, func() { s.restores(t, seed) }) })
	}
	if s.Failing != nil {
		t.Run("tells its errors", func(t *testing.T) {
			guarded(t, func() {
				if err := StartSource(t, s.Failing(), 2, nil).UntilFailed(); !strings.Contains(err.Error(), s.Error) {
					t.Errorf("%q is not in %v", s.Error, err)
				}
			})
		})
	}
}

func (s SourceSuite[T]) compare(tb testing.TB, got []T) {
	tb.Helper()
	keys := make([]string, len(got))
	for i, v := range got {
		keys[i] = s.Key(v)
	}
	if diff := difference(keys, s.Want); diff != "" {
		tb.Fatalf("got %d records, want %d: %s", len(keys), len(s.Want), diff)
	}
}

func (s SourceSuite[T]) order(tb testing.TB, recs []Record[T]) {
	tb.Helper()
	last := map[string]T{}
	for _, r := range recs {
		if prev, ok := last[r.Split]; ok && s.Ordered != nil && r.Split != "" && !s.Ordered(prev, r.Value) {
			tb.Fatalf("split %s: %s follows %s", r.Split, s.Key(r.Value), s.Key(prev))
		}
		last[r.Split] = r.Value
	}
}

func (s SourceSuite[T]) readsAll(tb testing.TB, par int) {
	tb.Helper()
	r := StartSource(tb, s.New(), par, nil)
	r.play("the end of input", r.Ended)
	s.compare(tb, r.Values())
	s.order(tb, r.Records)
	cp := r.Checkpoint()
	r.Complete(cp)
	r.Close()
	r = StartSource(tb, s.New(), par, cp)
	r.play("the end of input after a restore at the end", r.Ended)
	if len(r.Records) != 0 {
		tb.Fatalf("%d records after a restore at the end", len(r.Records))
	}
}

func (s SourceSuite[T]) restores(tb testing.TB, seed uint64) {
	tb.Helper()
	rng := rand.New(rand.NewPCG(seed, 1))
	var kept []T
	var recs []Record[T]
	var cp *SourceCheckpoint
	for attempt := 0; ; attempt++ {
		r := StartSource(tb, s.New(), 1+rng.IntN(4), cp)
		r.MaxPoll = 1 + rng.IntN(7)
		if attempt%3 == 1 {
			r.pauses = rng
		}
		if attempt == 8 {
			r.play("the end of input", r.Ended)
			kept = append(kept, r.Values()...)
			recs = append(recs, r.Records...)
			break
		}
		goal := rng.IntN(1 + len(s.Want)/6)
		r.play("some records", func() bool { return len(r.Records) >= goal || r.Ended() })
		at := len(r.Records)
		next := r.Checkpoint()
		more := at + rng.IntN(10)
		r.play("records after the checkpoint", func() bool { return len(r.Records) >= more || r.Ended() })
		if rng.IntN(3) > 0 { // completed; otherwise the attempt's records are all undone
			kept = append(kept, r.Values()[:at]...)
			recs = append(recs, r.Records[:at]...)
			cp = next
			r.Complete(cp)
		}
		r.Close()
	}
	s.compare(tb, kept)
	s.order(tb, recs)
}

// difference says what is missing in got, what it has too often and what it should not have; the order does not matter.
func difference(got, want []string) string {
	n := map[string]int{}
	for _, k := range want {
		n[k]++
	}
	left := maps.Clone(n)
	for _, k := range got {
		left[k]--
	}
	var missing, again, unknown []string
	for _, k := range slices.Sorted(maps.Keys(left)) {
		switch d := left[k]; {
		case d > 0:
			missing = append(missing, slices.Repeat([]string{k}, d)...)
		case d < 0 && n[k] == 0:
			unknown = append(unknown, slices.Repeat([]string{k}, -d)...)
		case d < 0:
			again = append(again, slices.Repeat([]string{k}, -d)...)
		}
	}
	var parts []string
	for _, p := range []struct {
		what string
		keys []string
		of   int
	}{{"missing", missing, len(want)}, {"again", again, len(got)}, {"not expected", unknown, len(got)}} {
		if len(p.keys) > 0 {
			parts = append(parts, fmt.Sprintf("%s: %s (%d of %d)", p.what, some(p.keys), len(p.keys), p.of))
		}
	}
	return strings.Join(parts, "; ")
}

// some quotes the first few.
func some(keys []string) string {
	const most = 5
	text := make([]string, 0, most+1)
	for _, k := range keys[:min(most, len(keys))] {
		text = append(text, strconv.Quote(k))
	}
	if len(keys) > most {
		text = append(text, "...")
	}
	return strings.Join(text, ", ")
}

// SinkSuite describes a sink to TestSink.
type SinkSuite[T any] struct {
	// AtLeastOnce says that records may come more than once, and before their checkpoint is complete.
	AtLeastOnce bool
	// New makes the sink of a job; each call for the same test writes to the same place.
	New func() connector.Sink[T]
	// Value makes the value with a name, Key its name.
	Value func(name string) T
	// Committed reads the names of all records that a reader sees.
	Committed func(t *testing.T) []string
	// Clean checks that nothing is left open; may be nil.
	Clean func(t *testing.T)
}

// TestSink checks a sink over random histories of writes, checkpoints that complete or not, crashes at any point, also when some subtasks have committed and
// others have not, and restores at another parallelism: what a reader sees is exactly what was written before completed checkpoints; with AtLeastOnce, that at least, and nothing
// that was never written.
func TestSink[T any](t *testing.T, seeds int, fresh func(t *testing.T) SinkSuite[T]) {
	t.Helper()
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) { guarded(t, func() { history(t, t, seed, fresh(t)) }) })
	}
}

// history plays one seed. Checks go to tb, which is t but for the suite's own tests.
func history[T any](tb testing.TB, t *testing.T, seed uint64, s SinkSuite[T]) {
	tb.Helper()
	rng := rand.New(rand.NewPCG(seed, 2))
	var want, since []string // committed for good; written since the last completed checkpoint
	var cp *SinkCheckpoint
	n := 0
	write := func(r *SinkRun[T], par int) {
		name := fmt.Sprintf("r%03d", n)
		n++
		r.Write(rng.IntN(par), s.Value(name))
		since = append(since, name)
	}
	check := func() {
		tb.Helper()
		got := s.Committed(t)
		sort.Strings(got)
		if s.AtLeastOnce {
			for _, name := range want {
				if _, ok := slices.BinarySearch(got, name); !ok {
					tb.Fatalf("%s is missing, which was written before a completed checkpoint", name)
				}
			}
			for _, name := range got {
				if name != "last" && name >= fmt.Sprintf("r%03d", n) {
					tb.Fatalf("%s was never written", name)
				}
			}
			return
		}
		if diff := difference(got, want); diff != "" {
			tb.Fatalf("committed %d records, want %d: %s", len(got), len(want), diff)
		}
	}
	for attempt := range 4 {
		par := 1 + rng.IntN(3)
		r := MustStartSink(tb, s.New(), par, cp, SinkOptions{Attempt: attempt, Descending: rng.IntN(2) == 0})
		since = nil
		check()
		for range 1 + rng.IntN(5) {
			for range rng.IntN(6) {
				write(r, par)
			}
			switch rng.IntN(4) {
			case 0: // goes on without a checkpoint
			case 1: // the checkpoint does not complete: the next one takes its records along
				r.Checkpoint()
			default:
				cp = r.Checkpoint()
				before := since
				since = nil
				if rng.IntN(4) == 0 { // crash between completion and commit, or in the midst of the commits
					want = append(want, before...)
					if err := r.CompletePartly(cp, rng.IntN(par)); err != nil {
						tb.Fatalf("complete checkpoint %d: %v", cp.ID, err)
					}
					goto crash
				}
				if rng.IntN(2) == 0 {
					write(r, par)
				}
				r.Complete(cp)
				want = append(want, before...)
			}
		}
	crash:
		if rng.IntN(2) == 0 {
			r.Close()
		}
	}
	r := MustStartSink(tb, s.New(), 2, cp, SinkOptions{Attempt: 9})
	check()
	r.Write(1, s.Value("last"))
	last, err := r.TryCheckpoint(true)
	if err != nil {
		tb.Fatal(err)
	}
	r.Complete(last)
	want = append(want, "last")
	check()
	r.Close()
	if s.Clean != nil {
		s.Clean(t)
	}
}
