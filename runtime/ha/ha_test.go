package ha

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/fault"
	"github.com/thalweg/thalweg/fs/local"
	"github.com/thalweg/thalweg/fs/mem"
	"github.com/thalweg/thalweg/runtime/graph"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func jobID(n byte) graph.JobID { return graph.JobID{ID: graph.ID{n}} }

// attempts gives further owners of the same data; each kind of store passes the same tests.
type attempts func() Store

func forEachStore(t *testing.T, fn func(t *testing.T, next attempts)) {
	stores := map[string]func(t *testing.T) attempts{
		"memory": func(*testing.T) attempts {
			m := NewMemory()
			return func() Store { return m.Attempt() }
		},
		"mem": func(*testing.T) attempts {
			f := mem.New("ha")
			return func() Store { return NewFileStore(f, "/ha/app", zerolog.Nop()) }
		},
		"local": func(t *testing.T) attempts {
			f, dir := local.New(), t.TempDir()
			return func() Store { return NewFileStore(f, dir+"/ha", zerolog.Nop()) }
		},
	}
	for name, open := range stores {
		t.Run(name, func(t *testing.T) { fn(t, open(t)) })
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func acquire(t *testing.T, s Store, want int64) {
	t.Helper()
	e, err := s.AcquireEpoch(t.Context(), "test")
	must(t, err)
	if e != want {
		t.Fatalf("epoch %d, want %d", e, want)
	}
}

func open(t *testing.T, s Store, id graph.JobID, want Pointer, wantFirst int64) {
	t.Helper()
	p, first, err := s.OpenJob(t.Context(), id)
	must(t, err)
	if p != want || first != wantFirst {
		t.Fatalf("pointer %+v, first number %d; want %+v, %d", p, first, want, wantFirst)
	}
}

func TestNextAttemptGoesOnWhereTheLastOneWasAndFencesIt(t *testing.T) {
	forEachStore(t, func(t *testing.T, next attempts) {
		ctx := t.Context()
		first := next()
		acquire(t, first, 1)
		job := Job{ID: jobID(1), Name: "totals", Data: []byte("graph")}
		must(t, first.PutJob(ctx, job))
		must(t, first.PutJob(ctx, job)) // a repeated submission
		open(t, first, job.ID, Pointer{}, 1)
		must(t, first.StorePointer(ctx, job.ID, Pointer{ID: 1, Dir: "hdfs://nn/ckp/j/chk-1"}))
		must(t, first.StorePointer(ctx, job.ID, Pointer{ID: 2, Dir: "hdfs://nn/ckp/j/chk-2"}))

		second := next()
		acquire(t, second, 2)
		jobs, err := second.Jobs(ctx)
		must(t, err)
		if diff := cmp.Diff([]Job{job}, jobs); diff != "" {
			t.Fatal(diff)
		}
		// The old attempt notices at the latest when the job is taken over; numbers never meet (3 was reserved by 2's pointer).
		open(t, second, job.ID, Pointer{ID: 2, Dir: "hdfs://nn/ckp/j/chk-2"}, 4)
		for what, err := range map[string]error{
			"pointer": first.StorePointer(ctx, job.ID, Pointer{ID: 3, Dir: "hdfs://nn/ckp/j/chk-3"}),
			"reserve": first.ReserveIDs(ctx, job.ID, 50),
			"end":     first.EndJob(ctx, job.ID, Result{State: "FAILED"}),
			"put":     first.PutJob(ctx, Job{ID: jobID(9)}),
			"epoch":   first.CheckEpoch(ctx),
			"cleanup": first.CleanUp(ctx),
		} {
			if !errors.Is(err, ErrFenced) {
				t.Errorf("%s by the old attempt: %v, want ErrFenced", what, err)
			}
		}
		must(t, second.CheckEpoch(ctx))
		must(t, second.ReserveIDs(ctx, job.ID, 20))
		must(t, second.StorePointer(ctx, job.ID, Pointer{ID: 4, Dir: "hdfs://nn/sp/savepoint-1"})) // not a numbered directory
		p, err := second.Pointer(ctx, job.ID)
		must(t, err)
		if want := (Pointer{ID: 4, Dir: "hdfs://nn/sp/savepoint-1"}); p != want {
			t.Fatalf("pointer %+v, want %+v", p, want)
		}
		third := next()
		acquire(t, third, 3)
		open(t, third, job.ID, p, 21)
	})
}

func TestAJobThatEndedIsNotRunAgain(t *testing.T) {
	forEachStore(t, func(t *testing.T, next attempts) {
		ctx := t.Context()
		s := next()
		acquire(t, s, 1)
		must(t, s.PutJob(ctx, Job{ID: jobID(1), Name: "a"}))
		must(t, s.PutJob(ctx, Job{ID: jobID(2), Name: "b"}))
		open(t, s, jobID(1), Pointer{}, 1)
		r := Result{State: "FINISHED", Start: time.UnixMilli(1).UTC(), End: time.UnixMilli(5).UTC()}
		must(t, s.EndJob(ctx, jobID(1), r))
		must(t, s.EndJob(ctx, jobID(1), r))

		s = next()
		acquire(t, s, 2)
		jobs, err := s.Jobs(ctx)
		must(t, err)
		if len(jobs) != 1 || jobs[0].Name != "b" {
			t.Fatalf("jobs %+v, want b alone", jobs)
		}
		if _, _, err := s.OpenJob(ctx, jobID(1)); !errors.Is(err, ErrEnded) {
			t.Fatalf("open: %v, want ErrEnded", err)
		}
		if _, _, err := s.OpenJob(ctx, jobID(7)); !errors.Is(err, ErrUnknownJob) {
			t.Fatalf("open: %v, want ErrUnknownJob", err)
		}
		results, err := s.Results(ctx)
		must(t, err)
		if diff := cmp.Diff(map[graph.JobID]Result{jobID(1): r}, results); diff != "" {
			t.Fatal(diff)
		}
		must(t, s.CleanUp(ctx))
	})
}

func TestTaskManagersFindTheNewLeader(t *testing.T) {
	forEachStore(t, func(t *testing.T, next attempts) {
		ctx := t.Context()
		first, second, watcher := next(), next(), next()
		acquire(t, first, 1)
		must(t, first.PublishLeader(ctx, Leader{Address: "nm1:1", Token: "s3cret"}))
		l, err := watcher.WatchLeader(ctx, 0, time.Millisecond)
		must(t, err)
		if want := (Leader{Epoch: 1, Address: "nm1:1", Token: "s3cret"}); l != want {
			t.Fatalf("leader %+v, want %+v", l, want)
		}
		found := make(chan Leader, 1)
		go func() {
			defer close(found)
			if l, err := watcher.WatchLeader(ctx, 2, time.Millisecond); err == nil {
				found <- l
			}
		}()
		acquire(t, second, 2)
		must(t, second.PublishLeader(ctx, Leader{Address: "nm2:2"}))
		if l := <-found; l.Address != "nm2:2" || l.Epoch != 2 {
			t.Fatalf("leader %+v, want the second", l)
		}
		// A late announcement of the old attempt does not hide the new one.
		_ = first.PublishLeader(ctx, Leader{Address: "nm1:1"})
		l, err = watcher.WatchLeader(ctx, 0, time.Millisecond)
		must(t, err)
		if l.Epoch != 2 {
			t.Fatalf("leader %+v, want the second", l)
		}
		short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
		defer cancel()
		if _, err := watcher.WatchLeader(short, 3, time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("watch: %v, want a deadline", err)
		}
	})
}

// A pointer is in the path of every checkpoint.
func TestPointerIsOneRename(t *testing.T) {
	f := fault.New(mem.New("ha"))
	s := NewFileStore(f, "/ha", zerolog.Nop())
	ctx := t.Context()
	acquire(t, s, 1)
	must(t, s.PutJob(ctx, Job{ID: jobID(1)}))
	open(t, s, jobID(1), Pointer{}, 1)
	must(t, s.StorePointer(ctx, jobID(1), Pointer{ID: 1, Dir: "hdfs://nn/c/chk-1"}))
	f.ResetLog()
	must(t, s.StorePointer(ctx, jobID(1), Pointer{ID: 2, Dir: "hdfs://nn/c/chk-2"}))
	if log := f.Log(); len(log) != 1 || log[0].Op != fault.Rename {
		t.Fatalf("operations %v, want one rename", log)
	}
}

// The answer to a rename is lost: the call is repeated and finds out what happened.
func TestLostAnswersAreResolved(t *testing.T) {
	f := fault.New(mem.New("ha"))
	s := NewFileStore(f, "/ha", zerolog.Nop())
	ctx := t.Context()
	acquire(t, s, 1)
	must(t, s.PutJob(ctx, Job{ID: jobID(1)}))
	open(t, s, jobID(1), Pointer{}, 1)
	must(t, s.StorePointer(ctx, jobID(1), Pointer{ID: 1, Dir: "hdfs://nn/c/chk-1"}))

	lost := errors.New("connection reset")
	f.Set(fault.When(fault.First(1, fault.On(fault.Rename, "")), fault.FailAfter(lost)))
	p := Pointer{ID: 2, Dir: "hdfs://nn/c/chk-2"}
	if err := s.StorePointer(ctx, jobID(1), p); !errors.Is(err, lost) {
		t.Fatalf("store: %v, want the lost answer", err)
	}
	must(t, s.StorePointer(ctx, jobID(1), p))

	// The same for a reservation whose answer is lost, followed by something else.
	f.Set(fault.When(fault.First(1, fault.On(fault.Rename, "")), fault.FailAfter(lost)))
	if err := s.ReserveIDs(ctx, jobID(1), 30); !errors.Is(err, lost) {
		t.Fatalf("reserve: %v, want the lost answer", err)
	}
	must(t, s.StorePointer(ctx, jobID(1), Pointer{ID: 3, Dir: "hdfs://nn/c/chk-3"}))
	f.Set()
	next := NewFileStore(f, "/ha", zerolog.Nop())
	acquire(t, next, 2)
	open(t, next, jobID(1), Pointer{ID: 3, Dir: "hdfs://nn/c/chk-3"}, 31)
}

// The attempt dies between the decision that the job has ended and the result file.
func TestEndIsDecidedByTheToken(t *testing.T) {
	f := fault.New(mem.New("ha"))
	s := NewFileStore(f, "/ha", zerolog.Nop())
	ctx := t.Context()
	acquire(t, s, 1)
	must(t, s.PutJob(ctx, Job{ID: jobID(1)}))
	open(t, s, jobID(1), Pointer{}, 1)
	f.Set(fault.When(fault.On(fault.Create, "/ha/results/**"), fault.Fail(errors.New("killed"))))
	if err := s.EndJob(ctx, jobID(1), Result{State: "CANCELED"}); err == nil {
		t.Fatal("no error")
	}
	f.Set()
	next := NewFileStore(f, "/ha", zerolog.Nop())
	acquire(t, next, 2)
	if jobs, err := next.Jobs(ctx); err != nil || len(jobs) != 0 {
		t.Fatalf("jobs %v, %v; want none", jobs, err)
	}
	results, err := next.Results(ctx) // before anybody opens it: the next attempt asks whether there is anything to do
	must(t, err)
	if results[jobID(1)].State != "CANCELED" {
		t.Fatalf("results %+v, want CANCELED", results)
	}
	if _, _, err := next.OpenJob(ctx, jobID(1)); !errors.Is(err, ErrEnded) {
		t.Fatalf("open: %v, want ErrEnded", err)
	}
	results, err = next.Results(ctx)
	must(t, err)
	if results[jobID(1)].State != "CANCELED" {
		t.Fatalf("results %+v, want CANCELED", results)
	}
}

// Data that somebody has damaged is told from data that cannot be read now: no later try helps.
func TestDamageIsTold(t *testing.T) {
	put := func(f fs.FileSystem, p string) error {
		return fs.WriteFile(context.Background(), f, p, []byte("{garbage"), true)
	}
	for name, c := range map[string]struct {
		damage func(f fs.FileSystem, dir, token string) error
		look   func(s Store) error
	}{
		"token removed": {
			func(f fs.FileSystem, dir, token string) error { return f.Remove(context.Background(), token, false) },
			func(s Store) error { _, err := s.Jobs(context.Background()); return err },
		},
		"job": {
			func(f fs.FileSystem, dir, _ string) error { return put(f, dir+"/job") },
			func(s Store) error { _, err := s.Jobs(context.Background()); return err },
		},
		"pointer": {
			func(f fs.FileSystem, dir, token string) error {
				return put(f, dir+"/dir-"+token[strings.LastIndex(token, ".")+1:])
			},
			func(s Store) error { _, _, err := s.OpenJob(context.Background(), jobID(1)); return err },
		},
		"pointer removed": {
			func(f fs.FileSystem, dir, token string) error {
				return f.Remove(context.Background(), dir+"/dir-"+token[strings.LastIndex(token, ".")+1:], false)
			},
			func(s Store) error { _, _, err := s.OpenJob(context.Background(), jobID(1)); return err },
		},
		"result": {
			func(f fs.FileSystem, _, _ string) error { return put(f, "/ha/results/"+jobID(1).String()) },
			func(s Store) error { _, err := s.Jobs(context.Background()); return err },
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, dir := mem.New("ha"), "/ha/jobs/"+jobID(1).String()
			s := NewFileStore(f, "/ha", zerolog.Nop())
			acquire(t, s, 1)
			must(t, s.PutJob(t.Context(), Job{ID: jobID(1)}))
			open(t, s, jobID(1), Pointer{}, 1)
			must(t, s.StorePointer(t.Context(), jobID(1), Pointer{ID: 1, Dir: "hdfs://nn/c/chk-1"}))
			must(t, c.damage(f, dir, tokenFile(t, f, dir)))
			next := NewFileStore(f, "/ha", zerolog.Nop())
			acquire(t, next, 2)
			if err := c.look(next); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), jobID(1).String()) {
				t.Fatalf("%v, want ErrDamaged with the job's id", err)
			}
		})
	}
}

