// Package pebble is the state backend for state larger than memory: Pebble (an LSM store) on the local disk with a bounded write-back
// cache of decoded values in front. It is part of layer L1.
//
// Reads and updates work on the cache (slots.Space per table and namespace). Evictions and the barrier write dirty values to Pebble in
// batches; there is no write-ahead log, since recovery starts from a checkpoint. A namespace that never reached Pebble is dropped with
// its cache and costs no store access at all.
//
// A snapshot has three parts. Snapshot encodes the dirty values into a batch (on the task's goroutine). The freeze applies the batch,
// flushes, and hard-links the files (native form) or takes a Pebble snapshot (canonical form). Write uploads: files that a completed
// checkpoint has are referred to, not sent again.
//
// Invariants:
//
//  1. Between Snapshot and its freeze the task writes nothing to Pebble and evicts nothing, so the store holds exactly the snapshot when
//     it is frozen. Whoever needs the store first runs the freeze: Write, or the task when its cache is full.
//  2. Ranges to delete (dropped namespaces) are applied before the next batch is made; until then the namespace counts as not stored.
//  3. Cached values share no memory with Pebble's blocks or with record buffers.
//  4. Close waits for running Writes, after cancelling them.
package pebble

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	pdb "github.com/cockroachdb/pebble/v2"

	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/state/canonical"
	"github.com/thalweg/thalweg/state/increment"
)

// Format is the value of state.Handle.Format for native snapshots.
const Format = "pebble"

// Backend implements state.Backend.
type Backend struct {
	cfg   state.Config
	opts  Options
	db    store
	cache interface{ Unref() } // a *pdb.Cache, that of the pool if there is one
	share *state.PoolMember
	limit int64 // of used, until the next look at the pool
	meta  dbMeta
	// metaChanged says that meta is to be written with the next snapshot.
	metaChanged bool
	sets        []set
	names       map[string]set
	restore     *canonical.Reader
	restored    map[string]state.TableMeta
	unopened    []setMeta // what is in the store and not open, once settled by Opened; the slice is never changed
	opened      bool      // unopened counts
	used        int64     // bytes of all caches, estimated
	drops       []keyRange
	pending     *frozen                   // a snapshot that may not be frozen yet
	early       *chunks                   // encoded ahead of the next snapshot, to be written after ahead; nil when there is nothing
	ahead       *written                  // written last ahead of the next snapshot, after pending; nil when there is nothing
	largest     map[uint16]*state.Largest // entries written ahead, by set
	disk        *disk
	unchecked   int64 // bytes applied since room was looked for
	seq         int
	tables      increment.Tracker

	mu   sync.Mutex           // guards the following, which Write uses
	open map[*frozen]struct{} // snapshots neither written nor discarded
	ctx  context.Context      // ends with Close
	stop context.CancelFunc
	busy sync.WaitGroup // running Writes
	shut bool
}

type keyRange struct{ start, end []byte }

// set is a table or timer set.
type set interface {
	describe() state.TableMeta
	number() uint16
	// flush adds everything not stored yet to the batch and takes it as stored.
	flush(batch batch) error
	// current returns a stored value in the newest encoding; live is false when it has expired at now.
	current(stored []byte, scratch []byte, now int64) (v []byte, live bool, err error)
	// now is the time for current, math.MinInt64 when nothing is left out. It runs on the task's goroutine.
	now() int64
	// size is the estimated bytes of what evict can free.
	size() int64
	// evict frees a part of the cache.
	evict() error
}

// dbMeta is stored in Pebble: what the ids mean.
type dbMeta struct {
	Version        int       `json:"version"`
	MaxParallelism int       `json:"maxParallelism"`
	Sets           []setMeta `json:"sets"`
}

type setMeta struct {
	ID     uint16         `json:"id"`
	Name   string         `json:"name"`
	Kind   string         `json:"kind"`
	Key    serde.Schema   `json:"key"`
	Values []serde.Schema `json:"values"` // by version
	// Since is, for versions that were stored before TTL was enabled (again), when that was: the time of their values.
	Since map[int]int64 `json:"since,omitempty"`
}

// enabled notes that values get a time from now on, when the newest version is the first after one without.
func (s *setMeta) enabled(now func() int64) (changed bool) {
	last := len(s.Values) - 1
	if last < 1 || !state.HasTime(s.Values[last]) || state.HasTime(s.Values[last-1]) {
		return false
	}
	if _, ok := s.Since[last-1]; ok {
		return false
	}
	if s.Since == nil {
		s.Since = map[int]int64{}
	}
	at := now()
	for v := range last {
		s.Since[v] = at
	}
	return true
}

