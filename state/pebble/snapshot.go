package pebble

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	pdb "github.com/cockroachdb/pebble/v2"

	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/state/canonical"
)

// frozen is a snapshot up to the point where it no longer depends on the store's next writes.
type frozen struct {
	b         *Backend
	canonical bool
	dir       string // native: where the hard links go

	prior *written // what was written ahead and may still be on its way
	once  sync.Once
	done  atomic.Bool
	batch *chunks
	view  io.Closer // canonical: a *pdb.Snapshot
	err   error
	lost  error // the changes did not reach the store, which is not what the task believes any more
}

// run applies the batch and freezes, once; others wait for it.
func (f *frozen) run() error {
	f.once.Do(func() {
		f.err = f.freeze()
		f.done.Store(true)
	})
	return f.err
}

func (f *frozen) freeze() error {
	batch := f.batch
	f.batch = nil
	if err := f.prior.wait(); err != nil {
		f.lost = errors.Join(err, batch.Close())
		return f.lost
	}
	if err := batch.apply(); err != nil {
		f.lost = fmt.Errorf("pebble: write changes: %w", err)
		return f.lost
	}
	if f.canonical {
		f.view = raw(f.b).NewSnapshot()
		return nil
	}
	if err := f.b.flush(); err != nil {
		return err
	}
	if err := f.b.link(f.dir); err != nil {
		return errors.Join(fmt.Errorf("pebble: link files: %w", f.b.disk.explain(err)), os.RemoveAll(f.dir))
	}
	return nil
}

// release gives up what run made: the links, or the store's snapshot.
func (f *frozen) release() error {
	f.b.mu.Lock()
	_, open := f.b.open[f]
	delete(f.b.open, f)
	f.b.mu.Unlock()
	if !open {
		return nil
	}
	// Close releases snapshots that nobody wrote; those that were never frozen give up their batch.
	f.once.Do(func() {
		f.err = errors.Join(errClosed, f.batch.Close())
		f.done.Store(true)
	})
	if f.view != nil {
		return f.view.Close()
	}
	return os.RemoveAll(f.dir)
}

var errClosed = errors.New("pebble: backend is closed")

// Snapshot implements state.Backend.
func (b *Backend) Snapshot(checkpointID int64, canon bool) (state.Snapshot, error) {
	if b.db == nil {
		return nil, errClosed
	}
	if err := b.settlePending(); err != nil {
		return nil, err
	}
	if !b.opened {
		if err := b.settle(); err != nil {
			return nil, err
		}
		if _, err := b.Opened(); err != nil {
			return nil, err
		}
	}
	if err := b.giveBack(); err != nil {
		return nil, fmt.Errorf("pebble: snapshot %d: %w", checkpointID, err)
	}
	if len(b.drops) > 0 { // they go to the store now, after what was encoded ahead
		if err := b.settleAhead(); err != nil {
			return nil, fmt.Errorf("pebble: snapshot %d: %w", checkpointID, err)
		}
	}
	first, err := b.batch()
	if err != nil {
		return nil, fmt.Errorf("pebble: snapshot %d: %w", checkpointID, err)
	}
	batch := &chunks{b: b, cur: first, largest: b.largest}
	if e := b.early; e != nil {
		batch.full, batch.largest, b.early = append(e.full, e.cur), e.largest, nil
	}
	err = b.writeMeta(batch)
	for _, s := range b.sets {
		if err == nil {
			err = s.flush(batch)
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("pebble: snapshot %d: %w", checkpointID, err), batch.Close())
	}
	b.seq++
	f := &frozen{b: b, canonical: canon, prior: b.ahead, batch: batch, dir: filepath.Join(b.cfg.Dir, fmt.Sprintf("checkpoint-%d", b.seq))}
	b.pending, b.ahead, b.largest = f, nil, nil
	b.mu.Lock()
	b.open[f] = struct{}{}
	b.mu.Unlock()
	s := &snapshot{id: checkpointID, b: b, f: f, sets: slices.Clone(b.sets), unopened: b.unopened}
	for _, x := range b.sets {
		s.times = append(s.times, x.now())
		st := state.TableStats{Name: x.describe().Name, Entries: -1}
		if l := batch.largest[x.number()]; l != nil {
			st.Largest = l.Entries()
		}
		s.stats = append(s.stats, st)
	}
	for i := range b.meta.Sets {
		s.tables = append(s.tables, b.meta.Sets[i].table())
	}
	return s, nil
}

func (b *Backend) writeMeta(batch batch) error {
	if !b.metaChanged {
		return nil
	}
	js, err := json.Marshal(b.meta)
	if err != nil {
		return err
	}
	b.metaChanged = false
	return batch.Set(metaKey, js, nil)
}

