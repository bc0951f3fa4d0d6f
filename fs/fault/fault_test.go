package fault_test

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/fault"
	"github.com/thalweg/thalweg/fs/fstest"
	"github.com/thalweg/thalweg/fs/mem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWithoutRulesItIsTheFileSystemBelow(t *testing.T) {
	fstest.Run(t, func(*testing.T) fs.FileSystem { return fault.New(mem.New("t")) }, fstest.Options{NoPermissions: true})
}

func TestNthOperationFailsAndOthersDoNot(t *testing.T) {
	below := mem.New("t")
	f := fault.New(below, fault.When(fault.Nth(2, fault.On(fault.Close, "/chk/*")), fault.Fail(syscall.EIO)))
	for i := range 3 {
		err := fs.WriteFile(t.Context(), f, fmt.Sprintf("/chk/%d", i), []byte("x"), true)
		if (i == 1) != errors.Is(err, syscall.EIO) {
			t.Errorf("write %d: %v", i, err)
		}
	}
	want := map[string]string{"/chk/0": "x", "/chk/2": "x"}
	if diff := cmp.Diff(want, below.Dump()); diff != "" {
		t.Error(diff)
	}
}

func TestTornWriteLeavesTheFirstBytes(t *testing.T) {
	below := mem.New("t")
	f := fault.New(below, fault.When(fault.On(fault.Write, "/f"), fault.Torn(3, syscall.ENOSPC)))
	w, err := f.Create(t.Context(), "/f", false)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := w.Write([]byte("content")); n != 3 || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("write: %d, %v", n, err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if got := below.Dump()["/f"]; got != "con" {
		t.Errorf("the file holds %q", got)
	}
}

func TestLostAnswerHasHappened(t *testing.T) {
	below := mem.New("t")
	f := fault.New(below, fault.When(fault.Or(fault.On(fault.Rename, ""), fault.Nth(2, fault.On(fault.Create, "/claim"))), fault.FailAfter(fs.ErrUnavailable)))
	if err := fs.WriteFile(t.Context(), f, "/a", []byte("x"), true); err != nil {
		t.Fatal(err)
	}
	if err := f.Rename(t.Context(), "/a", "/b"); !errors.Is(err, fs.ErrUnavailable) {
		t.Errorf("rename: %v", err)
	}
	if diff := cmp.Diff(map[string]string{"/b": "x"}, below.Dump()); diff != "" {
		t.Error(diff)
	}
	f.Set(fault.When(fault.On(fault.Create, ""), fault.FailAfter(fs.ErrUnavailable)))
	if _, err := f.Create(t.Context(), "/claim", false); !errors.Is(err, fs.ErrUnavailable) {
		t.Errorf("create: %v", err)
	}
	f.Set()
	if _, err := f.Create(t.Context(), "/claim", false); !errors.Is(err, iofs.ErrExist) {
		t.Errorf("create again: %v", err)
	}
}

func TestWaitsEndWithTheContext(t *testing.T) {
	gate := make(chan struct{})
	f := fault.New(mem.New("t"),
		fault.When(fault.On(fault.Stat, "/slow"), fault.Delay(time.Hour)), fault.When(fault.On(fault.Stat, "/gate"), fault.Block(gate)))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	for _, p := range []string{"/slow", "/gate"} {
		if _, err := f.Stat(ctx, p); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("stat %s: %v", p, err)
		}
	}
	close(gate)
	if _, err := f.Stat(t.Context(), "/gate"); !errors.Is(err, iofs.ErrNotExist) {
		t.Errorf("stat after the gate opened: %v", err)
	}
}

func TestLogPinsTheSequence(t *testing.T) {
	f := fault.New(mem.New("t"))
	if err := fs.WriteFile(t.Context(), f, "/d/tmp", []byte("abc"), false); err != nil {
		t.Fatal(err)
	}
	if err := f.Rename(t.Context(), "/d/tmp", "/d/final"); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, e := range f.Log() {
		lines = append(lines, e.String())
	}
	want := "create /d/tmp\nwrite /d/tmp 3\nclose /d/tmp\nrename /d/tmp -> /d/final"
	if diff := cmp.Diff(want, strings.Join(lines, "\n")); diff != "" {
		t.Error(diff)
	}
}

func TestPredicates(t *testing.T) {
	write := fault.Event{Op: fault.Write, Path: "/a/b/c"}
	rename := fault.Event{Op: fault.Rename, Path: "/x", To: "/a/b"}
	for name, tc := range map[string]struct {
		p    fault.Predicate
		e    fault.Event
		want bool
	}{
		"kind and glob":       {fault.On(fault.Write, "/a/*/c"), write, true},
		"glob is one level":   {fault.On(fault.Write, "/a/*"), write, false},
		"everything below":    {fault.On(fault.Write, "/a/**"), write, true},
		"not a prefix":        {fault.On(fault.Write, "/a/b/cc/**"), write, false},
		"other kind":          {fault.On(fault.Read, ""), write, false},
		"rename destination":  {fault.On(fault.Rename, "/a/*"), rename, true},
		"any kind":            {fault.Any("/x"), rename, true},
		"and":                 {fault.And(fault.Changes(), fault.Not(fault.Any("/a/**"))), write, false},
		"random never":        {fault.Randomly(0, 1, fault.Any("")), write, false},
		"random always":       {fault.Randomly(1, 1, fault.Any("")), write, true},
		"the first of none":   {fault.First(0, fault.Any("")), write, false},
		"after the first one": {fault.After(1, fault.Any("")), write, false},
	} {
		if got := tc.p(tc.e); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	same := func() string {
		p := fault.Randomly(0.5, 42, fault.Any(""))
		var b strings.Builder
		for range 64 {
			fmt.Fprintf(&b, "%t ", p(write))
		}
		return b.String()
	}
	if a, b := same(), same(); a != b {
		t.Error("the same seed chose differently")
	}
}
