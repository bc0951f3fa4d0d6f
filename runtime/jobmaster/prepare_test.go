package jobmaster

import (
	"context"
	"errors"
	iofs "io/fs"
	"net/url"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/checkpoint/storage"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/fault"
	"github.com/thalweg/thalweg/fs/mem"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/ha"
	"github.com/thalweg/thalweg/runtime/scheduler"
	"github.com/thalweg/thalweg/state"
)

var window = graph.OperatorID{ID: graph.ID{1}}

// restarting is a JobMaster of the second application attempt, whose pointer names mem://test/c/chk-3.
func restarting(t *testing.T, cp metadata.Checkpoint, conf config.Configuration) (*JobMaster, *fault.FileSystem) {
	t.Helper()
	f := fault.New(mem.New("test"))
	reg := &fs.Registry{}
	reg.Register("mem", func(context.Context, *url.URL) (fs.FileSystem, error) { return f, nil })
	if _, _, err := storage.WriteMetadata(t.Context(), f, "mem://test/c/chk-3", cp); err != nil {
		t.Fatal(err)
	}
	conf["execution.checkpointing.dir"] = "mem://test/c"
	g := &graph.JobGraph{Name: "job", Vertices: []graph.Vertex{{ID: graph.VertexID(window), Name: "Window", Parallelism: 1, MaxParallelism: 128,
		Operators: []graph.Operator{{ID: window, UID: "totals", Name: "Window", Keyed: true, Stateful: true}}}}}
	j, err := New(Options{JobID: graph.JobID{ID: graph.ID{9}}, Graph: g, Config: conf, Epoch: 2, Pointer: ha.Pointer{ID: 3, Dir: "mem://test/c/chk-3"}, FirstID: 4, FS: reg, Store: ha.NewMemory(),
		Logger: zerolog.New(zerolog.NewTestWriter(t))})
	if err != nil {
		t.Fatal(err)
	}
	return j, f
}

func keyed(format string) metadata.Checkpoint {
	return metadata.Checkpoint{ID: 3, Operators: []metadata.Operator{{ID: window, UID: "totals", Name: "Window", Parallelism: 1, MaxParallelism: 128,
		Subtasks: []metadata.Subtask{{Keyed: []state.Handle{{Format: format, Range: state.Range{End: 128}}}}}}}}
}

func refused(t *testing.T, j *JobMaster, want string) {
	t.Helper()
	s, f := j.load(t.Context())
	if s.ckpt != nil {
		s.ckpt.closeStorage()
	}
	if f == nil || !f.Fatal || !strings.Contains(f.Message, want) || strings.Contains(f.Message, "\n") {
		t.Fatalf("%+v, want one line with %q", f, want)
	}
}

// The checkpoint that the pointer names is there but cannot be read: nobody waits for it.
func TestUnreadableCheckpointIsRefusedAtOnce(t *testing.T) {
	const p = "/c/chk-3/_metadata"
	for name, damage := range map[string]func(f fs.FileSystem, b []byte) error{
		"truncated": func(f fs.FileSystem, b []byte) error {
			return fs.WriteFile(context.Background(), f, p, b[:len(b)-3], true)
		},
		"garbage": func(f fs.FileSystem, b []byte) error {
			return fs.WriteFile(context.Background(), f, p, []byte("garbage"), true)
		},
		"flipped": func(f fs.FileSystem, b []byte) error {
			b[len(b)-2] ^= 1
			return fs.WriteFile(context.Background(), f, p, b, true)
		},
		"removed": func(f fs.FileSystem, _ []byte) error { return f.Remove(context.Background(), p, false) },
		"a folder": func(f fs.FileSystem, _ []byte) error {
			return errors.Join(f.Remove(context.Background(), p, false), f.Mkdir(context.Background(), p, 0o700))
		},
	} {
		t.Run(name, func(t *testing.T) {
			j, f := restarting(t, keyed("canonical"), config.Configuration{})
			b, err := fs.ReadFile(t.Context(), f, p, 1<<20)
			if err == nil {
				err = damage(f, b)
			}
			if err != nil {
				t.Fatal(err)
			}
			refused(t, j, "restore the latest checkpoint 3: storage: read mem://test/c/chk-3")
			if len(j.q.take()) != 0 {
				t.Error("it was waited for")
			}
		})
	}
}

// An error that may pass is waited out, and shown meanwhile.
func TestCheckpointThatCannotBeReadNow(t *testing.T) {
	for name, err := range map[string]error{"unavailable": fs.ErrUnavailable, "no access": iofs.ErrPermission, "other": errors.New("connection reset")} {
		t.Run(name, func(t *testing.T) {
			j, f := restarting(t, keyed("canonical"), config.Configuration{})
			f.Set(fault.When(fault.First(1, fault.On(fault.Open, "/c/chk-3/_metadata")), fault.Fail(err)))
			s, failed := j.load(t.Context())
			if failed != nil || s.from == nil || s.from.ID != 3 {
				t.Fatalf("%+v, %+v", s.from, failed)
			}
			s.ckpt.runner.Close()
			s.ckpt.closeStorage()
			for _, fn := range j.q.take() {
				fn()
			}
			h := j.details().History
			if len(h) != 1 || !h[0].Root || !strings.Contains(h[0].Message, "the latest checkpoint 3 cannot be read, trying again: ") || !strings.Contains(h[0].Message, err.Error()) {
				t.Errorf("history %+v", h)
			}
			j.waitsFor(scheduler.Failure{Kind: waiting, Message: "again"})
			if h := j.details().History; len(h) != 1 || h[0].Message != "again" {
				t.Errorf("history %+v", h)
			}
		})
	}
}

// State in the native form of a backend that the job does not use is refused before any task runs.
func TestBackendMismatchIsRefused(t *testing.T) {
	j, _ := restarting(t, keyed("pebble"), config.Configuration{"state.backend.type": "hashmap"})
	refused(t, j, `savepoint: restore mem://test/c/chk-3: the state does not fit the job in 1 point; (1) the keyed state of operator "Window" (uid "totals")`)
	j, _ = restarting(t, keyed("pebble"), config.Configuration{"state.backend.type": "pebble"})
	s, f := j.load(t.Context())
	if f != nil {
		t.Fatal(f.Message)
	}
	s.ckpt.runner.Close()
	s.ckpt.closeStorage()
}
