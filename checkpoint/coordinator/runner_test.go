package coordinator

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/checkpoint/storage"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/fault"
	"github.com/thalweg/thalweg/fs/hdfs"
	"github.com/thalweg/thalweg/fs/local"
	"github.com/thalweg/thalweg/fs/mem"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/yarnrpc/ipc"
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
	reg := &fs.Registry{}
	local.Register(reg)
	hdfs.Register(reg, hdfs.Config{User: "alice", RetryTimeout: time.Hour, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "no-such-host.invalid", IsNotFound: true}}
	}})
	r.storage = storage.New(mem.New("nn"), "/ckp", graph.JobID{}, storage.WithRegistry(reg))
	t.Cleanup(func() {
		if err := r.storage.Close(); err != nil {
			t.Error(err)
		}
	})
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]error{"ftp://host/savepoint-1": fs.ErrScheme, "../../savepoint-1": iofs.ErrInvalid,
		"file://" + file + "/savepoint-1": syscall.ENOTDIR, "file://elsewhere/savepoint-1": iofs.ErrInvalid, "file://a b/savepoint-1": nil, "hdfs://nn:port/s": nil,
		"hdfs://no-such-host.invalid/savepoint-1":              fs.ErrUnavailable,
		"file:///" + strings.Repeat("x", 300) + "/savepoint-1": syscall.ENAMETOOLONG} {
		r.Do(WriteMetadata{ID: 1, Dir: dir, Deadline: time.Now().Add(time.Hour)})
		select {
		case ev := <-events:
			w := ev.(MetadataWritten)
			if w.Err == nil || want != nil && !errors.Is(w.Err, want) {
				t.Errorf("%s: %+v, want %v", dir, w, want)
			}
			if w.Err != nil && strings.Contains(w.Err.Error(), "\n") {
				t.Errorf("%s: more than one line: %v", dir, w.Err)
			}
		case <-time.After(time.Minute):
			t.Errorf("%s: tried again and again", dir)
			return
		}
	}
}

