package storage

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/state"
)

// another is the storage of job n beside that of memory.
func another(st *Storage, reg *fs.Registry, n byte) (*Storage, Owner) {
	id := graph.JobID{ID: graph.ID{n}}
	return New(st.fs, "/ckp", id, WithRegistry(reg)), Owner{Job: id, Name: "job " + string('0'+rune(n)), By: "application_1_000" + string('0'+rune(n)), Since: time.Unix(1e9, 0).UTC()}
}

func owned(t *testing.T, err error) *OwnedError {
	t.Helper()
	var e *OwnedError
	if !errors.As(err, &e) || strings.Contains(err.Error(), "\n") {
		t.Fatalf("%v, want one line about another job", err)
	}
	return e
}

// Two jobs that claim one checkpoint: the second is refused by the name of the first, until that has given its marks back; the first one's
// next attempts go on with what it has.
func TestOneJobOwnsAFolder(t *testing.T) {
	ctx := t.Context()
	st, reg, f := memory(t)
	one, first := another(st, reg, 1)
	two, second := another(st, reg, 2)
	first.Claims, second.Claims = []string{"mem://far/sp", st.Dir()}, []string{st.Dir()}
	marks, err := one.Own(ctx, first)
	if want := []string{one.Dir() + "/_owner", "mem://far/sp/_owner", st.Dir() + "/_owner"}; err != nil || !slices.Equal(marks, want) {
		t.Fatalf("%v, %v; want %v", marks, err, want)
	}
	_, err = two.Own(ctx, second)
	if e := owned(t, err); e.Owner.Job != first.Job || e.Folder != st.Dir() || e.Mark() != st.Dir()+"/_owner" {
		t.Fatalf("%+v", e)
	}
	for _, part := range []string{first.Job.String(), "(job 1)", "application_1_0001", "2001-09-09T01:46:40Z", "NO_CLAIM", "remove " + st.Dir() + "/_owner"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
	if left, err := f.List(ctx, "/ckp"); err != nil || len(left) != 2 {
		t.Errorf("the refused job leaves %v, %v", left, err)
	}
	again := first
	again.Claims = nil // its pointer names a checkpoint of its own by now
	if more, err := one.Own(ctx, again); err != nil || !slices.Equal(more, marks) {
		t.Errorf("the next attempt: %v, %v", more, err)
	}
	if o, err := one.Orphans(ctx, nil); err != nil || len(o) != 0 {
		t.Errorf("the mark is an orphan: %v, %v", o, err)
	}
	if err := OwnerOf(ctx, f, strings.TrimPrefix(st.Dir(), "mem://nn")); owned(t, err).Owner.Job != first.Job {
		t.Error(err)
	}
	if err := one.Remove(ctx, marks, nil, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := two.Own(ctx, second); err != nil {
		t.Errorf("when the first job has ended: %v", err)
	}
	if _, err := one.Own(ctx, first); owned(t, err).Owner.Job != second.Job {
		t.Error(err)
	}
}

// The mark of a job that is gone goes; that of a job which has come in its place does not, whoever removes first.
func TestMarkOfAJobThatIsGone(t *testing.T) {
	ctx := t.Context()
	st, reg, f := memory(t)
	one, first := another(st, reg, 1)
	two, second := another(st, reg, 2)
	first.Claims, second.Claims = []string{st.Dir()}, []string{st.Dir()}
	folder := strings.TrimPrefix(st.Dir(), "mem://nn")
	if _, err := one.Own(ctx, first); err != nil {
		t.Fatal(err)
	}
	for range 2 { // who comes second finds that it is done
		if err := Disown(ctx, f, folder, first); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := two.Own(ctx, second); err != nil {
		t.Fatal(err)
	}
	if e := owned(t, Disown(ctx, f, folder, first)); e.Owner.Job != second.Job {
		t.Errorf("%+v", e)
	}
	if e := owned(t, OwnerOf(ctx, f, folder)); e.Owner.Job != second.Job {
		t.Errorf("%+v", e)
	}
	if left, err := f.List(ctx, folder); err != nil || len(left) != 1 {
		t.Errorf("left are %v, %v", left, err)
	}
}

// A savepoint that was claimed, and is gone since, is not marked anew by the next attempt.
func TestNextAttemptLeavesWhatIsGone(t *testing.T) {
	ctx := t.Context()
	st, reg, f := memory(t)
	one, first := another(st, reg, 1)
	first.Claims = []string{"mem://nn/sp"}
	if _, err := one.Own(ctx, first); err != nil {
		t.Fatal(err)
	}
	if err := f.Remove(ctx, "/sp", true); err != nil {
		t.Fatal(err)
	}
	first.Claims = nil
	if marks, err := one.Own(ctx, first); err != nil || len(marks) != 1 {
		t.Errorf("%v, %v", marks, err)
	}
	if _, err := f.Stat(ctx, "/sp"); err == nil {
		t.Error("the folder is there again")
	}
}

func TestOfManyThatClaimOneWins(t *testing.T) {
	st, reg, _ := memory(t)
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		s, o := another(st, reg, byte(i+1))
		o.Claims = []string{st.Dir(), "mem://nn/other"}
		wg.Go(func() { _, errs[i] = s.Own(t.Context(), o) })
	}
	wg.Wait()
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
			continue
		}
		owned(t, err)
	}
	if won != 1 {
		t.Errorf("%d of %d own the folders: %v", won, len(errs), errs)
	}
}