// snapshot implements state.Snapshot.
type snapshot struct {
	id     int64
	b      *Backend
	f      *frozen
	sets   []set
	times  []int64 // by set
	tables []state.TableMeta
	stats  []state.TableStats // by set
	// unopened goes into the canonical form behind the sets, each schema as a table of its own.
	unopened []setMeta
}

// enter keeps Close waiting until the returned function is called; ctx then ends with Close, too.
func (s *snapshot) enter(ctx context.Context) (context.Context, func(), error) {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	if s.b.shut {
		return nil, nil, errClosed
	}
	s.b.busy.Add(1)
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.b.ctx, cancel)
	return ctx, func() { stop(); cancel(); s.b.busy.Done() }, nil
}

// Write implements state.Snapshot.
func (s *snapshot) Write(ctx context.Context, sink state.Sink) (state.Handle, error) {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return state.Handle{}, fmt.Errorf("pebble: snapshot %d: %w", s.id, err)
	}
	defer leave()
	var h state.Handle
	if err = s.f.run(); err == nil {
		if s.f.canonical {
			h, err = s.writeCanonical(ctx, sink)
		} else {
			h, err = s.upload(ctx, sink)
		}
	}
	if err = errors.Join(err, s.f.release()); err != nil {
		return state.Handle{}, fmt.Errorf("pebble: snapshot %d: %w", s.id, err)
	}
	return h, nil
}

// Discard implements state.Snapshot. The changes still go to the store: their cache entries count as stored.
func (s *snapshot) Discard() {
	_, leave, err := s.enter(context.Background())
	if err != nil {
		return
	}
	defer leave()
	if err := errors.Join(s.f.run(), s.f.release()); err != nil {
		s.b.cfg.Logger.Warn().Err(err).Int64("checkpoint", s.id).Msg("discarding a state snapshot failed")
	}
}

// writeCanonical copies the sets from the store's snapshot, those that are not open as they are stored.
func (s *snapshot) writeCanonical(ctx context.Context, sink state.Sink) (state.Handle, error) {
	var metas []state.TableMeta
	for _, x := range s.sets {
		metas = append(metas, x.describe())
	}
	for i := range s.unopened {
		metas = append(metas, s.unopened[i].versions()...)
	}
	return canonical.WriterOf(&s.b.cfg)(ctx, sink, s.b.cfg.MaxParallelism, s.b.cfg.Range, metas, func(ctx context.Context, w *canonical.Writer) (err error) {
		it, err := s.f.view.(*pdb.Snapshot).NewIter(nil)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, it.Close()) }()
		var scratch []byte
		for g := s.b.cfg.Range.Start; g < s.b.cfg.Range.End; g++ {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := w.Begin(g); err != nil {
				return err
			}
			for i, x := range s.sets {
				prefix := appendGroup(nil, x.number(), g)
				it.SetBounds(prefix, after(prefix))
				for ok := it.First(); ok; ok = it.Next() {
					if scratch, err = copyEntry(w, i, x, metas[i].Kind, it, s.times[i], scratch); err != nil {
						return err
					}
				}
				if err := it.Error(); err != nil {
					return err
				}
			}
			first := len(s.sets)
			for i := range s.unopened {
				u := &s.unopened[i]
				if err := copyUnopened(w, first, u, it, g); err != nil {
					return err
				}
				first += len(u.versions())
			}
		}
		return nil
	})
}

func copyEntry(w *canonical.Writer, index int, x set, kind string, it *pdb.Iterator, now int64, scratch []byte) ([]byte, error) {
	k := it.Key()
	if err := whole(kind, k); err != nil {
		return scratch, err
	}
	if kind == canonical.KindTimers {
		return scratch, w.Timer(index, ordered(k[tablePrefix:]), ordered(k[groupPrefix:]), k[timerPrefix:])
	}
	stored, err := it.ValueAndErr()
	if err != nil {
		return scratch, err
	}
	v, live, err := x.current(stored, scratch, now)
	if err != nil || !live {
		return scratch, err
	}
	return scratch, w.Entry(index, ordered(k[groupPrefix:]), k[tablePrefix:], v)
}

const (
	metaFile    = "meta" // the file that holds everything but tables
	uploads     = 4      // files sent at the same time
	tableSuffix = ".sst"
)