// check refuses what no backend has written, so that the rest can rely on it.
func (m *dbMeta) check() error {
	ids, names := map[uint16]bool{0: true}, map[string]bool{}
	for i := range m.Sets {
		s := &m.Sets[i]
		values := len(s.Values) > 0 && len(s.Values) <= 256
		if s.Kind == canonical.KindTimers {
			values = len(s.Values) == 0
		} else if s.Kind != canonical.KindTable {
			return fmt.Errorf("state %q is of kind %q: %w", s.Name, s.Kind, canonical.ErrCorrupt)
		}
		if ids[s.ID] || names[s.Name] || !values {
			return fmt.Errorf("state %q with number %d and %d versions: %w", s.Name, s.ID, len(s.Values), canonical.ErrCorrupt)
		}
		ids[s.ID], names[s.Name] = true, true
	}
	return nil
}

func (m *dbMeta) find(name string) *setMeta {
	for i := range m.Sets {
		if m.Sets[i].Name == name {
			return &m.Sets[i]
		}
	}
	return nil
}

func (s *setMeta) table() state.TableMeta {
	t := state.TableMeta{Name: s.Name, Kind: s.Kind, Key: s.Key, Stored: -1}
	if len(s.Values) > 0 {
		t.Value = s.Values[len(s.Values)-1]
	}
	return t
}

// New returns a backend in cfg.Dir with the state of cfg.Restore, with sizes derived from cfg.MemoryBytes.
func New(cfg state.Config) (*Backend, error) { return NewWithOptions(cfg, Options{}) }

// NewWithOptions is New with sizes set one by one.
func NewWithOptions(cfg state.Config, opts Options) (*Backend, error) {
	if err := canonical.CheckConfig(cfg); err != nil {
		return nil, fmt.Errorf("pebble: new: %w", err)
	}
	if cfg.Dir == "" {
		return nil, errors.New("pebble: new: no local directory given")
	}
	opts, err := opts.withDefaults(cfg)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("pebble: create directory: %w", explain(cfg.Dir, err))
	}
	b := &Backend{cfg: cfg, opts: opts, names: map[string]set{}, restored: map[string]state.TableMeta{},
		open: map[*frozen]struct{}{}, meta: dbMeta{Version: 1, MaxParallelism: cfg.MaxParallelism}, metaChanged: true}
	b.join()
	b.disk = newDisk(opts.below(), cfg.Dir, cfg.Logger)
	b.ctx, b.stop = context.WithCancel(context.Background())
	if err := b.start(); err != nil {
		if pdb.IsCorruptionError(err) { // Pebble's errors have several lines
			err = fmt.Errorf("pebble: restore: the store's files do not fit together: %s: %w", strings.ReplaceAll(err.Error(), "\n", "; "), canonical.ErrCorrupt)
		}
		return nil, errors.Join(b.disk.explain(err), b.Close())
	}
	return b, nil
}

// join takes the backend's part of the memory.
func (b *Backend) join() {
	if b.cfg.Pool == nil {
		b.cache, b.limit = pdb.NewCache(b.opts.BlockCacheBytes), b.opts.CacheBytes
		return
	}
	m, shared := b.cfg.Pool.Join(func() (any, func()) {
		c := pdb.NewCache(b.opts.BlockCacheBytes)
		return c, c.Unref
	})
	c := shared.(*pdb.Cache)
	c.Ref()
	b.cache, b.share = c, m
	b.look()
}

// look asks the pool how much the caches may use.
func (b *Backend) look() {
	if b.share != nil {
		b.limit = b.share.Report(b.used, b.opts.CacheBytes)
	}
}

// dbFolder is the store's folder in the backend's.
const dbFolder = "db"

func (b *Backend) dbDir() string { return filepath.Join(b.cfg.Dir, dbFolder) }

// readMeta reads the meta key of a store.
func readMeta(db *pdb.DB) (dbMeta, error) {
	var m dbMeta
	v, closer, err := db.Get(metaKey)
	if err != nil {
		return m, fmt.Errorf("pebble: read the list of states: %w", err)
	}
	err = json.Unmarshal(v, &m)
	if cerr := closer.Close(); err == nil {
		err = cerr
	}
	if err == nil && m.Version != 1 {
		err = fmt.Errorf("version %d is not known to this program", m.Version)
	}
	if err == nil {
		err = m.check()
	}
	if err != nil {
		return m, fmt.Errorf("pebble: list of states: %w", err)
	}
	return m, nil
}