func tokenFile(t *testing.T, f fs.FileSystem, dir string) string {
	t.Helper()
	infos, err := f.List(t.Context(), dir)
	must(t, err)
	for _, i := range infos {
		if _, ok := parseToken(path.Base(i.Path)); ok {
			return dir + "/" + path.Base(i.Path)
		}
	}
	t.Fatalf("no token in %v", infos)
	return ""
}

// Whoever owns the job knows what its token said, and makes it anew; but not when a newer attempt is there.
func TestOwnerRenewsItsToken(t *testing.T) {
	f, dir := mem.New("ha"), "/ha/jobs/"+jobID(1).String()
	s := NewFileStore(f, "/ha", zerolog.Nop())
	acquire(t, s, 1)
	must(t, s.PutJob(t.Context(), Job{ID: jobID(1)}))
	open(t, s, jobID(1), Pointer{}, 1)
	must(t, s.StorePointer(t.Context(), jobID(1), Pointer{ID: 1, Dir: "hdfs://nn/c/chk-1"}))
	must(t, f.Remove(t.Context(), tokenFile(t, f, dir), false))
	p := Pointer{ID: 2, Dir: "hdfs://nn/c/chk-2"}
	must(t, s.StorePointer(t.Context(), jobID(1), p))
	next := NewFileStore(f, "/ha", zerolog.Nop())
	acquire(t, next, 2)
	open(t, next, jobID(1), p, 4)
	must(t, f.Remove(t.Context(), tokenFile(t, f, dir), false))
	if err := s.StorePointer(t.Context(), jobID(1), Pointer{ID: 3, Dir: "hdfs://nn/c/chk-3"}); !errors.Is(err, ErrFenced) {
		t.Fatalf("%v, want ErrFenced", err)
	}
}

