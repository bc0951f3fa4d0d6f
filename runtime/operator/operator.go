// Package operator holds the operators that tasks run, and the typed links between them. It is layer L2, below task and stream.
//
// A chain is composed once, when its task starts: each operator gets the Receiver of what follows and is itself a Receiver for what
// precedes it, so a record travels by direct typed calls, by value, without boxing and without allocation. The graph above knows
// operators only as Factory values and types only as Type values (both untyped); the assertions between them happen at composition.
//
// Invariants: all methods of an operator run on its task's goroutine, Snapshot's asynchronous part excepted; watermarks never go
// backwards; a record's key hash (Meta.Hash) is valid behind a keyed exchange and is what key groups are made from.
package operator

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
)

// NoTimestamp marks a record without an event time.
const NoTimestamp = connector.NoTimestamp

// What timestamp functions return for what is no event time: one that milliseconds of 64 bits cannot say, and the zero time.Time.
const (
	TimeOutOfRange = NoTimestamp + 1
	ZeroTime       = NoTimestamp + 2
)

var errZeroTime = lasting("the timestamp function returned the zero time.Time: the field that it reads is not set in this record; leave such records out, or give them a time")

var errOutOfRange = lasting("the timestamp function returned a time that is out of range (more than 292 million years from 1970); leave such records out, or correct their times")

// Millis is t in milliseconds since 1970; when they are out of range, !ok, the first or the last that are in it.
func Millis(t time.Time) (ms int64, ok bool) {
	const limit = math.MaxInt64 / 1000
	sec, ms := t.Unix(), t.UnixMilli()
	switch {
	case sec > limit || sec > 0 && ms < 0:
		return math.MaxInt64, false
	case sec < -limit-1 || sec < 0 && ms >= 0 || ms <= ZeroTime:
		return ZeroTime + 1, false
	}
	return ms, true
}

// MaxWatermark ends event time: no record will follow.
const MaxWatermark = int64(math.MaxInt64)

// MinWatermark is the watermark before any was received.
const MinWatermark = int64(math.MinInt64)

// Meta accompanies a record.
type Meta struct {
	TS   int64  // event time in milliseconds, or NoTimestamp
	Hash uint32 // hash of the key behind a keyed exchange
}

// Receiver takes the elements of a stream of T. An error fails the task.
type Receiver[T any] interface {
	Process(v T, m Meta) error
	// Watermark says that event time reached ts.
	Watermark(ts int64) error
	// Idle says that the stream is idle (its watermark does not count) or active again.
	Idle(idle bool) error
}

// BatchReceiver is a Receiver that also takes several records at once, in place. Go copies structs of more than four fields or 32 bytes
// through memory at each call, which costs more than many an operator does, and a processor does little of one record's work while it
// waits for another's when each record goes through the whole chain alone; chains of operators that take batches pass one along instead.
// ts is nil when no record has an event time. Both slices belong to the receiver during the call (it may change them), and to the caller
// again afterwards. Watermarks and barriers pass between batches, so each operator sees what it would see record by record.
type BatchReceiver[T any] interface {
	Receiver[T]
	ProcessBatch(vs []T, ts []int64) error
}

// inBatches returns r as a BatchReceiver: itself, or a wrapper that hands on the records one by one.
func inBatches[T any](r Receiver[T]) BatchReceiver[T] {
	if b, ok := r.(BatchReceiver[T]); ok {
		return b
	}
	return &oneByOne[T]{r}
}

type oneByOne[T any] struct{ Receiver[T] }

func (o *oneByOne[T]) ProcessBatch(vs []T, ts []int64) error {
	for i := range vs {
		if err := o.Process(vs[i], Meta{TS: timeOf(ts, i)}); err != nil {
			return err
		}
	}
	return nil
}

// timeOf is the event time of record i of a batch.
func timeOf(ts []int64, i int) int64 {
	if ts == nil {
		return NoTimestamp
	}
	return ts[i]
}

// single is room for a batch of one record that came by value.
type single[T any] struct {
	v  [1]T
	ts [1]int64
}

func (s *single[T]) batch(v T, m Meta) ([]T, []int64) {
	s.v[0] = v
	if m.TS == NoTimestamp {
		return s.v[:], nil
	}
	s.ts[0] = m.TS
	return s.v[:], s.ts[:]
}

// Operator is one operator of a running task.
type Operator interface {
	// Input is the Receiver[T] of input i, as any.
	Input(i int) any
	// Open prepares the operator after composition; state is restored here, before any record.
	Open(ctx context.Context) error
	// PrepareBarrier runs before the barrier of a checkpoint is passed on and may still emit records that belong before it.
	PrepareBarrier(b Barrier) error
	// Snapshot runs the synchronous part of a checkpoint.
	Snapshot(b Barrier) (Snapshot, error)
	CheckpointComplete(id int64) error
	CheckpointAborted(id int64)
	// EndInput runs when all input was processed, after the maximal watermark; it may emit. Chains call it from head to tail.
	EndInput() error
	// Drained reports whether nothing is pending outside (commits in progress); the task ends only when all operators are drained.
	Drained() bool
	// Publish makes the operator's plain counters visible to other goroutines; called once per batch.
	Publish()
	Close() error
}

