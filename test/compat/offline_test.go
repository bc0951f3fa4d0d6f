package compat

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/stream/stateprocessor"
	"github.com/thalweg/thalweg/test/compat/ledger"
)

// accounts reads what the ledger has of each user, with the types of its program.
type accounts struct{ ledger.Ledger }

type stored struct {
	user    string
	account ledger.Account
	recent  []int32
	items   map[string]int32
	largest int32
	total   int64
	seen    string
	timers  []time.Time
}

func (a *accounts) ProcessKey(k *stateprocessor.Key[string], emit func(stored)) error {
	s := stored{user: k.Key(), items: map[string]int32{}, timers: k.EventTimeTimers()}
	var errs [6]error
	s.account, _, errs[0] = a.Account.Value()
	s.recent, errs[1] = a.Recent.Get()
	errs[2] = a.Items.ForEach(func(item string, n int32) error { s.items[item] = n; return nil })
	s.largest, _, errs[3] = a.Largest.Get()
	s.total, _, errs[4] = a.Total.Get()
	s.seen, _, errs[5] = a.Seen.Value()
	emit(s)
	return errors.Join(errs[:]...)
}

func openSavepoint(t *testing.T, dir string, opts ...stateprocessor.Option) *stateprocessor.Savepoint {
	t.Helper()
	s, err := stateprocessor.Open(t.Context(), "file://"+dir, append(opts, stateprocessor.TempDir(t.TempDir()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func collect[R any](t *testing.T, all iter.Seq2[R, error]) (out []R) {
	t.Helper()
	for r, err := range all {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	return out
}

// Each state of each key is read as the replay of the input has it.
func TestOfflineReadOfEarlierSavepoints(t *testing.T) {
	want := replay()
	kept(t, func(t *testing.T, dir, backend string) {
		all := collect(t, stateprocessor.Keyed(t.Context(), openSavepoint(t, dir, stateprocessor.Backend(backend)), "ledger", &accounts{}))
		if len(all) != ledger.Users {
			t.Fatalf("%d users", len(all))
		}
		for _, s := range all {
			at := slices.IndexFunc(want.orders, func(l ledger.Line) bool { return l.User == s.user && l.Account.Orders == s.account.Orders })
			if at < 0 {
				t.Fatalf("%+v", s)
			}
			w := want.orders[at]
			items := int32(0)
			for _, n := range s.items {
				items += n
			}
			timer := time.UnixMilli(ledger.Minute(w.At) + 59_999).UTC()
			if s.account != w.Account || !slices.Equal(s.recent, w.Recent) || items != w.Account.Orders || s.items[w.Account.Last] != w.Items || s.largest != w.Largest || s.total != w.Sum ||
				s.seen != w.Account.Last || !slices.Contains(s.timers, timer) {
				t.Errorf("got %+v\nwant %+v", s, w)
			}
		}
	})
}

// refund changes accounts: one user goes, the others get 5000 cents.
type refund struct{ ledger.Ledger }

func (r *refund) ProcessKey(k *stateprocessor.Key[string], _ func(struct{})) error {
	if k.Key() == "user-03" {
		for _, at := range k.EventTimeTimers() {
			if err := k.DeleteEventTimeTimer(at); err != nil {
				return err
			}
		}
		return errors.Join(r.Account.Clear(), r.Minute.Clear(), r.Recent.Clear(), r.Items.Clear(), r.Largest.Clear(), r.Total.Clear(), r.Seen.Clear())
	}
	a, _, err := r.Account.Value()
	a.Cents += 5000
	return errors.Join(err, r.Account.Update(a))
}

// A savepoint is changed, and the job goes on from what was written, on both backends: what was changed is, and all else is as it was.
func TestAJobGoesOnFromAChangedSavepoint(t *testing.T) {
	want := replay()
	kept(t, func(t *testing.T, dir, backend string) {
		s := openSavepoint(t, dir, stateprocessor.Backend(backend))
		at, err := s.Writer().With("ledger", stateprocessor.Keys[string](&refund{})).Write(t.Context(), "file://"+t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		at = strings.TrimPrefix(at, "file://")
		if left := collect(t, stateprocessor.Keyed(t.Context(), openSavepoint(t, at), "ledger", &accounts{})); len(left) != ledger.Users-1 {
			t.Fatalf("%d users are left", len(left))
		}
		for _, on := range []string{"hashmap", "pebble"} {
			var got lines[ledger.Line]
			if err := run(t, at, on, func(env *stream.Environment) { ledger.Build(env, 0, &got) }); err != nil {
				t.Fatal(err)
			}
			orders := got.of(func(l ledger.Line) bool { return l.Kind == "order" })
			slices.SortFunc(orders, func(a, b ledger.Line) int { return int(a.At - b.At) })
			first, anew := ledger.Records-len(orders), int32(0)
			if first < 100 || len(orders) < 100 {
				t.Fatalf("%d orders", len(orders))
			}
			for i, l := range orders {
				w := want.orders[first+i]
				if l.User == "user-03" {
					if anew++; l.Account.Orders != anew {
						t.Fatalf("%+v is not a new account", l)
					}
					continue
				}
				w.Account.Cents += 5000
				if fmt.Sprint(l) != fmt.Sprint(w) {
					t.Fatalf("got %+v\nwant %+v", l, w)
				}
			}
			for _, l := range got.of(func(l ledger.Line) bool { return l.Kind == "window" }) {
				if w := want.sums[minuteOf(l.User, l.At)]; l.Sum != w {
					t.Errorf("window %+v, want %d", l, w)
				}
			}
		}
	})
}

// A savepoint gets another max parallelism, and the job goes on with it as it would have.
func TestAJobGoesOnAtAnotherMaxParallelism(t *testing.T) {
	want := replay()
	kept(t, func(t *testing.T, dir, backend string) {
		for _, n := range []int{5, 300} {
			s := openSavepoint(t, dir, stateprocessor.Backend(backend))
			at, err := s.Writer().MaxParallelism(n).Write(t.Context(), "file://"+t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			at = strings.TrimPrefix(at, "file://")
			for _, op := range openSavepoint(t, at).Operators() {
				if op.MaxParallelism != n {
					t.Errorf("%+v", op)
				}
			}
			var got lines[ledger.Line]
			if err := run(t, at, backend, func(env *stream.Environment) { ledger.Build(env, 0, &got) }, "pipeline.max-parallelism", fmt.Sprint(n)); err != nil {
				t.Fatal(err)
			}
			checkRest(t, want, got.all)
		}
	})
}

// opening makes accounts of lines of a file.
type opening struct{ ledger.Ledger }

func (o *opening) ProcessElement(k *stateprocessor.Key[string], a ledger.Account) error {
	return errors.Join(o.Account.Update(a), o.Items.Put("item-0", a.Orders), o.Recent.Add(a.Cents), o.Largest.Add(999_999), o.Total.Add(1), o.Seen.Update("file"),
		o.Minute.Update(7), k.RegisterEventTimeTimer(time.UnixMilli(ledger.Begin-1)))
}

// A job starts with state that was made of records, at a max parallelism of its own choice.
func TestAJobStartsFromBootstrappedState(t *testing.T) {
	want := replay()
	for _, c := range []struct {
		max          int
		with, runsOn string
	}{{128, "hashmap", "pebble"}, {7, "pebble", "hashmap"}} {
		records := func(yield func(ledger.Account, error) bool) {
			for n := range ledger.Users {
				if !yield(ledger.Account{Orders: int32(100 + n), Last: ledger.Make(int64(n)).User}, nil) {
					return
				}
			}
		}
		user := func(a ledger.Account) string { return a.Last }
		at, err := stateprocessor.New(c.max, stateprocessor.Backend(c.with), stateprocessor.TempDir(t.TempDir())).
			With("ledger", stateprocessor.Records(records, user, &opening{})).Write(t.Context(), "file://"+t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		var got lines[ledger.Line]
		if err := run(t, strings.TrimPrefix(at, "file://"), c.runsOn, func(env *stream.Environment) { ledger.Build(env, 0, &got) }); err != nil {
			t.Fatal(err)
		}
		orders, early := 0, 0
		for _, l := range got.all {
			switch {
			case l.Kind == "order":
				orders++
				w := want.orders[(l.At-ledger.Begin)/100]
				var n int
				if _, err := fmt.Sscanf(l.User, "user-%d", &n); err != nil {
					t.Fatal(err)
				}
				if l.Account.Orders != w.Account.Orders+int32(100+n) || l.Largest != 999_999 || l.Sum != w.Sum+1 {
					t.Fatalf("got %+v\nwant %+v and 1%02d orders", l, w, n)
				}
			case l.Kind == "minute" && l.At < ledger.Begin:
				early++
			}
		}
		if orders != ledger.Records || early != ledger.Users {
			t.Errorf("%d orders, %d timers", orders, early)
		}
	}
}

// lists keeps operator state of each kind.
func lists(fill, check func(list, union stream.ListState[string], rules stream.BroadcastState[string, int64]) error) func(rt *stream.TaskContext) error {
	return func(rt *stream.TaskContext) error {
		list, err1 := rt.ListState[string]("list")
		union, err2 := rt.UnionListState[string]("union")
		rules, err3 := rt.BroadcastState[string, int64]("rules")
		if err := errors.Join(err1, err2, err3); err != nil {
			return err
		}
		for _, fn := range []func(list, union stream.ListState[string], rules stream.BroadcastState[string, int64]) error{fill, check} {
			if fn != nil {
				if err := fn(list, union, rules); err != nil {
					return err
				}
			}
		}
		return nil
	}
}

func TestOfflineOperatorState(t *testing.T) {
	fill := func(list, union stream.ListState[string], rules stream.BroadcastState[string, int64]) error {
		rules.Put("limit", 5)
		return errors.Join(list.AddAll([]string{"a", "b", "c"}), union.Add("u"))
	}
	check := func(list, union stream.ListState[string], rules stream.BroadcastState[string, int64]) error {
		l, err1 := list.Get()
		u, err2 := union.Get()
		limit, _ := rules.Get("limit")
		if !slices.Equal(l, []string{"a", "b", "c"}) || !slices.Equal(u, []string{"u"}) || limit != 5 {
			return fmt.Errorf("%v %v %v", l, u, limit)
		}
		return errors.Join(err1, err2)
	}
	at, err := stateprocessor.New(64).With("rules", stateprocessor.OperatorState(lists(fill, nil))).Write(t.Context(), "file://"+t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := openSavepoint(t, strings.TrimPrefix(at, "file://"))
	if err := stateprocessor.ReadOperatorState(t.Context(), s, "rules", lists(nil, check)); err != nil {
		t.Fatal(err)
	}
	// Under another UID, in a savepoint that has another operator too.
	at, err = s.Writer().ChangeUID("rules", "limits").With("other", stateprocessor.OperatorState(lists(fill, nil))).Write(t.Context(), "file://"+t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s2 := openSavepoint(t, strings.TrimPrefix(at, "file://"))
	for _, uid := range []string{"limits", "other"} {
		if err := stateprocessor.ReadOperatorState(t.Context(), s2, uid, lists(nil, check)); err != nil {
			t.Error(err)
		}
	}
	if err := stateprocessor.ReadOperatorState(t.Context(), s2, "rules", lists(nil, check)); err == nil || !strings.Contains(err.Error(), `uid "rules"; it has: ["limits" "other"]`) {
		t.Errorf("got %v", err)
	}
}

func TestMistakesOfAWriterAreToldAtOnce(t *testing.T) {
	_, err := stateprocessor.New(0).Remove("a").ChangeUID("b", "c").With("d").Write(t.Context(), "file://"+t.TempDir())
	for _, w := range []string{"max parallelism 0", `Remove("a")`, `ChangeUID("b", "c")`, `With("d")`} {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("%v lacks %q", err, w)
		}
	}
	dir := t.TempDir()
	broken := func(yield func(ledger.Account, error) bool) { yield(ledger.Account{}, errors.New("disk on fire")) }
	_, err = stateprocessor.New(8).With("ledger", stateprocessor.Records(broken, func(a ledger.Account) string { return a.Last }, &opening{})).Write(t.Context(), "file://"+dir)
	if err == nil || !strings.Contains(err.Error(), `operator "ledger"`) || !strings.Contains(err.Error(), "record 0: disk on fire") {
		t.Errorf("got %v", err)
	}
	if _, err := stateprocessor.Open(t.Context(), "file://"+dir); err == nil {
		t.Error("there is a savepoint")
	}
}
