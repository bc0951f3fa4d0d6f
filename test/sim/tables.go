package sim

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/checkpoint/storage"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/state/increment"
)

// Tables stand for the files of an incremental backend (state/pebble): beside the state of a keyed operator, which is written as a whole,
// each checkpoint has a handle of tables. Each snapshot adds one, now and then some are merged, and those that a completed checkpoint holds
// are referred to, not written again. A restore wants each of them back as it was written.

// tablesFormat is the format of such handles.
const tablesFormat = "sim-tables"

// tables are those of one keyed operator of a task.
type tables struct {
	track increment.Tracker
	live  []string
	made  int
	owner string
}

// takeTables takes the handles of tables out of what is restored.
func takeTables(keyed []state.Handle) (rest, found []state.Handle) {
	for _, h := range keyed {
		if h.Format == tablesFormat {
			found = append(found, h)
		} else {
			rest = append(rest, h)
		}
	}
	return rest, found
}

// openTables makes an operator's tables, of what it is restored from.
func (t *Task) openTables(name string, restored []state.Handle) (*tables, error) {
	o := &tables{owner: fmt.Sprintf("%s of %s/%d in attempt %d", name, t.d.vertex.Name, t.d.id.Subtask, t.d.id.Attempt)}
	for _, h := range restored {
		for _, f := range h.Files {
			if err := t.w.checkTable(t.w.reg, f); err != nil {
				return nil, err
			}
		}
	}
	own := state.RangeOf(t.d.vertex.MaxParallelism, t.d.parallelism, t.d.id.Subtask)
	if len(restored) != 1 || restored[0].Range != own {
		return o, nil // of a part of several: it is written anew
	}
	var shared []state.File
	for _, f := range restored[0].Files {
		o.live = append(o.live, f.Key)
		if f.Ref.Scope == state.Shared {
			shared = append(shared, f)
		}
	}
	if len(shared) > 0 {
		t.w.sometimes("a restored task went on with the tables of its checkpoint")
	}
	o.track.Restored(shared)
	return o, nil
}

// checkTable reads a table: it says its own name.
func (w *World) checkTable(reg *fs.Registry, f state.File) (err error) {
	src := storage.NewSource(reg)
	r, err := src.Open(context.Background(), f.Ref)
	if err != nil {
		return err
	}
	b, err := io.ReadAll(r)
	if cerr := r.Close(); err == nil {
		err = cerr
	}
	if cerr := src.Close(); err == nil {
		err = cerr
	}
	if err == nil && !bytes.HasPrefix(b, []byte(f.Key+" ")) {
		w.violate("table %s holds %q", f.Key, b)
	}
	return err
}

// freeze flushes, merges now and then, and says what the snapshot consists of.
func (o *tables) freeze(t *Task) []string {
	add := func() {
		o.made++
		o.live = append(o.live, fmt.Sprintf("%s, table %d", o.owner, o.made))
	}
	for n := t.w.r.IntN(4); n == 0 && len(o.live) > 0; n = t.w.r.IntN(2) {
		i := t.w.r.IntN(len(o.live))
		o.live = append(o.live[:i:i], o.live[i+1:]...)
	}
	add()
	return append([]string(nil), o.live...)
}

// write stores the tables that no completed checkpoint holds.
func (o *tables) write(ctx context.Context, t *Task, checkpoint int64, full bool, live []string, sink state.Sink) (state.Handle, error) {
	h := state.Handle{Format: tablesFormat, Range: state.RangeOf(t.d.vertex.MaxParallelism, t.d.parallelism, t.d.id.Subtask)}
	known := o.track.Known()
	if full {
		known = nil
	}
	for _, key := range live {
		ref, ok := known[key]
		if ok {
			t.w.sometimes("a checkpoint referred to a table of an earlier one")
		} else {
			file, err := sink.Create(ctx, state.Shared)
			if err != nil {
				return h, err
			}
			if _, err := file.Write([]byte(key + " is more than what stands in the metadata")); err != nil {
				file.Abort()
				return h, err
			}
			if ref, err = file.Commit(); err != nil {
				return h, err
			}
		}
		h.Files = append(h.Files, state.File{Key: key, Ref: ref})
	}
	o.track.Sent(checkpoint, h.Files)
	return h, nil
}

// checkTables reads all tables of a snapshot, and takes them out of it for those who look at its state.
func (w *World) checkTables(c *metadata.Checkpoint) {
	for i := range c.Operators {
		for j := range c.Operators[i].Subtasks {
			s := &c.Operators[i].Subtasks[j]
			rest, found := takeTables(s.Keyed)
			s.Keyed = rest
			for _, h := range found {
				for _, f := range h.Files {
					if err := w.checkTable(w.clean, f); err != nil {
						w.violate("snapshot %d: table %s: %v", c.ID, f.Key, err)
					}
				}
			}
		}
	}
}