// upload sends the linked files: tables that the latest completed checkpoint does not have, and one file with all the others.
func (s *snapshot) upload(ctx context.Context, sink state.Sink) (state.Handle, error) {
	h := state.Handle{Format: Format, Range: s.b.cfg.Range, Tables: s.tables}
	dir, err := os.ReadDir(s.f.dir)
	if err != nil {
		return h, err
	}
	known := s.b.tables.Known()
	anew, all := sink.(state.Anew)
	if all {
		known = nil
	}
	chooser, choosy := sink.(state.Chooser)
	var others []string
	var todo []int
	for _, e := range dir {
		switch name := e.Name(); {
		case e.IsDir():
		case !strings.HasSuffix(name, tableSuffix):
			others = append(others, name)
		default:
			ref, ok := known[name]
			if ok && choosy && !chooser.Reuse(ref) {
				ok, ref = false, state.FileRef{}
			}
			if !ok {
				todo = append(todo, len(h.Files))
			}
			h.Files = append(h.Files, state.File{Key: name, Ref: ref})
		}
	}
	if err := s.sendAll(ctx, sink, &h, todo); err != nil {
		return h, err
	}
	pack, err := packFiles(s.f.dir, others)
	if err != nil {
		return h, err
	}
	ref, err := send(ctx, sink, state.Exclusive, pack)
	if err != nil {
		return h, err
	}
	h.New += ref.Size
	tables := slices.Clone(h.Files)
	h.Files = append(h.Files, state.File{Key: metaFile, Ref: ref})
	for _, f := range h.Files {
		h.Size += f.Ref.Size
	}
	if k, ok := sink.(state.LocalSink); ok {
		for _, f := range tables {
			k.Keep(f.Ref, filepath.Join(s.f.dir, f.Key))
		}
	}
	if !anew.Apart {
		s.b.tables.Sent(s.id, tables)
	}
	h.Stats = s.measure()
	return h, nil
}

// measure adds to the stats what the sets take on disk. Their keys lie together.
func (s *snapshot) measure() []state.TableStats {
	for i, x := range s.sets {
		n, err := raw(s.b).EstimateDiskUsage(appendGroup(nil, x.number(), 0), groupEnd(x.number(), 1<<16))
		if err == nil { // it fails while the store is closed, when nobody looks any more
			s.stats[i].Bytes = int64(n)
		}
	}
	return s.stats
}

// sendAll uploads the files of h whose indexes are given.
func (s *snapshot) sendAll(ctx context.Context, sink state.Sink, h *state.Handle, todo []int) error {
	err := parallel(ctx, uploads, len(todo), func(ctx context.Context, n int) error {
		f := &h.Files[todo[n]]
		r, err := os.Open(filepath.Join(s.f.dir, f.Key))
		if err == nil {
			f.Ref, err = send(ctx, sink, state.Shared, r)
			err = errors.Join(err, r.Close())
		}
		if err != nil {
			return fmt.Errorf("upload %s: %w", f.Key, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, n := range todo {
		h.New += h.Files[n].Ref.Size
	}
	return nil
}

// send copies r to a new file of the sink.
func send(ctx context.Context, sink state.Sink, scope state.Scope, r io.Reader) (state.FileRef, error) {
	w, err := sink.Create(ctx, scope)
	if err != nil {
		return state.FileRef{}, err
	}
	buf := make([]byte, 256<<10)
	for {
		n, rerr := r.Read(buf)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				w.Abort()
				return state.FileRef{}, err
			}
		}
		if rerr == nil {
			rerr = ctx.Err()
		}
		if errors.Is(rerr, io.EOF) {
			return w.Commit()
		}
		if rerr != nil {
			w.Abort()
			return state.FileRef{}, rerr
		}
	}
}

// packFiles joins small files: for each, uvarint length and name, uvarint length and content.
func packFiles(dir string, names []string) (io.Reader, error) {
	var b []byte
	for _, n := range names {
		c, err := os.ReadFile(filepath.Join(dir, n))
		if err != nil {
			return nil, err
		}
		b = append(binary.AppendUvarint(b, uint64(len(n))), n...)
		b = append(binary.AppendUvarint(b, uint64(len(c))), c...)
	}
	return strings.NewReader(string(b)), nil
}

// unpackFiles writes them into dir.
func unpackFiles(dir string, b []byte) error {
	cut := func() ([]byte, bool) {
		n, w := binary.Uvarint(b)
		if w <= 0 || n > uint64(len(b)-w) {
			return nil, false
		}
		x := b[w : w+int(n)]
		b = b[w+int(n):]
		return x, true
	}
	for len(b) > 0 {
		name, ok1 := cut()
		content, ok2 := cut()
		if !ok1 || !ok2 || !filepath.IsLocal(string(name)) || strings.ContainsAny(string(name), `/\`) {
			return fmt.Errorf("file %q: %w", metaFile, canonical.ErrCorrupt)
		}
		if err := os.WriteFile(filepath.Join(dir, string(name)), content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// CheckpointCompleted implements state.Backend: later snapshots may refer to the files of this one.
func (b *Backend) CheckpointCompleted(id int64) { b.tables.Completed(id) }

// CheckpointAborted implements state.Backend: its files may be deleted by now.
func (b *Backend) CheckpointAborted(id int64) { b.tables.Aborted(id) }