// Barrier is a checkpoint barrier with what the coordinator asks for.
type Barrier struct {
	ID        int64 `json:"id"`
	Timestamp int64 `json:"ts"` // trigger time, ms
	Savepoint bool  `json:"savepoint,omitempty"`
	Canonical bool  `json:"canonical,omitempty"`
	Suspend   bool  `json:"suspend,omitempty"` // stop-with-savepoint: sources emit nothing after it
	Drain     bool  `json:"drain,omitempty"`
	Full      bool  `json:"full,omitempty"` // refer to no file of earlier checkpoints
	Base      int64 `json:"base,omitempty"` // the latest completed checkpoint, 0 for none: files of that one, or of a later one, are referred to
	// Exclusive and Shared are the URIs of the directories that snapshot files go to.
	Exclusive string `json:"exclusive"`
	Shared    string `json:"shared"`
}

// Snapshot is an operator's part of a checkpoint: lists are final, keyed state is written in the background.
type Snapshot struct {
	Lists []metadata.ListState
	Keyed []state.Snapshot
}

// Base has do-nothing methods for the parts of Operator that most operators do not need.
type Base struct{}

func (Base) Open(context.Context) error         { return nil }
func (Base) PrepareBarrier(Barrier) error       { return nil }
func (Base) Snapshot(Barrier) (Snapshot, error) { return Snapshot{}, nil }
func (Base) CheckpointComplete(int64) error     { return nil }
func (Base) CheckpointAborted(int64)            {}
func (Base) EndInput() error                    { return nil }
func (Base) Drained() bool                      { return true }
func (Base) Publish()                           {}
func (Base) Close() error                       { return nil }

// Factory makes an operator of a task. out is the Receiver[R] of its output (nil for sinks).
type Factory interface {
	New(ctx *Context, out any) (Operator, error)
}

// FactoryFunc is a function as a Factory.
type FactoryFunc func(ctx *Context, out any) (Operator, error)

// New calls f.
func (f FactoryFunc) New(ctx *Context, out any) (Operator, error) { return f(ctx, out) }

// fan sends watermarks and idleness to several receivers.
type fan []advancer

func (f *fan) Watermark(ts int64) error {
	for _, r := range *f {
		if err := r.Watermark(ts); err != nil {
			return err
		}
	}
	return nil
}

func (f *fan) Idle(idle bool) error {
	for _, r := range *f {
		if err := r.Idle(idle); err != nil {
			return err
		}
	}
	return nil
}

// tee sends every element to several receivers.
type tee[T any] struct {
	fan
	all     []Receiver[T]
	batches []BatchReceiver[T]
	change  []bool // the receiver may change what it gets, and is not the last
	clone   []bool // it may change or keep what records point to, and is not the last; nil when they point to nothing that can be changed
	codec   serde.Codec[T]
	vs      []T
	ts      []int64
}

// Process hands the record to each receiver in turn: one that may change what it points to gets a copy.
func (t *tee[T]) Process(v T, m Meta) error {
	for i, r := range t.all {
		w := v
		if t.clone != nil && t.clone[i] {
			w = t.codec.Clone(v)
		}
		if err := r.Process(w, m); err != nil {
			return err
		}
	}
	return nil
}

// batchReader is a BatchReceiver that leaves both slices as they are.
type batchReader interface{ readsOnly() }

// ProcessBatch hands the batch to each receiver in turn: one that may change it gets a copy.
func (t *tee[T]) ProcessBatch(vs []T, ts []int64) error {
	for i, b := range t.batches {
		v, s := vs, ts
		if t.change[i] {
			t.vs = append(t.vs[:0], vs...)
			v = t.vs
			if t.clone != nil && t.clone[i] {
				for n := range v {
					v[n] = t.codec.Clone(v[n])
				}
			}
			if ts != nil {
				t.ts = append(t.ts[:0], ts...)
				s = t.ts
			}
		}
		if err := b.ProcessBatch(v, s); err != nil {
			return err
		}
	}
	return nil
}

// encodes implements encoder.
func (t *tee[T]) encodes() bool {
	return !slices.ContainsFunc(t.all, func(r Receiver[T]) bool { return !encodes(r) })
}

func newTee[T any](all []Receiver[T], codec serde.Codec[T]) *tee[T] {
	t := &tee[T]{all: all, codec: codec}
	mutable := serde.Mutable(codec)
	for i, r := range all {
		t.fan = append(t.fan, r)
		b, takes := r.(BatchReceiver[T])
		if !takes {
			b = &oneByOne[T]{r}
		}
		_, reads := b.(batchReader)
		clone := mutable && !encodes(r) && i < len(all)-1
		if mutable {
			t.clone = append(t.clone, clone)
		}
		t.batches = append(t.batches, b)
		t.change = append(t.change, clone || takes && !reads && i < len(all)-1)
	}
	return t
}

// ignore is what discard is beside its records.
type ignore struct{}

func (*ignore) Watermark(int64) error { return nil }
func (*ignore) Idle(bool) error       { return nil }
func (*ignore) encodes() bool         { return true }

// discard is where records go that no operator takes.
type discard[T any] struct{ ignore }

func (*discard[T]) Process(T, Meta) error           { return nil }
func (*discard[T]) ProcessBatch([]T, []int64) error { return nil }
