package connectortest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/connector/datagen"
)

// recorder is a test that notes its failures.
type recorder struct {
	testing.TB
	mu       sync.Mutex
	failures []string
	cleanups []func()
}

func (r *recorder) Helper()             {}
func (r *recorder) Logf(string, ...any) {}
func (r *recorder) Cleanup(fn func())   { r.cleanups = append(r.cleanups, fn) }
func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}
func (r *recorder) Fatalf(format string, args ...any) { r.Errorf(format, args...); runtime.Goexit() }
func (r *recorder) Fatal(args ...any)                 { r.Fatalf("%s", fmt.Sprint(args...)) }

// record runs a check and returns its failures.
func record(t *testing.T, check func(tb testing.TB)) string {
	t.Helper()
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		check(r)
	}()
	<-done
	for i := len(r.cleanups) - 1; i >= 0; i-- {
		r.cleanups[i]()
	}
	return strings.Join(r.failures, "; ")
}

// bent is a good source with something wrong.
type bent struct {
	connector.Source[string]
	reader func(connector.Reader[string]) connector.Reader[string]
	enum   func(connector.EnumeratorContext) connector.EnumeratorContext
}

func (b bent) Reader(ctx connector.ReaderContext) (connector.Reader[string], error) {
	r, err := b.Source.Reader(ctx)
	if b.reader != nil {
		r = b.reader(r)
	}
	return r, err
}

func (b bent) Enumerator(ctx connector.EnumeratorContext, restored []byte) (connector.Enumerator, error) {
	if b.enum != nil {
		ctx = b.enum(ctx)
	}
	return b.Source.Enumerator(ctx, restored)
}

type bentReader struct {
	connector.Reader[string]
	poll      func(out connector.Output[string], max int) (connector.Status, error)
	snapshot  func([]connector.Split) []connector.Split
	available func() <-chan struct{}
}

func (b bentReader) Poll(out connector.Output[string], max int) (connector.Status, error) {
	if b.poll != nil {
		return b.poll(out, max)
	}
	return b.Reader.Poll(out, max)
}

func (b bentReader) Snapshot(id int64) ([]connector.Split, error) {
	s, err := b.Reader.Snapshot(id)
	if b.snapshot != nil {
		s = b.snapshot(s)
	}
	return s, err
}

func (b bentReader) Available() <-chan struct{} {
	if b.available != nil {
		return b.available()
	}
	return b.Reader.Available()
}

type bentContext struct {
	connector.EnumeratorContext
	assign func(c connector.EnumeratorContext, sub int, splits ...connector.Split)
}

func (b bentContext) Assign(sub int, splits ...connector.Split) {
	b.assign(b.EnumeratorContext, sub, splits...)
}

// outputs change what a reader does to its output.
type outputs struct {
	connector.Output[string]
	split func(connector.Output[string], string) connector.SplitOutput[string]
}

// holding releases no split.
type holding struct{ connector.Output[string] }

func (holding) ReleaseSplit(string) {}

func (o outputs) Split(id string) connector.SplitOutput[string] { return o.split(o.Output, id) }

func name(n int64) string { return fmt.Sprintf("%03d", n) }

func suite(b bent) SourceSuite[string] {
	b.Source = datagen.Source(name, datagen.Count(60), datagen.Splits(4))
	s := SourceSuite[string]{New: func() connector.Source[string] { return b }, Key: func(s string) string { return s }}
	for n := range int64(60) {
		s.Want = append(s.Want, name(n))
	}
	return s
}

