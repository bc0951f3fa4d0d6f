package ha

import (
	"bytes"
	"errors"
	"path"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/fs/fault"
	"github.com/thalweg/thalweg/fs/mem"
)

func progress(t *testing.T, s Store, want string) {
	t.Helper()
	got, err := s.Progress(t.Context(), jobID(1))
	must(t, err)
	if string(got) != want || (got == nil) != (want == "") {
		t.Fatalf("progress %q, want %q", got, want)
	}
}

// The next attempt finds the progress that was stored last, and the one before cannot change it any more.
func TestProgressIsFencedAsPointersAre(t *testing.T) {
	forEachStore(t, func(t *testing.T, next attempts) {
		ctx := t.Context()
		first := next()
		acquire(t, first, 1)
		must(t, first.PutJob(ctx, Job{ID: jobID(1)}))
		if err := first.StoreProgress(ctx, jobID(1), []byte("x")); !errors.Is(err, ErrUnknownJob) {
			t.Errorf("before the job was opened: %v", err)
		}
		open(t, first, jobID(1), Pointer{}, 1)
		progress(t, first, "")
		for _, text := range []string{"one", "two", "three"} {
			must(t, first.StoreProgress(ctx, jobID(1), []byte(text)))
			progress(t, first, text)
		}
		second := next()
		acquire(t, second, 2)
		_, _, err := second.OpenJob(ctx, jobID(1))
		must(t, err)
		progress(t, second, "three")
		if err := first.StoreProgress(ctx, jobID(1), []byte("stale")); !errors.Is(err, ErrFenced) {
			t.Errorf("by the old attempt: %v, want ErrFenced", err)
		}
		progress(t, second, "three")
		must(t, second.StoreProgress(ctx, jobID(1), []byte("four")))
		if err := first.StoreProgress(ctx, jobID(1), []byte("stale")); !errors.Is(err, ErrFenced) {
			t.Errorf("by the old attempt: %v, want ErrFenced", err)
		}
		progress(t, second, "four")
		must(t, second.EndJob(ctx, jobID(1), Result{State: "FINISHED"}))
		progress(t, second, "")
	})
}

// Whatever answer is lost, a repetition succeeds, and what is found afterwards is what was stored. One file is left.
func TestProgressSurvivesLostAnswers(t *testing.T) {
	lost := errors.New("connection reset")
	for _, op := range []fault.Op{fault.Rename, fault.Create, fault.Close, fault.Chmod, fault.Stat} {
		for n := range 4 {
			f := fault.New(mem.New("ha"))
			s := NewFileStore(f, "/ha", zerolog.Nop())
			ctx := t.Context()
			acquire(t, s, 1)
			must(t, s.PutJob(ctx, Job{ID: jobID(1)}))
			open(t, s, jobID(1), Pointer{}, 1)
			must(t, s.StoreProgress(ctx, jobID(1), []byte("one")))
			f.Set(fault.When(fault.First(1, fault.After(n, fault.On(op, ""))), fault.FailAfter(lost)))
			for try := 0; ; try++ {
				err := s.StoreProgress(ctx, jobID(1), []byte("two"))
				if err == nil {
					break
				}
				if try == 3 || !errors.Is(err, lost) {
					t.Fatalf("%v %d: %v", op, n, err)
				}
			}
			f.Set()
			next := NewFileStore(f, "/ha", zerolog.Nop())
			acquire(t, next, 2)
			_, _, err := next.OpenJob(ctx, jobID(1))
			must(t, err)
			progress(t, next, "two")
			must(t, next.StoreProgress(ctx, jobID(1), bytes.Repeat([]byte("3"), 1<<20)))
			infos, err := f.List(ctx, s.jobDir(jobID(1)))
			must(t, err)
			files := 0
			for _, i := range infos {
				if strings.HasPrefix(path.Base(i.Path), "chk-") {
					files++
				}
			}
			if files > 2 {
				t.Errorf("%v %d: %d files of progress are left", op, n, files)
			}
		}
	}
}
