// Package state is the keyed state of operators: key groups, the table and timer interfaces that operators work with, the backend
// interface that task code drives, and the handles that name snapshots. It is layer L1 (imports serde, fs).
//
// One Backend belongs to one operator subtask and is used by that subtask's goroutine alone, except for Snapshot.Write, which runs
// in the background. Implementations: state/hashmap (typed tables, copy on write) and state/pebble (LSM with a write-back cache).
// Typed tables are opened by package functions of state/backend, since Go interfaces cannot have generic methods.
//
// Invariants:
//
//  1. A key belongs to exactly one key group; group g belongs to the subtask whose Range holds g.
//  2. A pointer returned by Ref is valid until the next call on any table of the same backend, and marks the value dirty.
//  3. A table keeps its own copies: neither keys nor values share memory with the record buffers they came from.
//  4. A Snapshot sees the tables exactly as they were when Backend.Snapshot returned, whatever happens afterwards.
package state

import (
	"context"
	"io"
	"slices"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/serde"
)

// Range is the half-open interval [Start, End) of key groups.
type Range struct{ Start, End int }

// Contains reports whether key group g is in r.
func (r Range) Contains(g int) bool { return g >= r.Start && g < r.End }

// Key addresses an entry: the typed key, its 32-bit hash (Hash32 of the encoded key) and its key group (GroupOf(Hash, max)).
// The exchange computes the hash once and carries it.
type Key[K comparable] struct {
	Key   K
	Hash  uint32
	Group uint16
}

// Namespace separates values of one key, for instance by window start (milliseconds). Plain keyed state uses 0.
type Namespace = int64

// SortNamespaces sorts ascending, and FindNamespace is the index of ns in what is sorted, or where it belongs. What is generic is compiled in every
// program, with what it uses of package slices: it uses these.
func SortNamespaces(l []Namespace) { slices.Sort(l) }

// FindNamespace is explained at SortNamespaces.
func FindNamespace(l []Namespace, ns Namespace) (int, bool) { return slices.BinarySearch(l, ns) }

// Table maps (key, namespace) to V.
type Table[K comparable, V any] interface {
	// Get returns a copy of the value as stored (shallow: treat slices and maps inside as read-only).
	Get(k Key[K], ns Namespace) (v V, found bool, err error)
	// Put stores v; the table clones what it keeps.
	Put(k Key[K], ns Namespace, v V) error
	// Ref returns a pointer to the stored value, a new zero value when absent (found false), for update in place.
	Ref(k Key[K], ns Namespace) (p *V, found bool, err error)
	Delete(k Key[K], ns Namespace) error
	// Namespaces appends the namespaces that hold values, ascending, to dst.
	Namespaces(dst []Namespace) ([]Namespace, error)
	// Scan calls fn for every entry of a namespace, in no particular order; fn must not touch the table. v is valid during the call;
	// the key, and strings and slices inside of *v, stay as they are afterwards, also when the entry is removed.
	Scan(ns Namespace, fn func(k Key[K], v *V) error) error
	// DropNamespace removes all entries of a namespace.
	DropNamespace(ns Namespace) error
	// Len is the number of entries, or an estimate (pebble).
	Len() int
}

// Taker is implemented by tables whose Delete can hand over what was stored.
type Taker[K comparable, V any] interface {
	// Take is Delete. own says that v is the value that was removed and that neither the table nor a snapshot refers to the memory behind
	// it any more, so that it may serve for another value.
	Take(k Key[K], ns Namespace) (v V, own bool, err error)
}

// Keeper is implemented by tables that keep the strings of their values together.
type Keeper[V any] interface {
	// Keep replaces the strings of *p, which the last call on the table, a Ref, returned, by copies, as Put does. It does nothing and returns
	// false when p is not that, or values hold more than strings.
	Keep(p *V) bool
}

// Timers is a set of (time, key, namespace), ordered by time, stored and snapshotted with the backend. Registering twice is once.
type Timers[K comparable] interface {
	Register(k Key[K], ns Namespace, at int64) error
	Delete(k Key[K], ns Namespace, at int64) error
	// Next is the earliest time, or ok false when the set is empty.
	Next() (at int64, ok bool)
	// PopUntil removes every timer with time <= until in time order and calls fn for each; fn may register and delete timers, and
	// those that become due are fired in the same call.
	PopUntil(until int64, fn func(k Key[K], ns Namespace, at int64) error) error
	Len() int
}

// TableDesc describes a table. Name is unique in its operator and stable across versions.
type TableDesc[K comparable, V any] struct {
	Name  string
	Key   serde.Codec[K]
	Value serde.Codec[V]
	// Adapt, when set, gives the decoder of values that were stored with another schema, in place of serde.Migrating; at is the time of
	// their last access in milliseconds, when TTL was enabled after they were stored; 0 leaves them their own.
	Adapt func(stored serde.Schema, at int64) (serde.Codec[V], error)
	// TTL lets values expire; nil keeps them.
	TTL *TTL[V]
	// Verify, when set, is asked before an entry of a new key is made: one under a hash that is not its key's would not be found again.
	Verify func(k Key[K]) error
}

// Reader returns the codec whose Decode reads values that were stored with a schema.
func (d *TableDesc[K, V]) Reader(stored serde.Schema, at int64) (serde.Codec[V], error) {
	if d.Adapt == nil || at == 0 && serde.Same(stored, d.Value.Schema()) {
		return serde.Migrating(d.Value, stored)
	}
	return d.Adapt(stored, at)
}

