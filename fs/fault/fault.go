// Package fault wraps an fs.FileSystem and lets chosen operations fail, tear or wait, to show that callers keep their promises when a
// store does not. Layer L1; it imports fs only.
//
// A rule is a predicate (which operations) and an injector (what happens to them):
//
//	f := fault.New(mem.New("t"),
//		fault.When(fault.Nth(2, fault.On(fault.Close, "/chk/*/_metadata")), fault.Fail(io.ErrUnexpectedEOF)),
//		fault.When(fault.On(fault.Write, "/shared/*"), fault.Torn(100, syscall.ENOSPC)))
//
// Rules are asked in order; the first whose predicate says yes decides. Every operation is recorded, so that a test can also pin the
// exact sequence of calls. Predicates that count are called once per operation and under a lock.
package fault

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/thalweg/thalweg/fs"
)

// Op is a kind of operation.
type Op string

// The operations that pass through the wrapper. Read covers Read and ReadAt; CloseReader is the end of a reader, Close that of a writer.
const (
	Create      Op = "create"
	Open        Op = "open"
	Rename      Op = "rename"
	Remove      Op = "remove"
	Mkdir       Op = "mkdir"
	Stat        Op = "stat"
	List        Op = "list"
	Chmod       Op = "chmod"
	Write       Op = "write"
	Close       Op = "close"
	Abort       Op = "abort"
	Read        Op = "read"
	CloseReader Op = "close-reader"
)

// Event is one operation about to happen.
type Event struct {
	Op   Op
	Path string
	To   string // destination of a rename
	Size int    // bytes of a write or a read
}

// String is the form that Log returns: "rename /a -> /b", "write /a 12".
func (e Event) String() string {
	switch e.Op {
	case Rename:
		return fmt.Sprintf("rename %s -> %s", e.Path, e.To)
	case Write, Read:
		return fmt.Sprintf("%s %s %d", e.Op, e.Path, e.Size)
	default:
		return fmt.Sprintf("%s %s", e.Op, e.Path)
	}
}

// Predicate chooses operations.
type Predicate func(Event) bool

// On matches operations of the given kind on paths that match the pattern (path.Match; "" is every path; a pattern that ends in /**
// matches everything below). A rename is matched by either of its paths.
func On(op Op, pattern string) Predicate {
	return func(e Event) bool {
		return e.Op == op && (matches(pattern, e.Path) || (e.To != "" && matches(pattern, e.To)))
	}
}

// Any matches every kind of operation on paths that match the pattern.
func Any(pattern string) Predicate {
	return func(e Event) bool { return matches(pattern, e.Path) || (e.To != "" && matches(pattern, e.To)) }
}

// Changes matches operations that change the store.
func Changes() Predicate {
	return func(e Event) bool {
		return slices.Contains([]Op{Create, Rename, Remove, Mkdir, Chmod, Write, Close}, e.Op)
	}
}

func matches(pattern, p string) bool {
	if pattern == "" {
		return true
	}
	if dir, ok := strings.CutSuffix(pattern, "/**"); ok {
		return fs.Within(path.Clean("/"+dir), p)
	}
	ok, err := path.Match(pattern, p)
	if err != nil {
		panic(fmt.Sprintf("fault: pattern %q: %v", pattern, err)) // a mistake in the test
	}
	return ok
}

// And matches what all of ps match.
func And(ps ...Predicate) Predicate {
	return func(e Event) bool {
		for _, p := range ps {
			if !p(e) {
				return false
			}
		}
		return true
	}
}

// Or matches what one of ps matches.
func Or(ps ...Predicate) Predicate {
	return func(e Event) bool {
		for _, p := range ps {
			if p(e) {
				return true
			}
		}
		return false
	}
}

// Not matches what p does not.
func Not(p Predicate) Predicate { return func(e Event) bool { return !p(e) } }

// Nth matches only the n-th operation (from 1) that p matches.
func Nth(n int, p Predicate) Predicate {
	seen := 0
	return func(e Event) bool {
		if !p(e) {
			return false
		}
		seen++
		return seen == n
	}
}

