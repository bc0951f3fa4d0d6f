// Package hashmap is the state backend that keeps everything in memory, in typed tables: no serialisation on access, snapshots by copy
// on write. It is part of layer L1.
//
// Each (table, namespace) has a slots.Space of its own, so that dropping a window costs nothing per entry. Snapshot freezes the pages
// and copies the lists of them (microseconds per million entries); Write encodes the frozen pages in canonical form, in the
// background, while the task copies those pages that it writes to.
//
// Invariants: pages that a running snapshot holds are not written; values with memory behind pointers are cloned before their first
// change after a snapshot. Restored state that nobody opened by then (Opened) stays in memory as it was stored, and goes into each snapshot.
package hashmap

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/state/canonical"
	"github.com/thalweg/thalweg/state/internal/slots"
)

// Backend implements state.Backend.
type Backend struct {
	cfg      state.Config
	clock    *slots.Clock
	restore  *canonical.Reader          // nil when there is nothing to restore, or after Opened
	restored map[string]state.TableMeta // what restore holds and was not opened
	carried  []*canonical.Carried       // what was not opened by Opened, or since
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
	for _, c := range b.carried {
		n += c.Unopened().Bytes
	}
	return n
}

// Close gives up the state. Snapshots that still run keep what they need.
func (b *Backend) Close() error {
	b.closed = true
	b.sets, b.names, b.carried = nil, nil, nil
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

// Opened implements state.Backend.
func (b *Backend) Opened() (all []state.Unopened, err error) {
	if b.closed {
		return nil, errors.New("hashmap: opened: backend is closed")
	}
	for _, name := range slices.Sorted(maps.Keys(b.restored)) {
		c, err := b.restore.Carry(name)
		if err != nil {
			return nil, fmt.Errorf("hashmap: restore %q, which is not open: %w", name, err)
		}
		delete(b.restored, name)
		if c.Unopened().Entries > 0 {
			b.carried = append(b.carried, c)
		}
	}
	for _, c := range b.carried {
		all = append(all, c.Unopened())
	}
	return all, b.endRestore()
}

// stored finds restored entries that were not opened yet.
func (b *Backend) stored(name string) (m state.TableMeta, from canonical.Scanner, found bool) {
	if m, ok := b.restored[name]; ok {
		return m, b.restore, true
	}
	for _, c := range b.carried {
		if m := c.Metas[len(c.Metas)-1]; m.Name == name {
			return m, c, true
		}
	}
	return m, nil, false
}

// add registers a new set after load has read its restored entries, whose newest schema fits has seen.
func add(b *Backend, s set, fits func(stored serde.Schema) error, load func(r canonical.Scanner) error) error {
	m := s.meta()
	if b.closed {
		return fmt.Errorf("hashmap: open %q: backend is closed", m.Name)
	}
	if old, from, ok := b.stored(m.Name); ok {
		if err := canonical.CheckMeta(old, m); err != nil {
			return fmt.Errorf("hashmap: open: %w", err)
		}
		if m.Kind == canonical.KindTable {
			if err := fits(old.Value); err != nil {
				return fmt.Errorf("hashmap: open %q: value: %w", m.Name, err)
			}
		}
		if err := load(from); err != nil {
			return fmt.Errorf("hashmap: open %q: restore: %w", m.Name, err)
		}
		delete(b.restored, m.Name)
		b.carried = slices.DeleteFunc(slices.Clone(b.carried), func(c *canonical.Carried) bool { return c.Metas[0].Name == m.Name })
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
	if b.restore != nil {
		if _, err := b.Opened(); err != nil {
			return nil, err
		}
	}
	s := &snapshot{id: checkpointID, cfg: b.cfg, clock: b.clock, carried: b.carried}
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
	// carried is written behind the views; the slice is never changed.
	carried []*canonical.Carried
}

// Write implements state.Snapshot.
func (s *snapshot) Write(ctx context.Context, sink state.Sink) (state.Handle, error) {
	defer s.Discard()
	metas := s.metas
	for _, c := range s.carried {
		metas = append(metas, c.Metas...)
	}
	h, err := canonical.WriterOf(&s.cfg)(ctx, sink, s.cfg.MaxParallelism, s.cfg.Range, metas, s.fill)
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
		first := len(s.views)
		for _, c := range s.carried {
			if err := c.Write(w, first, g); err != nil {
				return err
			}
			first += len(c.Metas)
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
