package statetest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"unsafe"

	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/state/backend"
)

// Factory makes backends of one kind.
type Factory struct {
	Name string
	New  func(cfg state.Config) (state.Backend, error)
	// Native says that non-canonical snapshots are in a form of its own, which only this kind reads.
	Native bool
}

// TB is what the suite needs of testing.T and rapid.T.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
	Logf(format string, args ...any)
}

// Value is the value type of the suite: every way in which memory can be shared.
type Value struct {
	N int64
	S string
	L []int32
	M map[string]int64
	P *string
}

// Flat is a key without pointers.
type Flat struct {
	A int32
	B uint8
}

const maxParallelism = 16

// Subtask is one subtask's state.
type Subtask struct {
	Backend state.Backend
	Strings state.Table[string, Value]
	Flats   state.Table[Flat, int64]
	Timers  state.Timers[string]
}

// Cluster is the state of all subtasks of an operator.
type Cluster struct {
	Factory  Factory
	Subtasks []*Subtask
	strings  *state.Hasher[string]
	flats    *state.Hasher[Flat]
	scratch  []byte
	root     string
}

func stringDesc() state.TableDesc[string, Value] {
	return state.TableDesc[string, Value]{Name: "strings", Key: serde.Must[string](), Value: serde.Must[Value]()}
}

func flatDesc() state.TableDesc[Flat, int64] {
	return state.TableDesc[Flat, int64]{Name: "flats", Key: serde.Must[Flat](), Value: serde.Must[int64]()}
}

func timersDesc() state.TimersDesc[string] {
	return state.TimersDesc[string]{Name: "timers", Key: serde.Must[string]()}
}

// NewCluster starts parallelism subtasks from handles.
func NewCluster(t TB, f Factory, parallelism int, handles []state.Handle, src state.Source) *Cluster {
	t.Helper()
	c, err := TryCluster(f, parallelism, handles, src)
	if err != nil {
		t.Fatalf("%s: start %d subtasks: %v", f.Name, parallelism, err)
	}
	return c
}

// TryCluster is NewCluster for starts that may fail.
func TryCluster(f Factory, parallelism int, handles []state.Handle, src state.Source) (c *Cluster, err error) {
	c = &Cluster{Factory: f, strings: state.NewHasher(serde.Must[string]()), flats: state.NewHasher(serde.Must[Flat]())}
	defer func() {
		if err != nil {
			_ = c.Close()
		}
	}()
	if c.root, err = os.MkdirTemp("", "statetest"); err != nil {
		return c, err
	}
	for i := range parallelism {
		dir := filepath.Join(c.root, fmt.Sprint(i))
		b, err := f.New(state.Config{
			Range: state.RangeOf(maxParallelism, parallelism, i), MaxParallelism: maxParallelism, Dir: dir, MemoryBytes: 16 << 20,
			Restore: handles, Source: src,
		})
		if err != nil {
			return c, err
		}
		s := &Subtask{Backend: b}
		c.Subtasks = append(c.Subtasks, s)
		if s.Strings, err = backend.OpenTable(b, stringDesc()); err != nil {
			return c, err
		}
		if s.Flats, err = backend.OpenTable(b, flatDesc()); err != nil {
			return c, err
		}
		if s.Timers, err = backend.OpenTimers(b, timersDesc()); err != nil {
			return c, err
		}
	}
	return c, nil
}

// Close closes every backend and returns the first error.
func (c *Cluster) Close() error {
	var first error
	for _, s := range c.Subtasks {
		if err := s.Backend.Close(); err != nil && first == nil {
			first = err
		}
	}
	if first == nil { // what backends leave behind is their fault, what failed starts leave is not
		if left, err := filepath.Glob(filepath.Join(c.root, "*")); err != nil || len(left) > 0 {
			first = fmt.Errorf("files left behind: %v, %v", left, err) //nolint:errorlint // it is only told
		}
	}
	if err := os.RemoveAll(c.root); err != nil && first == nil {
		first = err
	}
	return first
}

// lend returns s as a view of a buffer that is overwritten by the next call of mangle, as record buffers are.
func (c *Cluster) lend(s string) string {
	n := len(c.scratch)
	c.scratch = append(c.scratch, s...)
	b := c.scratch[n:]
	return unsafe.String(unsafe.SliceData(b), len(b))
}

func (c *Cluster) mangle() {
	for i := range c.scratch {
		c.scratch[i] = 0xa5
	}
	c.scratch = nil
}

func (c *Cluster) str(k string) (*Subtask, state.Key[string]) {
	key := state.KeyOf(c.strings, c.lend(k), maxParallelism)
	return c.Subtasks[state.SubtaskOf(maxParallelism, len(c.Subtasks), key.Group)], key
}

func (c *Cluster) flat(k Flat) (*Subtask, state.Key[Flat]) {
	key := state.KeyOf(c.flats, k, maxParallelism)
	return c.Subtasks[state.SubtaskOf(maxParallelism, len(c.Subtasks), key.Group)], key
}

// Snapshot is the first part of a snapshot of all subtasks.
func (c *Cluster) Snapshot(t TB, id int64, canonical bool) []state.Snapshot {
	t.Helper()
	var out []state.Snapshot
	for _, s := range c.Subtasks {
		x, err := s.Backend.Snapshot(id, canonical)
		if err != nil {
			t.Fatalf("%s: snapshot %d: %v", c.Factory.Name, id, err)
		}
		out = append(out, x)
	}
	return out
}

// WriteAll is the second part.
func WriteAll(t TB, snaps []state.Snapshot, sink state.Sink) []state.Handle {
	t.Helper()
	var out []state.Handle
	for i, s := range snaps {
		h, err := s.Write(context.Background(), sink)
		if err != nil {
			t.Fatalf("write part %d: %v", i, err)
		}
		out = append(out, h)
	}
	return out
}

// checkHandles looks at what every handle promises.
func checkHandles(t TB, c *Cluster, hs []state.Handle) {
	t.Helper()
	for i, h := range hs {
		if h.Range != c.Subtasks[i].Backend.Range() || len(h.Tables) != 3 || h.Format == "" {
			t.Fatalf("handle %d: %+v", i, h)
		}
		var size int64
		for _, f := range h.Files {
			size += f.Ref.Size
		}
		if size != h.Size || h.New > h.Size {
			t.Fatalf("handle %d: size %d, files have %d, new %d", i, h.Size, size, h.New)
		}
	}
}