// A mark that is created and not written is of a job that died at it: others wait for it, and refuse it then; the job's own folder is its own.
func TestMarkThatWasNeverWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		st, reg, f := memory(t)
		one, o := another(st, reg, 1)
		for _, p := range []string{"/ckp/" + job.String(), "/ckp/" + o.Job.String()} {
			if err := fs.WriteFile(ctx, f, p+"/_owner", nil, false); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := one.Own(ctx, o); err != nil {
			t.Errorf("its own folder: %v", err)
		}
		o.Claims = []string{st.Dir()}
		_, err := one.Own(ctx, o)
		if e := owned(t, err); e.Owner.Job != (graph.JobID{}) || !strings.Contains(err.Error(), "is being claimed by another job") || !strings.Contains(err.Error(), e.Mark()) {
			t.Error(err)
		}
		late := make(chan error)
		go func() { _, err := one.Own(ctx, o); late <- err }()
		synctest.Wait()
		if err := f.Remove(ctx, "/ckp/"+job.String()+"/_owner", false); err != nil {
			t.Error(err)
		}
		if err := <-late; err != nil {
			t.Errorf("it was given up meanwhile: %v", err)
		}
	})
}

// What a claim makes a job's: the folder of the job that took the checkpoint, or a savepoint's own, and the folders of shared files.
func TestClaims(t *testing.T) {
	st, _, _ := memory(t)
	shared := func(name string) state.FileRef { return state.FileRef{Name: name, Scope: state.Shared} }
	far := shared("../shared/x")
	far.Base = "mem://nn/third/job/chk-9"
	for name, c := range map[string]struct {
		dir  string
		refs []state.FileRef
		want []string
	}{
		"checkpoint":                    {st.CheckpointDir(3), nil, []string{st.Dir()}},
		"by its metadata":               {st.CheckpointDir(3) + "/_metadata", nil, []string{st.Dir()}},
		"shared files":                  {st.CheckpointDir(3), []state.FileRef{shared("../shared/1-a"), shared("../shared/2-b"), {Name: "3-c"}}, []string{st.Dir()}},
		"shared files of other jobs":    {st.CheckpointDir(3), []state.FileRef{shared("../../0a/shared/1-a"), far}, []string{"mem://nn/ckp/0a", st.Dir(), "mem://nn/third/job"}},
		"savepoint":                     {"mem://nn/sp/savepoint-1/", []state.FileRef{{Name: "a"}}, []string{"mem://nn/sp/savepoint-1"}},
		"a checkpoint copied elsewhere": {"mem://nn/backup/chk-3", nil, []string{"mem://nn/backup/chk-3"}},
		"a job's folder that was moved": {"mem://nn/old/chk-3", []state.FileRef{shared("../shared/1-a")}, []string{"mem://nn/old", "mem://nn/old/chk-3"}},
	} {
		cp := checkpointWith(3, c.refs...)
		cp.JobID = job
		got, err := Claims(c.dir, cp)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	if _, err := Claims("nothing", metadata.Checkpoint{}); err == nil {
		t.Error("a path that is no URI")
	}
}

// A job's folder that is renamed away is not replaced by one of the same name, where a checkpoint would be complete without the files that it
// shares with others.
func TestNoCheckpointInAnotherFolderOfTheSameName(t *testing.T) {
	ctx := t.Context()
	st, _, f := memory(t)
	if _, err := st.Own(ctx, Owner{Job: job}); err != nil {
		t.Fatal(err)
	}
	complete := func(id int64) error {
		_, _, err := st.WriteMetadata(ctx, st.CheckpointDir(id), checkpointWith(id))
		return err
	}
	if err := complete(1); err != nil {
		t.Fatal(err)
	}
	dir := strings.TrimPrefix(st.Dir(), "mem://nn")
	if err := f.Rename(ctx, dir, "/away"); err != nil {
		t.Fatal(err)
	}
	if err := complete(2); !errors.Is(err, ErrFolderGone) || !strings.Contains(err.Error(), dir+"/chk-2") {
		t.Errorf("while the folder is away: %v", err)
	}
	if _, _, err := st.WriteMetadata(ctx, "mem://nn/sp/savepoint-1", checkpointWith(2)); err != nil {
		t.Errorf("a savepoint elsewhere: %v", err)
	}
	if left, err := walk(ctx, f, dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if err := f.Remove(ctx, dir, true); err != nil {
		t.Fatal(err)
	}
	if err := f.Rename(ctx, "/away", dir); err != nil {
		t.Fatal(err)
	}
	if err := complete(2); err != nil {
		t.Errorf("when it is back: %v", err)
	}
}
