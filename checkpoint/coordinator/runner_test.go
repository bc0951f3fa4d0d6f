package coordinator

import (
	"context"
	"errors"
	iofs "io/fs"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/checkpoint/storage"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/fault"
	"github.com/thalweg/thalweg/fs/mem"
	"github.com/thalweg/thalweg/runtime/graph"
)

var errSuperseded = errors.New("superseded")

// pointers is a Pointers whose answers are given one by one.
type pointers struct {
	mu      sync.Mutex
	answers []error
	stored  []int64
}

func (p *pointers) next() error {
	if len(p.answers) == 0 {
		return nil
	}
	err := p.answers[0]
	p.answers = p.answers[1:]
	return err
}

func (p *pointers) StorePointer(_ context.Context, id int64, _ string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := p.next()
	if err == nil {
		p.stored = append(p.stored, id)
	}
	return err
}

func (p *pointers) ReserveIDs(context.Context, int64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.next()
}

func (p *pointers) Superseded(err error) bool { return errors.Is(err, errSuperseded) }

func newRunner(t *testing.T, rules ...fault.Rule) (*Runner, *fault.FileSystem, *mem.FileSystem, *storage.Storage, *pointers, chan Event) {
	t.Helper()
	inner := mem.New("nn")
	f := fault.New(inner, rules...)
	st := storage.New(f, "/ckp", graph.JobID{})
	p := &pointers{}
	events := make(chan Event, 100)
	r := NewRunner(t.Context(), st, p, zerolog.New(zerolog.NewTestWriter(t)), func(e Event) { events <- e })
	t.Cleanup(r.Close)
	return r, f, inner, st, p, events
}

func TestRunnerWritesMetadataAndTriesAgain(t *testing.T) {
	down := fault.When(fault.First(2, fault.On(fault.Create, "")), fault.Fail(fs.ErrUnavailable))
	r, _, inner, st, _, events := newRunner(t, down)
	if !r.Do(WriteMetadata{ID: 4, Dir: st.CheckpointDir(4), Checkpoint: metadata.Checkpoint{ID: 4}, Deadline: time.Now().Add(time.Minute)}) {
		t.Fatal("not taken")
	}
	ev := (<-events).(MetadataWritten)
	if ev.Err != nil || ev.ID != 4 || ev.Path != st.CheckpointDir(4)+"/_metadata" || ev.Size == 0 {
		t.Fatalf("%+v", ev)
	}
	if len(inner.Dump()) != 1 {
		t.Fatalf("%v, want the metadata alone", inner.Dump())
	}
}

func TestRunnerGivesUpInTime(t *testing.T) {
	r, f, _, st, _, events := newRunner(t, fault.When(fault.On(fault.Create, ""), fault.Fail(fs.ErrUnavailable)))
	r.Do(WriteMetadata{ID: 1, Dir: st.CheckpointDir(1), Deadline: time.Now()}) // no time left for a second try
	if ev := (<-events).(MetadataWritten); !errors.Is(ev.Err, fs.ErrUnavailable) {
		t.Fatalf("%+v", ev)
	}
	f.Set()
	if _, _, err := st.WriteMetadata(t.Context(), st.CheckpointDir(2), metadata.Checkpoint{}); err != nil {
		t.Fatal(err)
	}
	r.Do(WriteMetadata{ID: 2, Dir: st.CheckpointDir(2), Deadline: time.Now().Add(time.Hour)}) // it never helps to try again
	if ev := (<-events).(MetadataWritten); !errors.Is(ev.Err, storage.ErrClaimed) {
		t.Fatalf("%+v", ev)
	}
}

// A savepoint whose folder can never be written fails at once: while it is tried again, no checkpoint is taken.
func TestRunnerDoesNotRepeatWhatCannotHeal(t *testing.T) {
	r, _, _, _, _, events := newRunner(t)
	for dir, want := range map[string]error{"ftp://host/savepoint-1": fs.ErrScheme, "../../savepoint-1": iofs.ErrInvalid} {
		r.Do(WriteMetadata{ID: 1, Dir: dir, Deadline: time.Now().Add(time.Hour)})
		select {
		case ev := <-events:
			if w := ev.(MetadataWritten); !errors.Is(w.Err, want) {
				t.Errorf("%s: %+v, want %v", dir, w, want)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("%s: tried again and again", dir)
		}
	}
}

func TestRunnerRepeatsPointersUntilTheOutcomeIsCertain(t *testing.T) {
	r, _, _, _, p, events := newRunner(t)
	p.answers = []error{fs.ErrUnavailable, errors.New("connection reset")}
	r.Do(StorePointer{ID: 1, Dir: "d"})
	if ev := (<-events).(PointerStored); ev.Err != nil || ev.ID != 1 || len(p.stored) != 1 {
		t.Fatalf("%+v, stored %v", ev, p.stored)
	}
	p.answers = []error{fs.ErrUnavailable, errSuperseded}
	r.Do(StorePointer{ID: 2, Dir: "d"})
	if ev := (<-events).(PointerStored); !errors.Is(ev.Err, errSuperseded) {
		t.Fatalf("%+v", ev)
	}
	p.answers = []error{fs.ErrUnavailable}
	r.Do(ReserveIDs{UpTo: 9})
	if ev := (<-events).(IDsReserved); ev.Err != nil || ev.UpTo != 9 {
		t.Fatalf("%+v", ev)
	}
}

// An uncertain outcome is never reported as an answer, not even at the end.
func TestRunnerThatEndsReportsNothing(t *testing.T) {
	r, _, _, _, p, events := newRunner(t)
	for range 1000 {
		p.answers = append(p.answers, fs.ErrUnavailable)
	}
	r.Do(StorePointer{ID: 1, Dir: "d"})
	r.Close()
	select {
	case ev := <-events:
		t.Fatalf("%+v", ev)
	default:
	}
}

func TestRunnerRemovesInOrder(t *testing.T) {
	r, f, inner, st, _, _ := newRunner(t)
	for _, p := range []string{"/chk-1/_metadata", "/chk-1/1-a", "/chk-2/2-a", "/chk-3/_metadata", "/shared/1-a", "/shared/2-a", "/shared/3-a"} {
		if err := fs.WriteFile(t.Context(), f, strings.TrimPrefix(st.Dir(), "mem://nn")+p, []byte("x"), true); err != nil {
			t.Fatal(err)
		}
	}
	f.Set(fault.When(fault.First(2, fault.On(fault.Remove, "")), fault.Fail(fs.ErrUnavailable)))
	r.Do(Discard{Files: []string{st.SharedDir() + "/1-a"}, Dirs: []string{st.CheckpointDir(1)}})
	r.Do(Sweep{Below: 3, Keep: Keep{Dirs: []string{st.CheckpointDir(3)}, Files: []string{st.SharedDir() + "/3-a"}}})
	if err := r.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := inner.Dump(); len(left) != 2 {
		t.Fatalf("%v, want chk-3 and its shared file", left)
	}
	if r.Do(NotifyComplete{}) {
		t.Fatal("a notice is not file work")
	}
}