// First matches the first n operations that p matches.
func First(n int, p Predicate) Predicate {
	seen := 0
	return func(e Event) bool {
		if seen >= n || !p(e) {
			return false
		}
		seen++
		return true
	}
}

// After matches what p matches but for the first n.
func After(n int, p Predicate) Predicate {
	seen := 0
	return func(e Event) bool {
		if !p(e) {
			return false
		}
		seen++
		return seen > n
	}
}

// Randomly matches each operation that p matches with the given probability. The same seed gives the same choices for the same
// sequence of operations.
func Randomly(probability float64, seed uint64, p Predicate) Predicate {
	r := rand.New(rand.NewPCG(seed, 0x7a17)) //nolint:gosec // repeatable on purpose
	return func(e Event) bool { return p(e) && r.Float64() < probability }
}

// Injector is what happens to an operation. The functions of this package make them.
type Injector struct {
	err    error
	after  bool // run the operation, then report err
	torn   int  // bytes of a write that go through, with err set
	isTorn bool
	delay  time.Duration
	gate   <-chan struct{}
	call   func(Event)
}

// Fail reports err instead of running the operation. A writer whose Close fails is given up.
func Fail(err error) Injector { return Injector{err: err} }

// FailAfter runs the operation and reports err all the same: its answer was lost.
func FailAfter(err error) Injector { return Injector{err: err, after: true} }

// Torn lets the first n bytes of a write through and then fails. On other operations it is Fail.
func Torn(n int, err error) Injector { return Injector{err: err, torn: n, isTorn: true} }

// Delay lets the operation wait for d first, at most until its context ends.
func Delay(d time.Duration) Injector { return Injector{delay: d} }

// Block lets the operation wait until gate is closed, at most until its context ends.
func Block(gate <-chan struct{}) Injector { return Injector{gate: gate} }

// Call runs f before the operation; f must not use the file system that it is called from.
func Call(f func(Event)) Injector { return Injector{call: f} }

// Rule is a predicate and what happens when it holds.
type Rule struct {
	when Predicate
	do   Injector
}

// When makes a rule.
func When(p Predicate, do Injector) Rule { return Rule{when: p, do: do} }

// FileSystem wraps another one. Make it with New.
type FileSystem struct {
	inner fs.FileSystem

	mu    sync.Mutex
	rules []Rule
	log   []Event
}

// New wraps inner; closing the wrapper closes inner.
func New(inner fs.FileSystem, rules ...Rule) *FileSystem {
	return &FileSystem{inner: inner, rules: rules}
}

// Set replaces the rules; without arguments nothing fails any more.
func (f *FileSystem) Set(rules ...Rule) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = rules
}

// Log returns the operations so far, in the order in which they began.
func (f *FileSystem) Log() []Event {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.log)
}

// ResetLog forgets the operations so far.
func (f *FileSystem) ResetLog() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.log = nil
}

// ErrInjected can be given to Fail when it does not matter which error it is.
var ErrInjected = errors.New("fault: injected error")

// decide records the event and finds its injector.
func (f *FileSystem) decide(e Event) Injector {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.log = append(f.log, e)
	for _, r := range f.rules {
		if r.when(e) {
			return r.do
		}
	}
	return Injector{}
}

// do runs an operation under its rule.
func (f *FileSystem) do(ctx context.Context, e Event, run func() error) error {
	in := f.decide(e)
	if err := in.before(ctx, e); err != nil {
		return err
	}
	if in.err != nil && !in.after {
		return in.failure(e)
	}
	if err := run(); err != nil {
		return err
	}
	if in.err != nil {
		return in.failure(e)
	}
	return nil
}

// before does the waiting.
func (in Injector) before(ctx context.Context, e Event) error {
	if in.call != nil {
		in.call(e)
	}
	if in.delay > 0 {
		t := time.NewTimer(in.delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return fmt.Errorf("fault: %s: %w", e, ctx.Err())
		}
	}
	if in.gate != nil {
		select {
		case <-in.gate:
		case <-ctx.Done():
			return fmt.Errorf("fault: %s: %w", e, ctx.Err())
		}
	}
	return nil
}

func (in Injector) failure(e Event) error { return fmt.Errorf("fault: %s: %w", e, in.err) }