func TestSecretsAreReadableByTheOwnerOnly(t *testing.T) {
	f := mem.New("ha")
	s := NewFileStore(f, "/app/ha", zerolog.Nop())
	acquire(t, s, 1)
	must(t, s.PublishLeader(t.Context(), Leader{Token: "s3cret"}))
	for p, want := range map[string]uint32{"/app/ha": 0o700, "/app/ha/leader-1": 0o600} {
		info, err := f.Stat(t.Context(), p)
		must(t, err)
		if info.Mode != want {
			t.Errorf("%s has mode %o, want %o", p, info.Mode, want)
		}
	}
}

func TestTokenNames(t *testing.T) {
	for _, tok := range []token{{epoch: 1, key: noKey}, {epoch: 12, id: 34, reserved: 56, key: "abcdef"}, {epoch: 3, ended: "FINISHED"}} {
		got, ok := parseToken(tok.name())
		if !ok || got != tok {
			t.Errorf("%s parsed as %+v, %v", tok.name(), got, ok)
		}
	}
	for _, name := range []string{"", "job", "dir-abc", "e1", "e1.c2.r3", "e1.c2.r3.", "e01.c2.r3.k", "e-1.c2.r3.k", "e1.c2.r3.k.x", ".e1.c1.r1.k.tmp", "e1.ended."} {
		if got, ok := parseToken(name); ok {
			t.Errorf("%q parsed as %+v", name, got)
		}
	}
}

func FuzzParseToken(f *testing.F) {
	f.Add("e1.c2.r3.none")
	f.Add("e1.ended.FAILED")
	f.Fuzz(func(t *testing.T, name string) {
		if tok, ok := parseToken(name); ok && tok.name() != name {
			t.Fatalf("%q parsed as %q", name, tok.name())
		}
	})
}

func listAll(ctx context.Context, f fs.FileSystem, dir string) string {
	infos, err := f.List(ctx, dir)
	if err != nil {
		return err.Error()
	}
	var names []string
	for _, i := range infos {
		names = append(names, path.Base(i.Path))
	}
	return fmt.Sprint(strings.Join(names, " "))
}