// TestWhatIsWrongIsFound: each fault of a source fails the suite, with what is wrong or the rule that was broken.
func TestWhatIsWrongIsFound(t *testing.T) {
	defer func(d time.Duration) { patience = d }(patience)
	reader := func(change func(r *bentReader)) bent {
		return bent{reader: func(r connector.Reader[string]) connector.Reader[string] {
			b := &bentReader{Reader: r}
			change(b)
			return b
		}}
	}
	output := func(split func(connector.Output[string], string) connector.SplitOutput[string]) bent {
		return reader(func(r *bentReader) {
			in := r.Reader
			r.poll = func(out connector.Output[string], max int) (connector.Status, error) {
				return in.Poll(outputs{out, split}, max)
			}
		})
	}
	enum := func(assign func(c connector.EnumeratorContext, sub int, splits ...connector.Split)) bent {
		return bent{enum: func(c connector.EnumeratorContext) connector.EnumeratorContext { return bentContext{c, assign} }}
	}
	status := func(st connector.Status, when connector.Status) bent {
		return reader(func(r *bentReader) {
			in := r.Reader
			r.poll = func(out connector.Output[string], max int) (connector.Status, error) {
				s, err := in.Poll(out, max)
				if s == when {
					s = st
				}
				return s, err
			}
		})
	}
	for want, b := range map[string]bent{
		"":        {},
		"missing": reader(func(r *bentReader) { r.snapshot = func([]connector.Split) []connector.Split { return nil } }),
		"split-in-one": reader(func(r *bentReader) {
			r.snapshot = func(s []connector.Split) []connector.Split { return append(s, s...) }
		}),
		"waited 100ms for the end of input": status(connector.NothingAvailable, connector.EndOfInput),
		"poll-status":                       status(9, connector.MoreAvailable),
		"poll-max": reader(func(r *bentReader) {
			in := r.Reader
			r.poll = func(out connector.Output[string], max int) (connector.Status, error) { return in.Poll(out, max+1) }
		}),
		"available": reader(func(r *bentReader) {
			r.available = func() <-chan struct{} { return nil }
			r.poll = func(connector.Output[string], int) (connector.Status, error) { return connector.NothingAvailable, nil }
		}),
		"split-known": output(func(o connector.Output[string], id string) connector.SplitOutput[string] { return o.Split("x" + id) }),
		"split-once": output(func(o connector.Output[string], id string) connector.SplitOutput[string] {
			o.Split(id)
			return o.Split(id)
		}),
		"split-released": output(func(o connector.Output[string], id string) connector.SplitOutput[string] {
			defer o.ReleaseSplit(id)
			return o.Split(id)
		}),
		"split-ended": reader(func(r *bentReader) {
			in := r.Reader
			r.poll = func(out connector.Output[string], max int) (connector.Status, error) {
				return in.Poll(holding{out}, max)
			}
		}),
		"the same reader for subtasks 0 and 1": shared(),
		"split-output":                         output(func(o connector.Output[string], id string) connector.SplitOutput[string] { return o }),
		"(100 times)": reader(func(r *bentReader) { // and does not look at the errors
			r.poll = func(out connector.Output[string], max int) (connector.Status, error) {
				for range max {
					_ = out.Collect("", connector.NoTimestamp)
				}
				return connector.MoreAvailable, nil
			}
		}),
		"no broker": reader(func(r *bentReader) {
			r.poll = func(connector.Output[string], int) (connector.Status, error) { return 0, errors.New("no broker") }
		}),
		"split-assigned-once": enum(func(c connector.EnumeratorContext, sub int, splits ...connector.Split) {
			c.Assign(sub, splits...)
			c.Assign(sub, splits...)
		}),
		"subtask": enum(func(c connector.EnumeratorContext, sub int, splits ...connector.Split) {
			c.Assign(sub+1, splits...)
			c.Assign(-1)
		}),
		"split-id": enum(func(c connector.EnumeratorContext, sub int, _ ...connector.Split) { c.Assign(sub, connector.Split{}) }),
		"assign-after-no-more": enum(func(c connector.EnumeratorContext, sub int, splits ...connector.Split) {
			c.NoMoreSplits(sub)
			c.Assign(sub, splits...)
		}),
		"splits that come later would be lost": reader(func(r *bentReader) {
			r.poll = func(connector.Output[string], int) (connector.Status, error) { return connector.EndOfInput, nil }
		}),
	} {
		if want == "splits that come later would be lost" { // NoMoreSplits must not have come
			b.enum = func(c connector.EnumeratorContext) connector.EnumeratorContext { return forgetful{c} }
		}
		t.Run(want, func(t *testing.T) {
			patience = time.Minute
			if strings.HasPrefix(want, "waited") {
				patience = 100 * time.Millisecond
			}
			got := record(t, func(tb testing.TB) {
				suite(b).readsAll(tb, 2)
				for seed := range uint64(4) {
					suite(b).restores(tb, seed)
				}
			})
			if (got == "") != (want == "") || !strings.Contains(got, want) {
				t.Errorf("found: %s", got)
			}
			if strings.Count(got, "violates") > 3 {
				t.Errorf("a rule is told more than once: %s", got)
			}
		})
	}
}