// Range implements state.Backend.
func (b *Backend) Range() state.Range { return b.cfg.Range }

// MaxParallelism implements state.Backend.
func (b *Backend) MaxParallelism() int { return b.cfg.MaxParallelism }

// Size implements state.Backend: bytes on disk and in the caches of decoded values.
func (b *Backend) Size() int64 {
	n := b.used
	if b.db != nil {
		n += int64(raw(b).Metrics().DiskSpaceUsage())
	}
	return n
}

// register gives a set its id, or finds the stored one and checks that it fits. It returns the set's entry in meta and whether it was
// there before.
func (b *Backend) register(m state.TableMeta) (*setMeta, bool, error) {
	if b.db == nil {
		return nil, false, fmt.Errorf("pebble: open %q: backend is closed", m.Name)
	}
	if s := b.meta.find(m.Name); s != nil {
		if err := canonical.CheckMeta(s.table(), m); err != nil {
			return nil, false, fmt.Errorf("pebble: open: %w", err)
		}
		if n := len(s.Values); m.Kind == canonical.KindTable && !serde.Same(s.Values[n-1], m.Value) {
			if n > 255 {
				return nil, false, fmt.Errorf("pebble: open %q: more than 255 versions of the value; take a canonical savepoint and start from it", m.Name)
			}
			s.Values = append(s.Values, m.Value)
			b.metaChanged = true
		}
		return s, true, nil
	}
	if old, ok := b.restored[m.Name]; ok {
		if err := canonical.CheckMeta(old, m); err != nil {
			return nil, false, fmt.Errorf("pebble: open: %w", err)
		}
	}
	id := uint16(1)
	for i := range b.meta.Sets {
		id = max(id, b.meta.Sets[i].ID+1)
	}
	s := setMeta{ID: id, Name: m.Name, Kind: m.Kind, Key: m.Key}
	if m.Kind == canonical.KindTable {
		s.Values = []serde.Schema{m.Value}
	}
	b.meta.Sets = append(b.meta.Sets, s)
	b.metaChanged = true
	return &b.meta.Sets[len(b.meta.Sets)-1], false, nil
}

// batch returns a new batch and applies the pending range deletions first. They do not go into the batch: a snapshot's batch is
// applied later, and a namespace that was dropped and filled again must not show its old entries until then. The store must be settled.
func (b *Backend) batch() (batch, error) {
	x := b.db.newBatch()
	if len(b.drops) == 0 {
		return x, nil
	}
	for _, r := range b.drops {
		if err := x.DeleteRange(r.start, r.end, nil); err != nil {
			return nil, errors.Join(err, x.Close())
		}
	}
	if err := b.apply(x); err != nil {
		return nil, errors.Join(err, x.Close())
	}
	b.drops = b.drops[:0]
	x.Reset()
	return x, nil
}

// settle makes sure that the latest snapshot is frozen and what was written ahead of the next is in the store, so that the store may be written.
func (b *Backend) settle() error {
	if err := b.settlePending(); err != nil {
		return err
	}
	return b.settleAhead()
}

func (b *Backend) settlePending() error {
	if b.pending == nil {
		return nil
	}
	_ = b.pending.run() // that the snapshot failed is for Write to tell
	err := b.pending.lost
	b.pending = nil
	return err
}

// mayWait reports whether eviction can be put off because a snapshot is not frozen yet and there is room left.
func (b *Backend) mayWait() bool {
	return b.pending != nil && !b.pending.done.Load() && b.used < b.limit+b.limit/4
}

// Close gives up the state and removes the directory. Writes that still run are cancelled and waited for.
func (b *Backend) Close() error {
	b.mu.Lock()
	b.shut = true
	b.mu.Unlock()
	b.stop()
	b.disk.end()
	b.busy.Wait()
	var errs []error
	if b.restore != nil {
		errs = append(errs, b.restore.Close())
		b.restore = nil
	}
	for f := range b.open { // nobody else is left who could change it
		errs = append(errs, f.release())
	}
	if b.early != nil {
		errs = append(errs, b.early.Close())
	}
	b.pending, b.early, b.sets = nil, nil, nil
	if b.db != nil {
		if err := b.disk.died(); err == nil { // its locks may be held for ever
			errs = append(errs, b.db.Close())
		}
		b.db = nil
	}
	if b.cache != nil {
		b.cache.Unref()
		b.cache = nil
		if b.share != nil {
			b.share.Leave()
		}
	}
	errs = append(errs, os.RemoveAll(b.cfg.Dir))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("pebble: close: %w", err)
	}
	return nil
}
