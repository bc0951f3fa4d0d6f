package stateprocessor

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/checkpoint/storage"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/local"
	"github.com/thalweg/thalweg/runtime/operator"
	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/state/canonical"
)

// MaxParallelism gives all operators another max parallelism, which a job cannot change for keyed state: keys move to the key groups that they have
// with n. The entries of an operator are in memory meanwhile. Keys of maps whose first part has a codec of its own cannot be moved.
func (w *Writer) MaxParallelism(n int) *Writer {
	if n < 1 || n > state.MaxMaxParallelism {
		w.mistake("MaxParallelism(%d): it is between 1 and %d", n, state.MaxMaxParallelism)
		return w
	}
	w.regroup = n
	return w
}

// operator writes one operator's part of the savepoint.
func (w *Writer) operator(ctx context.Context, op *metadata.Operator, changes []Change, sink *storage.Sink) error {
	if w.regroup == 0 || w.regroup == op.MaxParallelism || !op.HasKeyed() && len(changes) == 0 {
		if w.regroup > 0 {
			op.MaxParallelism = w.regroup
		}
		return w.put(ctx, op, changes, sink)
	}
	dir, err := os.MkdirTemp(w.o.dir, "thalweg-groups-")
	if err != nil {
		return fmt.Errorf("temporary folder: %w", err)
	}
	reg := &fs.Registry{}
	local.Register(reg)
	between, src := storage.NewSink(reg, "file://"+dir, "", inlineLimit), storage.NewSource(reg)
	if err = w.put(ctx, op, changes, between); err == nil {
		c := metadata.Checkpoint{Operators: []metadata.Operator{*op}}
		c.Refs(func(r *state.FileRef) { r.Base = "file://" + dir })
		err = moveGroups(ctx, op, w.regroup, src, sink)
	}
	return errors.Join(err, between.Close(), src.Close(), os.RemoveAll(dir))
}

// put writes an operator in canonical form, changed or as it is.
func (w *Writer) put(ctx context.Context, op *metadata.Operator, changes []Change, sink *storage.Sink) error {
	if len(changes) > 0 {
		return w.change(ctx, op, changes, sink)
	}
	return w.carry(ctx, op, sink)
}

// moved is an entry on its way to its new key group.
type moved struct {
	table      int
	ns         state.Namespace
	at         int64
	key, value []byte
}

// moveGroups moves the keyed state of an operator, which is in canonical form, to other key groups, into one handle of the first subtask.
func moveGroups(ctx context.Context, op *metadata.Operator, maxParallelism int, src *storage.Source, sink *storage.Sink) error {
	var handles []state.Handle
	for i := range op.Subtasks {
		handles = append(handles, op.Subtasks[i].Keyed...)
		op.Subtasks[i].Keyed = nil
		for k := range op.Subtasks[i].Lists {
			if l := &op.Subtasks[i].Lists[k]; l.Name == operator.WatermarkState {
				l.Items = moveWatermarks(l.Items, op.MaxParallelism, maxParallelism)
			}
		}
	}
	old := op.MaxParallelism
	op.MaxParallelism = maxParallelism
	if len(handles) == 0 {
		return nil
	}
	r, err := canonical.NewReader(ctx, src, old, state.Range{End: old}, handles)
	if err != nil {
		return err
	}
	metas, groups, err := regroup(r, maxParallelism)
	if err = errors.Join(err, r.Close()); err != nil {
		return err
	}
	all := state.Range{End: maxParallelism}
	h, err := canonical.Write(ctx, sink, maxParallelism, all, metas, func(_ context.Context, w *canonical.Writer) error {
		for g, entries := range groups {
			if err := w.Begin(g); err != nil {
				return err
			}
			slices.SortStableFunc(entries, func(a, b moved) int { return a.table - b.table })
			for _, e := range entries {
				put := func() error { return w.Entry(e.table, e.ns, e.key, e.value) }
				if metas[e.table].Kind == canonical.KindTimers {
					put = func() error { return w.Timer(e.table, e.ns, e.at, e.key) }
				}
				if err := put(); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	at := slices.IndexFunc(op.Subtasks, func(s metadata.Subtask) bool { return s.Index == 0 })
	if at < 0 {
		at, op.Subtasks = len(op.Subtasks), append(op.Subtasks, metadata.Subtask{})
	}
	op.Subtasks[at].Keyed = []state.Handle{h}
	return nil
}

// regroup reads all entries into their new key groups. Tables of one name and several schemas of their values follow each other.
func regroup(r *canonical.Reader, maxParallelism int) (metas []state.TableMeta, groups [][]moved, err error) {
	tables, err := r.Tables()
	if err != nil {
		return nil, nil, err
	}
	groups = make([][]moved, maxParallelism)
	for _, t := range tables {
		first := len(metas)
		metas = append(metas, t)
		byKey := &t.Key
		if t.Key.Kind == state.KindPair {
			byKey = t.Key.Key
		}
		if err := r.Scan(t.Name, func(e *canonical.Entry) error {
			at := first + slices.IndexFunc(metas[first:], func(m state.TableMeta) bool { return t.Kind == canonical.KindTimers || serde.Same(m.Value, *e.Schema) })
			if at < first { // of an earlier version: before the newest
				older := t
				older.Value = *e.Schema
				at, metas = len(metas), append(metas, older)
			}
			n := len(e.Key)
			if t.Key.Kind == state.KindPair {
				var err error
				if n, err = byKey.Length(e.Key); err != nil {
					return fmt.Errorf("state %q: key %s: %w", t.Name, byKey, err)
				}
			}
			g := state.GroupOf(state.Hash32(e.Key[:n]), maxParallelism)
			groups[g] = append(groups[g], moved{at, e.Namespace, e.At, bytes.Clone(e.Key), bytes.Clone(e.Value)})
			return nil
		}); err != nil {
			return nil, nil, err
		}
		if last := len(metas) - 1; last > first { // the newest schema is the last
			metas[first], metas[last] = metas[last], metas[first]
			for _, entries := range groups {
				for i := range entries {
					switch entries[i].table {
					case first:
						entries[i].table = last
					case last:
						entries[i].table = first
					}
				}
			}
		}
	}
	return metas, groups, nil
}

// moveWatermarks gives each key group the highest watermark of those that its keys come from: a group is a range of hashes under any max parallelism.
// Items: u32 first key group, u32 the one after the last, i64 watermark.
func moveWatermarks(items [][]byte, old, now int) [][]byte {
	type run struct {
		from, to int
		at       int64
	}
	var runs []run
	for _, b := range items {
		if len(b) == 16 {
			runs = append(runs, run{int(binary.LittleEndian.Uint32(b)), int(binary.LittleEndian.Uint32(b[4:])), int64(binary.LittleEndian.Uint64(b[8:]))})
		}
	}
	var out [][]byte
	for g := range now {
		at := int64(math.MinInt64)
		for o := g * old / now; o*now < (g+1)*old; o++ {
			for _, r := range runs {
				if o >= r.from && o < r.to {
					at = max(at, r.at)
				}
			}
		}
		if at != math.MinInt64 {
			b := binary.LittleEndian.AppendUint32(nil, uint32(g))
			b = binary.LittleEndian.AppendUint32(b, uint32(g+1))
			out = append(out, binary.LittleEndian.AppendUint64(b, uint64(at)))
		}
	}
	return out
}
