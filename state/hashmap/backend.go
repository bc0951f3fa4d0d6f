// Package hashmap is the state backend that keeps everything in memory, in typed tables: no serialisation on access, snapshots by copy
// on write. It is part of layer L1.
//
// Each (table, namespace) has a slots.Space of its own, so that dropping a window costs nothing per entry. Snapshot freezes the pages
// and copies the lists of them (microseconds per million entries); Write encodes the frozen pages in canonical form, in the
// background, while the task copies those pages that it writes to.
//
// Invariants: pages that a running snapshot holds are not written; values with memory behind pointers are cloned before their first
// change after a snapshot. State of names that were not opened before the first snapshot is not carried over.
package hashmap

import (
	"context"
	"errors"
	"fmt"

	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/state/canonical"
	"github.com/thalweg/thalweg/state/internal/slots"
)

// Backend implements state.Backend.
type Backend struct {
	cfg      state.Config
	clock    *slots.Clock
	restore  *canonical.Reader // nil when there is nothing to restore, or after the first snapshot
	restored map[string]state.TableMeta
	dropped  bool // restore was given up at the first snapshot
	sets     []set
	names    map[string]set
	closed   bool
}

// set is a table or timer set.
type set interface {
	meta() state.TableMeta
	freeze() view
	size() int64
}

// view is a set as it was at a snapshot.
type view interface {
	// prepare sorts the entries by key group.
	prepare(ctx context.Context, maxParallelism int, rng state.Range) error
	// write writes the entries of one key group.
	write(w *canonical.Writer, index int, group int) error
}

// New returns a backend with the state of cfg.Restore, which must be in canonical form. Entries are read when their table is opened.
func New(cfg state.Config) (*Backend, error) {
	b := &Backend{cfg: cfg, clock: slots.NewClock(), restored: map[string]state.TableMeta{}, names: map[string]set{}}
	if err := canonical.CheckConfig(cfg); err != nil {
		return nil, fmt.Errorf("hashmap: new: %w", err)
	}
	var handles []state.Handle
	for _, h := range cfg.Restore {
		if h.Range.Start >= cfg.Range.End || h.Range.End <= cfg.Range.Start {
			continue
		}
		if h.Format != canonical.Format {
			return nil, fmt.Errorf("hashmap: restore key groups [%d, %d): the snapshot is in the native form of backend %q; take a canonical savepoint with that backend to change it",
				h.Range.Start, h.Range.End, h.Format)
		}
		handles = append(handles, h)
	}
	if len(handles) == 0 {
		return b, nil
	}
	r, err := canonical.NewReader(cfg.RestoreContext(), cfg.Source, cfg.MaxParallelism, cfg.Range, handles)
	if err != nil {
		return nil, fmt.Errorf("hashmap: restore: %w", err)
	}
	metas, err := r.Tables()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("hashmap: restore: %w", err), r.Close())
	}
	for _, m := range metas {
		b.restored[m.Name] = m
	}
	b.restore = r
	return b, nil
}

// Range implements state.Backend.
func (b *Backend) Range() state.Range { return b.cfg.Range }

// MaxParallelism implements state.Backend.
func (b *Backend) MaxParallelism() int { return b.cfg.MaxParallelism }

// CheckpointCompleted implements state.Backend; snapshots of this backend are complete each.
func (b *Backend) CheckpointCompleted(int64) {}

// CheckpointAborted implements state.Backend.
func (b *Backend) CheckpointAborted(int64) {}

// Size implements state.Backend: the bytes of the pages, without what values point to.
func (b *Backend) Size() int64 {
	n := int64(0)
	for _, s := range b.sets {
		n += s.size()
	}
	return n
}

// Close gives up the state. Snapshots that still run keep what they need.
func (b *Backend) Close() error {
	b.closed = true
	b.sets, b.names = nil, nil
	return b.endRestore()
}

func (b *Backend) endRestore() error {
	r := b.restore
	b.restore = nil
	if r == nil {
		return nil
	}
	if err := r.Close(); err != nil {
		return fmt.Errorf("hashmap: close restored files: %w", err)
	}
	return nil
}

// add registers a new set after fill has read its restored entries.
func add[V any](b *Backend, s set, reader func(stored serde.Schema) (serde.Codec[V], error), load func(value serde.Codec[V], r *canonical.Reader) error) error {
	m := s.meta()
	if b.closed {
		return fmt.Errorf("hashmap: open %q: backend is closed", m.Name)
	}
	if old, ok := b.restored[m.Name]; ok {
		if b.dropped {
			return fmt.Errorf("hashmap: open %q: its restored state is gone, since a checkpoint was taken before; open all state before the first record", m.Name)
		}
		if err := canonical.CheckMeta(old, m); err != nil {
			return fmt.Errorf("hashmap: open: %w", err)
		}
		var stored serde.Codec[V]
		if m.Kind == canonical.KindTable {
			var err error
			if stored, err = reader(old.Value); err != nil {
				return fmt.Errorf("hashmap: open %q: value: %w", m.Name, err)
			}
		}
		if err := load(stored, b.restore); err != nil {
			return fmt.Errorf("hashmap: open %q: restore: %w", m.Name, err)
		}
	}
	b.names[m.Name] = s
	b.sets = append(b.sets, s)
	return nil
}

// Snapshot implements state.Backend. The form is canonical in any case.
func (b *Backend) Snapshot(checkpointID int64, _ bool) (state.Snapshot, error) {
	if b.closed {
		return nil, fmt.Errorf("hashmap: snapshot %d: backend is closed", checkpointID)
	}
	b.dropped = true
	if err := b.endRestore(); err != nil {
		return nil, err
	}
	s := &snapshot{id: checkpointID, cfg: b.cfg, clock: b.clock}
	for _, x := range b.sets {
		s.views = append(s.views, x.freeze())
		s.metas = append(s.metas, x.meta())
	}
	s.epoch = b.clock.Freeze()
	return s, nil
}

type snapshot struct {
	id    int64
	cfg   state.Config
	clock *slots.Clock
	epoch uint64
	views []view
	metas []state.TableMeta
}

// Write implements state.Snapshot.
func (s *snapshot) Write(ctx context.Context, sink state.Sink) (state.Handle, error) {
	defer s.Discard()
	h, err := canonical.Write(ctx, sink, s.cfg.MaxParallelism, s.cfg.Range, s.metas, s.fill)
	if err != nil {
		return state.Handle{}, fmt.Errorf("hashmap: snapshot %d: %w", s.id, err)
	}
	return h, nil
}

func (s *snapshot) fill(ctx context.Context, w *canonical.Writer) error {
	for _, v := range s.views {
		if err := v.prepare(ctx, s.cfg.MaxParallelism, s.cfg.Range); err != nil {
			return err
		}
	}
	for g := s.cfg.Range.Start; g < s.cfg.Range.End; g++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := w.Begin(g); err != nil {
			return err
		}
		for i, v := range s.views {
			if err := v.write(w, i, g); err != nil {
				return err
			}
		}
	}
	return nil
}

// Discard implements state.Snapshot.
func (s *snapshot) Discard() {
	if s.views != nil {
		s.views = nil
		s.clock.Release(s.epoch)
	}
}