// shared gives all subtasks of an attempt one reader.
func shared() bent {
	var first connector.Reader[string]
	return bent{reader: func(r connector.Reader[string]) connector.Reader[string] {
		if first == nil {
			first = &bentReader{Reader: r}
		}
		return first
	}}
}

// The difference names what is missing, and what came again or was not asked for.
func TestDifference(t *testing.T) {
	for want, c := range map[string][2][]string{
		"":                               {{"b", "a", "a"}, {"a", "b", "a"}},
		`missing: "199", "399" (2 of 4)`: {{"1", "2"}, {"1", "199", "2", "399"}},
		`again: "a" (1 of 3)`:            {{"a", "b", "a"}, {"a", "b"}},
		`missing: "b" (1 of 2); again: "a" (1 of 3); not expected: "c" (1 of 3)`: {{"a", "c", "a"}, {"a", "b"}},
		`not expected: "1", "2", "3", "4", "5", ... (6 of 6)`:                    {{"6", "5", "4", "3", "2", "1"}, nil},
	} {
		if got := difference(c[0], c[1]); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// forgetful says nothing to readers at the end.
type forgetful struct{ connector.EnumeratorContext }

func (forgetful) NoMoreSplits(int) {}

// store is what a sink writes to: pending by name of a transaction, and committed.
type store struct {
	pending   map[string][]string
	committed []string
	txn       int
	loses     bool // commits nothing on a retry
	twice     bool // commits again what it has committed
	early     bool // writes at once
}

func (s *store) Writer(connector.SinkContext, [][]byte) (connector.SinkWriter[string], error) {
	return &storeWriter{s: s}, nil
}
func (s *store) Committer(connector.SinkContext) (connector.Committer, error) {
	return storeCommitter{s}, nil
}

type storeWriter struct {
	s  *store
	vs []string
}

func (w *storeWriter) Write(v string, _ int64) error {
	if w.s.early {
		w.s.committed = append(w.s.committed, v)
		return nil
	}
	w.vs = append(w.vs, v)
	return nil
}
func (w *storeWriter) Flush(context.Context, bool) error { return nil }
func (w *storeWriter) Snapshot(int64) ([][]byte, error)  { return nil, nil }
func (w *storeWriter) Close() error                      { return nil }
func (w *storeWriter) Committed(int64)                   {}
func (w *storeWriter) PrepareCommit(int64) ([][]byte, error) {
	w.s.txn++
	id := fmt.Sprint(w.s.txn)
	w.s.pending[id], w.vs = w.vs, nil
	return [][]byte{[]byte(id)}, nil
}

type storeCommitter struct{ s *store }

func (c storeCommitter) Commit(_ context.Context, committables [][]byte, retry bool) error {
	for _, b := range committables {
		if retry && c.s.loses {
			continue
		}
		c.s.committed = append(c.s.committed, c.s.pending[string(b)]...)
		if !c.s.twice {
			delete(c.s.pending, string(b))
		}
	}
	return nil
}
func (storeCommitter) Close() error { return nil }

func TestWhatIsWrongWithSinksIsFound(t *testing.T) {
	for want, c := range map[string]struct {
		s           store
		atLeastOnce bool
	}{
		"":                  {},
		"missing: \"r":      {s: store{loses: true}},
		"not expected: \"r": {s: store{early: true}},
		"again: \"r":        {s: store{twice: true}},
		"is missing, which": {s: store{loses: true}, atLeastOnce: true},
	} {
		t.Run(want, func(t *testing.T) {
			got := ""
			for seed := range uint64(12) {
				s := c.s
				s.pending = map[string][]string{}
				got += record(t, func(tb testing.TB) {
					history(tb, t, seed, SinkSuite[string]{AtLeastOnce: c.atLeastOnce, New: func() connector.Sink[string] { return &s },
						Value: func(s string) string { return s }, Committed: func(*testing.T) []string { return append([]string(nil), s.committed...) }})
				})
			}
			if (got == "") != (want == "") || !strings.Contains(got, want) {
				t.Errorf("found: %s", got)
			}
		})
	}
	for _, s := range []store{{early: true}, {twice: true}} {
		s.pending = map[string][]string{}
		if got := record(t, func(tb testing.TB) {
			history(tb, t, 3, SinkSuite[string]{AtLeastOnce: true, New: func() connector.Sink[string] { return &s },
				Value: func(s string) string { return s }, Committed: func(*testing.T) []string { return append([]string(nil), s.committed...) }})
		}); got != "" {
			t.Errorf("at least once: %s", got)
		}
	}
}

// silent is an enumerator's context that NoMoreSplits does not leave.
type silent struct{ connector.EnumeratorContext }

func (silent) NoMoreSplits(int) {}

// eager says EndOfInput as long as it has no splits.
type eager struct {
	connector.Reader[string]
	given bool
}

func (e *eager) AddSplits(s []connector.Split) error {
	e.given = true
	return e.Reader.AddSplits(s)
}

func (e *eager) Poll(out connector.Output[string], max int) (connector.Status, error) {
	if !e.given {
		return connector.EndOfInput, nil
	}
	return e.Reader.Poll(out, max)
}

// TestSuiteTellsWhatASourceDoesWrong: in short time, with the rule and what to do, and without the end of the test binary.
func TestSuiteTellsWhatASourceDoesWrong(t *testing.T) {
	defer func(d time.Duration) { stillness = d }(stillness)
	stillness = 200 * time.Millisecond
	suite := func(b bent) SourceSuite[string] {
		b.Source = datagen.Source(func(i int64) string { return fmt.Sprint(i) }, datagen.Count(20), datagen.Splits(4))
		var want []string
		for i := range 20 {
			want = append(want, fmt.Sprint(i))
		}
		return SourceSuite[string]{New: func() connector.Source[string] { return b }, Key: func(s string) string { return s }, Want: want}
	}
	reader := func(fn func(connector.Reader[string]) connector.Reader[string]) bent { return bent{reader: fn} }
	for _, c := range []struct {
		name, rule, advice string
		bent               bent
	}{
		{"never says that no more splits come", "no-more-splits", "NoMoreSplits for subtasks [0 1]", bent{enum: func(c connector.EnumeratorContext) connector.EnumeratorContext { return silent{c} }}},
		{"never ends", "end", "say it when all splits are read", reader(func(r connector.Reader[string]) connector.Reader[string] {
			return bentReader{Reader: r, poll: func(out connector.Output[string], max int) (connector.Status, error) {
				st, err := r.Poll(out, max)
				if st == connector.EndOfInput {
					st = connector.NothingAvailable
				}
				return st, err
			}}
		})},
		{"ends before its splits come", "end", "says EndOfInput before NoMoreSplits", reader(func(r connector.Reader[string]) connector.Reader[string] { return &eager{Reader: r} })},
		{"panics", "panic", "Poll ends in a panic: gone wrong, at suite_test.go:", reader(func(r connector.Reader[string]) connector.Reader[string] {
			return bentReader{Reader: r, poll: func(connector.Output[string], int) (connector.Status, error) { panic("gone wrong") }}
		})},
	} {
		t.Run(c.name, func(t *testing.T) {
			start := time.Now()
			got := record(t, func(tb testing.TB) { guarded(tb, func() { suite(c.bent).readsAll(tb, 2) }) })
			if !strings.Contains(got, c.rule) || !strings.Contains(got, c.advice) {
				t.Errorf("after %v: %s", time.Since(start), got)
			}
		})
	}
}