// Restorer is Reader for a restore from the canonical form, which is when TTL counts as enabled.
func (d *TableDesc[K, V]) Restorer(stored serde.Schema) (serde.Codec[V], error) {
	if d.TTL == nil || HasTime(stored) {
		return d.Reader(stored, 0)
	}
	return d.Reader(stored, d.TTL.Now())
}

// TimersDesc describes a timer set.
type TimersDesc[K comparable] struct {
	Name string
	Key  serde.Codec[K]
}

// Backend is one operator subtask's keyed state.
type Backend interface {
	Range() Range
	MaxParallelism() int
	// Opened says that every state is open. What was restored and is not is carried along: it is in each later snapshot as it was, with its
	// name, its schemas and its key groups, and can still be opened. Opened tells what that is, without what is empty; the first Snapshot does
	// the same if nobody called it before.
	Opened() ([]Unopened, error)
	// Snapshot runs the synchronous part (milliseconds) and returns the asynchronous one. Canonical asks for the form that every
	// backend can read (savepoints); otherwise the backend's native form (incremental where it has one).
	Snapshot(checkpointID int64, canonical bool) (Snapshot, error)
	// CheckpointCompleted and CheckpointAborted tell what became of a checkpoint, so that incremental backends know what they may
	// reuse. They run on the task's goroutine.
	CheckpointCompleted(checkpointID int64)
	CheckpointAborted(checkpointID int64)
	// Size estimates bytes held.
	Size() int64
	Close() error
}

// Unopened is restored state that nobody has opened.
type Unopened struct {
	Name    string
	Entries int64 // -1 when unknown
	Bytes   int64 // estimated
}

// Snapshot is the asynchronous part of a snapshot. Exactly one of Write and Discard is called, from any goroutine.
type Snapshot interface {
	Write(ctx context.Context, sink Sink) (Handle, error)
	Discard()
}

// Scope says who may share a file of a snapshot.
type Scope int

const (
	Exclusive Scope = iota // belongs to one checkpoint and is deleted with it
	Shared                 // may be referenced by later checkpoints; counted by the coordinator
)

// Sink stores the files of a snapshot. Safe for concurrent use.
type Sink interface {
	Create(ctx context.Context, scope Scope) (Stream, error)
}

// Stream is a file being written. Commit makes it durable and returns its reference; streams of at most the configured
// execution.checkpointing.fs.memory-threshold come back inline. Abort removes it. Exactly one of the two is called.
type Stream interface {
	io.Writer
	Commit() (FileRef, error)
	Abort()
}

// Source reads the files of a snapshot at restore. Names in FileRefs are resolved against the checkpoint that they came from.
type Source interface {
	Open(ctx context.Context, ref FileRef) (fs.Reader, error)
}

// FileRef names a stored file: inline content, or a name relative to the checkpoint's directory ("<uuid>" for exclusive files,
// "../shared/<uuid>" for shared ones).
type FileRef struct {
	Name   string
	Scope  Scope
	Size   int64
	CRC32C uint32
	Inline []byte // set instead of Name
	// Part says that the content is the Size bytes of the file from Offset on. The file holds that of others, too.
	Part   bool
	Offset int64
	// Base is the directory (URI) Name is relative to. It is not stored in metadata; the reader of metadata fills it in.
	Base string
}

// TableMeta is what a snapshot says about one table or timer set.
type TableMeta struct {
	Name   string
	Kind   string // "table" or "timers"
	Key    serde.Schema
	Value  serde.Schema
	Stored int64 // entries, -1 when unknown
}

// Handle names the keyed state of one operator subtask in one snapshot.
type Handle struct {
	Format string // "canonical" (readable by every backend) or a backend's native form such as "pebble"
	Range  Range
	Tables []TableMeta
	Files  []File
	// Offsets, for the canonical form: key group Range.Start+i occupies bytes [Offsets[i], Offsets[i+1]) of the only file.
	Offsets []int64
	Size    int64 // bytes, all files
	New     int64 // bytes written for this snapshot (less than Size when incremental)
	// Stats are of the writing, and not stored.
	Stats []TableStats
}

// File is one file of a handle; Key is the backend's own name for it (an SST name for instance).
type File struct {
	Key string
	Ref FileRef
}

// Config is what a backend is made from.
type Config struct {
	Range          Range
	MaxParallelism int
	// Dir is a private local directory for the backend's files (pebble); the backend creates and removes it.
	Dir string
	// MemoryBytes is what the backend may use for caches (pebble), when there is no Pool.
	MemoryBytes int64
	// Pool is memory that the backend shares with others; nil for none.
	Pool *Pool
	// Restore are the handles to start from; those that do not intersect Range are ignored, others are cut to it.
	Restore []Handle
	Source  Source
	// ReuseRestored says that the files of Restore belong to this job, so that incremental snapshots may go on referring to them; false
	// (a savepoint, NO_CLAIM) makes the first snapshot complete.
	ReuseRestored bool
	// Compress says that files in canonical form are written compressed (hashmap's snapshots, and savepoints).
	Compress bool
	// Context bounds the reads of a restore, which go on until the tables are open; nil is context.Background.
	Context context.Context
	// Logger is what the backend reports to; the zero value discards.
	Logger zerolog.Logger
}

// RestoreContext is Context or its default.
func (c *Config) RestoreContext() context.Context {
	if c.Context == nil {
		return context.Background()
	}
	return c.Context
}