// What the client gets of the errors that a store may give, and of those that pass.
func TestWhichErrorsArePermanent(t *testing.T) {
	remote := func(class string) error {
		return fmt.Errorf("hdfs: create /d: %w", ipc.NewRemoteError(class, class+": words", "create", 0, false))
	}
	lookup := func(err *net.DNSError) error {
		return fmt.Errorf("%w: %w", fs.ErrUnavailable, &ipc.ConnError{Op: "dial", Addr: "nn:8020", Err: &net.OpError{Op: "dial", Err: err}})
	}
	for _, c := range []struct {
		name string
		err  error
		want bool
	}{
		{"denied", remote("org.apache.hadoop.security.AccessControlException"), true},
		{"below a file", remote("org.apache.hadoop.fs.ParentNotDirectoryException"), true},
		{"a name that is too long", remote("org.apache.hadoop.hdfs.protocol.FSLimitException$PathComponentTooLongException"), true},
		{"an exception of unknown meaning", remote("java.lang.UnsupportedOperationException"), true},
		{"a host that does not exist", lookup(&net.DNSError{Err: "no such host", Name: "nn", IsNotFound: true}), true},
		{"a port that does not exist", &net.AddrError{Err: "invalid port", Addr: "99999"}, true},
		{"another service at the port", &ipc.ConnError{Op: "call", Addr: "nn:8020", Err: ipc.ErrMalformed}, true},
		{"a secure cluster without credentials", &ipc.ConnError{Op: "authenticate", Addr: "nn:8020", Err: ipc.ErrNoMechanism}, true},
		{"a resolver that fails", lookup(&net.DNSError{Err: "server misbehaving", Name: "nn", IsTemporary: true}), false},
		{"a host that was reached before", fmt.Errorf("%w (%w)", lookup(&net.DNSError{Err: "no such host", Name: "nn", IsNotFound: true}), context.DeadlineExceeded), false},
		{"refused", &ipc.ConnError{Op: "dial", Addr: "nn:8020", Err: syscall.ECONNREFUSED}, false},
		{"safe mode", fmt.Errorf("%w: %w", fs.ErrUnavailable, remote("org.apache.hadoop.hdfs.server.namenode.SafeModeException")), false},
		{"standby", remote("org.apache.hadoop.ipc.StandbyException"), false},
		{"full", fmt.Errorf("%w: %w", fs.ErrQuota, remote("org.apache.hadoop.hdfs.protocol.DSQuotaExceededException")), false},
		{"no space", fmt.Errorf("%w (%w)", fs.ErrQuota, syscall.ENOSPC), false},
		{"out of time", context.DeadlineExceeded, false},
		{"anything else", errors.New("connection reset"), false},
	} {
		if got := permanent(fmt.Errorf("storage: create: %w", c.err)); got != c.want {
			t.Errorf("%s: permanent is %v, want %v: %v", c.name, got, c.want, c.err)
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

// While a savepoint's folder cannot be reached no checkpoint is taken, so it is not tried for as long as a checkpoint's own.
func TestSavepointsAreNotTriedForLong(t *testing.T) {
	for kind, want := range map[Kind]time.Duration{Manual: 10 * time.Minute, Savepoint: savepointPatience, StopWithSavepoint: savepointPatience} {
		c, err := New(Config{Graph: testGraph(false), Dir: testDir, Timeout: 10 * time.Minute, ReservedID: 10})
		if err != nil {
			t.Fatal(err)
		}
		now := time.Unix(0, 0)
		c.Step(now, TasksRunning{Tasks: testTasks(0)})
		c.Step(now, Trigger{Kind: kind, RequestID: "r", Dir: "hdfs://other/savepoint-1"})
		var last []Effect
		for _, task := range testTasks(0) {
			last = c.Step(now, Ack{ID: 1, Execution: task.Execution})
		}
		w, ok := last[0].(WriteMetadata)
		if !ok || w.Deadline.Sub(now) != want {
			t.Errorf("%v: %+v, want a deadline after %v", kind, last, want)
		}
		now = now.Add(want)
		last = c.Step(now, MetadataWritten{ID: 1, Err: errors.New("connection refused")})
		if len(c.Pending()) > 0 || len(last) == 0 {
			t.Errorf("%v: it goes on: %+v", kind, last)
		}
		c.Step(now, Trigger{Kind: Manual})
		if kind == Savepoint && !slices.Equal(c.Pending(), []int64{2}) {
			t.Errorf("%v: no checkpoint is taken after it", kind)
		}
	}
}

// Metadata that cannot be written is tried again until its checkpoint has timed out. A discard that gives it up does not wait for that, and
// removes the directory when nobody writes there any more.
func TestDiscardGivesUpTheWrite(t *testing.T) {
	tried := make(chan struct{}, 1)
	full := func(e fault.Event) bool {
		if e.Op != fault.Create {
			return false
		}
		select {
		case tried <- struct{}{}:
		default:
		}
		return true
	}
	r, _, inner, st, _, events := newRunner(t, fault.When(full, fault.Fail(fs.ErrQuota)))
	dir := st.CheckpointDir(7)
	if err := inner.Mkdir(t.Context(), strings.TrimPrefix(dir, inner.URI()), 0o755); err != nil {
		t.Fatal(err)
	}
	r.Do(WriteMetadata{ID: 7, Dir: dir, Checkpoint: metadata.Checkpoint{ID: 7}, Deadline: time.Now().Add(time.Hour)})
	<-tried
	r.Do(Discard{Reason: "ended", Dirs: []string{st.Dir()}, Written: 7})
	if err := r.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left, err := inner.List(t.Context(), "/ckp"); err == nil && len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	select {
	case ev := <-events:
		t.Errorf("told %v", ev)
	default:
	}
}
