// Package compat holds savepoints of earlier builds, and the tests that this one restores them and goes on. scripts/compat.sh takes them.
package compat

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/test/compat/ledger"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// lines is a sink that keeps what it gets.
type lines[T any] struct {
	mu  sync.Mutex
	all []T
}

func (s *lines[T]) Writer(connector.SinkContext, [][]byte) (connector.SinkWriter[T], error) {
	return s, nil
}

func (s *lines[T]) Write(v T, _ int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, v)
	return nil
}

func (s *lines[T]) Flush(context.Context, bool) error { return nil }
func (s *lines[T]) Snapshot(int64) ([][]byte, error)  { return nil, nil }
func (s *lines[T]) Close() error                      { return nil }
func (s *lines[T]) of(kind func(T) bool) (some []T) {
	return slices.DeleteFunc(slices.Clone(s.all), func(v T) bool { return !kind(v) })
}

// kept runs each for every savepoint that is kept, in a copy, on every backend that reads it.
func kept(t *testing.T, each func(t *testing.T, dir, backend string)) {
	dirs, err := filepath.Glob("testdata/*/*-*")
	if err != nil || len(dirs) < 4 {
		t.Fatalf("%v: %v", dirs, err)
	}
	for _, dir := range dirs {
		wrote, form, _ := strings.Cut(filepath.Base(dir), "-")
		for _, backend := range []string{"hashmap", "pebble"} {
			if form == "native" && backend != wrote {
				continue
			}
			t.Run(fmt.Sprintf("%s %s by %s on %s", filepath.Base(filepath.Dir(dir)), form, wrote, backend), func(t *testing.T) {
				at := filepath.Join(t.TempDir(), "moved")
				if err := os.CopyFS(at, os.DirFS(dir)); err != nil {
					t.Fatal(err)
				}
				each(t, at, backend)
			})
		}
	}
}

// run runs a program from a savepoint to the end of its input, at another parallelism.
func run(t *testing.T, from, backend string, build func(*stream.Environment), more ...string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	conf := map[string]string{"parallelism.default": "3", "state.backend.type": backend, "execution.state-recovery.path": "file://" + from, "restart-strategy.type": "none",
		"execution.checkpointing.interval": "100ms", "execution.checkpointing.dir": "file://" + t.TempDir()}
	for i := 0; i < len(more); i += 2 {
		conf[more[i]] = more[i+1]
	}
	err := stream.RunLocal(ctx, "ledger", func(env *stream.Environment) error { build(env); return nil }, stream.LocalOptions{Config: conf, Logger: zerolog.Nop()})
	if ctx.Err() != nil {
		t.Fatal("the job did not end")
	}
	return err
}

// reference is what the whole input amounts to, replayed.
type reference struct {
	orders []ledger.Line         // of order n
	sums   map[string]int64      // of the windows, by user and minute
	starts map[int64]bool        // of the minutes
	after  func(n int64) []int64 // minutes that begin with or after that of order n
}

func minuteOf(user string, at int64) string { return fmt.Sprint(user, at) }

func replay() reference {
	r := reference{sums: map[string]int64{}, starts: map[int64]bool{}}
	type user struct {
		line  ledger.Line
		items map[string]int32
	}
	users := map[string]*user{}
	for n := range int64(ledger.Records) {
		o := ledger.Make(n)
		u := users[o.User]
		if u == nil {
			u = &user{items: map[string]int32{}}
			users[o.User] = u
		}
		u.items[o.Item]++
		l := ledger.Line{Kind: "order", User: o.User, At: o.At, Account: u.line.Account, Recent: append(slices.Clone(u.line.Recent), o.Cents),
			Items: u.items[o.Item], Largest: max(u.line.Largest, o.Cents), Sum: u.line.Sum + int64(o.Cents)}
		l.Account = ledger.Account{Orders: l.Account.Orders + 1, Cents: l.Account.Cents + o.Cents, Last: o.Item}
		l.Recent = l.Recent[max(len(l.Recent)-3, 0):]
		u.line = l
		r.orders = append(r.orders, l)
		r.sums[minuteOf(o.User, ledger.Minute(o.At))] += int64(o.Cents)
		r.starts[ledger.Minute(o.At)] = true
	}
	r.after = func(n int64) []int64 {
		return slices.DeleteFunc(slices.Sorted(maps.Keys(r.starts)), func(m int64) bool { return m < ledger.Minute(ledger.Make(n).At) })
	}
	return r
}

// The program of the earlier build goes on where it stopped: each state is as the whole input makes it, each timer and window that was open fires once.
func TestSavepointsOfEarlierBuildsGoOn(t *testing.T) {
	want := replay()
	kept(t, func(t *testing.T, dir, backend string) {
		var got lines[ledger.Line]
		if err := run(t, dir, backend, func(env *stream.Environment) { ledger.Build(env, 0, &got) }); err != nil {
			t.Fatal(err)
		}
		checkRest(t, want, got.all)
	})
}

// checkRest checks what the ledger has told since a savepoint: every order since then as the whole input makes it, each timer and window that was open, once.
func checkRest(t *testing.T, want reference, all []ledger.Line) {
	t.Helper()
	orders := slices.DeleteFunc(slices.Clone(all), func(l ledger.Line) bool { return l.Kind != "order" })
	first := int64(ledger.Records - len(orders))
	if first < 100 || first > ledger.Records-100 {
		t.Fatalf("goes on at order %d of %d: the savepoint shows nothing", first, ledger.Records)
	}
	slices.SortFunc(orders, func(a, b ledger.Line) int { return int(a.At - b.At) })
	for i, l := range orders {
		if w := want.orders[first+int64(i)]; fmt.Sprint(l) != fmt.Sprint(w) {
			t.Fatalf("order %d\n got %+v\nwant %+v", first+int64(i), l, w)
		}
	}
	minutes, windows := map[string]int{}, map[string]int{}
	for _, l := range all {
		switch at := minuteOf(l.User, l.At); l.Kind {
		case "minute":
			minutes[at]++
		case "window":
			windows[at]++
			if l.Sum != want.sums[at] {
				t.Errorf("window %+v, want %d", l, want.sums[at])
			}
		}
	}
	left := want.after(first - 1)
	if len(minutes) != len(left)*ledger.Users || len(windows) != len(minutes) {
		t.Errorf("%d minutes, %d windows, want %d of %d users", len(minutes), len(windows), len(left), ledger.Users)
	}
	for u := range int64(ledger.Users) {
		for _, m := range left {
			if at := minuteOf(ledger.Make(u).User, m); minutes[at] != 1 || windows[at] != 1 {
				t.Errorf("%s: %d timers and %d windows", at, minutes[at], windows[at])
			}
		}
	}
}
