package operator

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
)

// Operator state belongs to a subtask, not to a key. Its items are in the checkpoint's metadata; what they are encoded as is in a list
// of its own (schemasState), an item {name, kind, schema} for each state that the subtask stored.

const (
	schemasState = "user-schemas"
	userPrefix   = "user-" // of the names of users' states, in snapshots
)

// The kinds of operator state.
const (
	kindSplit     = "list"
	kindUnion     = "union list"
	kindBroadcast = "broadcast"
)

type storedSchema struct {
	Name   string       `json:"name"`
	Kind   string       `json:"kind"`
	Schema serde.Schema `json:"schema"`
}

// subtaskState is an open operator state.
type subtaskState interface {
	// snapshot returns the encoded items, nil for none.
	snapshot() [][]byte
	describe() storedSchema
}

// stored returns the restored items of a state and their schema.
func (c *Context) stored(name, kind string, schema serde.Schema) ([][]byte, serde.Schema, error) {
	items := c.List(userPrefix + name)
	if len(items) == 0 {
		return nil, schema, nil
	}
	for _, b := range c.List(schemasState) {
		var s storedSchema
		if err := json.Unmarshal(b, &s); err != nil {
			return nil, schema, lasting("state %q: stored schema: %w", name, err)
		}
		if s.Name != name {
			continue
		}
		if s.Kind != kind {
			return nil, schema, c.refuse(lasting("state %q was stored as %s state and is opened as %s state at %s; give it another name", name, s.Kind, kind, userSite()))
		}
		return items, s.Schema, nil
	}
	return nil, schema, lasting("state %q: its schema is missing from the checkpoint", name)
}

// snapshotLists encodes the operator states that are open.
func (c *Context) snapshotLists() []metadata.ListState {
	var out []metadata.ListState
	schemas := metadata.ListState{Name: schemasState, Mode: metadata.Union}
	for _, name := range slices.Sorted(maps.Keys(c.subtaskStates)) {
		s := c.subtaskStates[name]
		items := s.snapshot()
		if len(items) == 0 {
			continue
		}
		d := s.describe()
		mode := metadata.Union
		if d.Kind == kindSplit {
			mode = metadata.Split
		}
		out = append(out, metadata.ListState{Name: userPrefix + name, Mode: mode, Items: items})
		if js, err := json.Marshal(d); err == nil { // plain strings and numbers: it cannot fail
			schemas.Items = append(schemas.Items, js)
		}
	}
	if len(out) > 0 {
		out = append(out, schemas)
	}
	return out
}

func (c *Context) keep(name string, s subtaskState) {
	if c.subtaskStates == nil {
		c.subtaskStates = map[string]subtaskState{}
	}
	c.subtaskStates[name] = s
}

// RestoredCheckpoint is the checkpoint that the state was restored from; ok is false at a fresh start.
func (t *TaskContext) RestoredCheckpoint() (id int64, ok bool) {
	return t.ctx.RestoredCheckpoint, t.ctx.RestoredCheckpoint > 0
}

// ListState opens a list of this subtask. Its items are dealt out evenly when the parallelism changes, each to one subtask.
// Source: Flink OperatorStateStore.getListState.
func (t *TaskContext) ListState[V any](name string) (ListState[V], error) {
	return openList[V](t.ctx, name, kindSplit)
}

// UnionListState opens a list of this subtask whose items all go to every subtask at a restore.
// Source: Flink OperatorStateStore.getUnionListState.
func (t *TaskContext) UnionListState[V any](name string) (ListState[V], error) {
	return openList[V](t.ctx, name, kindUnion)
}

func openList[V any](c *Context, name, kind string) (ListState[V], error) {
	codec, err := codecFor[V](c, name, "element")
	if err != nil {
		return ListState[V]{}, err
	}
	if err := c.claim(name, kind+" state of "+typeName[V](), ofOperator, nil); err != nil {
		return ListState[V]{}, err
	}
	if s, ok := c.subtaskStates[name].(*subtaskList[V]); ok {
		return ListState[V]{s}, nil
	}
	items, schema, err := c.stored(name, kind, codec.Schema())
	if err != nil {
		return ListState[V]{}, err
	}
	from, err := serde.Migrating(codec, schema)
	if err != nil {
		return ListState[V]{}, c.refuse(lasting("state %q: %w", name, err))
	}
	s := &subtaskList[V]{name: name, kind: kind, codec: codec}
	for _, b := range items {
		v, n, err := from.Decode(b)
		if err == nil && n != len(b) {
			err = fmt.Errorf("item of %d bytes, %d decoded", len(b), n)
		}
		if err != nil {
			return ListState[V]{}, lasting("restore state %q: %w", name, err)
		}
		s.items = append(s.items, codec.Clone(v))
	}
	c.keep(name, s)
	return ListState[V]{s}, nil
}

// subtaskList is a list of operator state.
type subtaskList[V any] struct {
	name, kind string
	codec      serde.Codec[V]
	items      []V
}

func (s *subtaskList[V]) get() ([]V, error) { return slices.Clip(s.items), nil }
func (s *subtaskList[V]) clear() error      { s.items = nil; return nil }
func (s *subtaskList[V]) table() any        { return nil }

func (s *subtaskList[V]) add(v V) error {
	s.items = append(s.items, s.codec.Clone(v))
	return nil
}

func (s *subtaskList[V]) put(vs []V) error {
	s.items = make([]V, len(vs))
	for i, v := range vs {
		s.items[i] = s.codec.Clone(v)
	}
	return nil
}

func (s *subtaskList[V]) snapshot() [][]byte {
	var out [][]byte
	for _, v := range s.items {
		out = append(out, s.codec.Append(nil, v))
	}
	return out
}

func (s *subtaskList[V]) describe() storedSchema {
	return storedSchema{s.name, s.kind, s.codec.Schema()}
}

// BroadcastState is a map that is the same in every subtask, when all of them do the same with the same broadcast records. Iteration has
// no particular order. Source: Flink BroadcastState.
type BroadcastState[UK comparable, V any] struct{ ReadOnlyBroadcastState[UK, V] }

// ReadOnlyBroadcastState is BroadcastState for reading. Slices and maps inside of values are not to be changed.
type ReadOnlyBroadcastState[UK comparable, V any] struct{ s *broadcastMap[UK, V] }

// Get returns the value of an entry.
func (s ReadOnlyBroadcastState[UK, V]) Get(k UK) (v V, found bool) {
	s.s.settle(&k)
	v, found = s.s.m[k]
	return v, found
}

// Contains reports whether there is an entry.
func (s ReadOnlyBroadcastState[UK, V]) Contains(k UK) bool {
	_, found := s.Get(k)
	return found
}

// Len is the number of entries.
func (s ReadOnlyBroadcastState[UK, V]) Len() int { return len(s.s.m) }

// ForEach calls fn for every entry, until it returns an error.
func (s ReadOnlyBroadcastState[UK, V]) ForEach(fn func(k UK, v V) error) error {
	for k, v := range s.s.m {
		if err := fn(k, v); err != nil {
			return err
		}
	}
	return nil
}

// All ranges over the entries, in no order.
func (s ReadOnlyBroadcastState[UK, V]) All() iter.Seq2[UK, V] { return maps.All(s.s.m) }

// Put sets an entry. Here and in the other methods, 0 and -0 are one key, and one that is, or holds, a NaN fails the task.
func (s BroadcastState[UK, V]) Put(k UK, v V) {
	if err := s.s.rule.stored(&k); err != nil {
		panic(err)
	}
	s.s.m[s.s.key.Clone(k)] = s.s.value.Clone(v)
}

// PutAll sets entries.
func (s BroadcastState[UK, V]) PutAll(m map[UK]V) {
	for k, v := range m {
		s.Put(k, v)
	}
}

// Remove removes an entry.
func (s BroadcastState[UK, V]) Remove(k UK) {
	s.s.settle(&k)
	delete(s.s.m, k)
}

// Clear removes every entry.
func (s BroadcastState[UK, V]) Clear() { clear(s.s.m) }

// BroadcastState opens a broadcast state: every subtask must keep the same content. A checkpoint has it once, from the first subtask;
// each subtask gets a copy at a restore, whatever the parallelism. Source: Flink OperatorStateStore.getBroadcastState.
func (t *TaskContext) BroadcastState[UK comparable, V any](name string) (BroadcastState[UK, V], error) {
	s, err := openBroadcast[UK, V](t.ctx, name)
	return BroadcastState[UK, V]{ReadOnlyBroadcastState[UK, V]{s}}, err
}

func openBroadcast[UK comparable, V any](c *Context, name string) (*broadcastMap[UK, V], error) {
	key, err := codecForKey[UK](c, name)
	if err != nil {
		return nil, err
	}
	value, err := codecFor[V](c, name, "value")
	if err != nil {
		return nil, err
	}
	if err := c.claim(name, "broadcast state of "+typeName[UK]()+" to "+typeName[V](), ofOperator, nil); err != nil {
		return nil, err
	}
	if s, ok := c.subtaskStates[name].(*broadcastMap[UK, V]); ok {
		return s, nil
	}
	s := &broadcastMap[UK, V]{name: name, first: c.Subtask == 0, key: key, value: value, m: map[UK]V{},
		rule: newRuledKeys(key, "broadcast state", name)}
	items, schema, err := c.stored(name, kindBroadcast, s.describe().Schema)
	if err != nil {
		return nil, err
	}
	from, err := s.reader(schema)
	if err != nil {
		return nil, c.refuse(lasting("state %q: %w", name, err))
	}
	if err := s.restore(items, from); err != nil {
		return nil, lasting("restore state %q: %w", name, err)
	}
	c.keep(name, s)
	return s, nil
}

// broadcastMap is a broadcast state in memory.
type broadcastMap[UK comparable, V any] struct {
	name  string
	first bool // this subtask's copy is the one that is stored
	key   serde.Codec[UK]
	value serde.Codec[V]
	m     map[UK]V
	rule  ruledKeys[UK]
}

func (s *broadcastMap[UK, V]) settle(k *UK) {
	if err := s.rule.settle(k); err != nil {
		panic(err)
	}
}

// reader reads values that were stored with a schema.
func (s *broadcastMap[UK, V]) reader(schema serde.Schema) (serde.Codec[V], error) {
	if schema.Key == nil || schema.Elem == nil || !serde.Same(*schema.Key, s.key.Schema()) {
		return nil, fmt.Errorf("the type of its keys changed: now %s", typeName[UK]())
	}
	return serde.Migrating(s.value, *schema.Elem)
}

func (s *broadcastMap[UK, V]) restore(items [][]byte, from serde.Codec[V]) error {
	for _, b := range items {
		k, n, err := s.key.Decode(b)
		if err != nil {
			return err
		}
		v, m, err := from.Decode(b[n:])
		if err != nil {
			return err
		}
		if n+m != len(b) {
			return fmt.Errorf("entry of %d bytes, %d decoded", len(b), n+m)
		}
		s.m[s.key.Clone(k)] = s.value.Clone(v)
	}
	return nil
}

func (s *broadcastMap[UK, V]) snapshot() [][]byte {
	if !s.first {
		return nil
	}
	out := make([][]byte, 0, len(s.m))
	for k, v := range s.m {
		out = append(out, s.value.Append(s.key.Append(nil, k), v))
	}
	slices.SortFunc(out, bytes.Compare)
	return out
}

func (s *broadcastMap[UK, V]) describe() storedSchema {
	k, v := s.key.Schema(), s.value.Schema()
	return storedSchema{s.name, kindBroadcast, serde.Schema{Kind: state.KindPair, Key: &k, Elem: &v}}
}

// CheckpointedFunction is implemented by functions that put something into their operator state at a checkpoint: SnapshotState runs after
// the barrier went on, and before the states are stored; it must not emit. State is restored before Open. Source: Flink CheckpointedFunction.
type CheckpointedFunction interface {
	SnapshotState(checkpointID int64) error
}

// CheckpointListener is implemented by functions that want to know what became of a checkpoint. A notice may be lost when a task fails.
// Source: Flink CheckpointListener.
type CheckpointListener interface {
	NotifyCheckpointComplete(checkpointID int64) error
	NotifyCheckpointAborted(checkpointID int64) error
}

// hooks are a function's own parts in checkpoints.
type hooks struct {
	ctx      *Context
	snapshot CheckpointedFunction
	listener CheckpointListener
}

func newHooks(ctx *Context, fn any) hooks {
	h := hooks{ctx: ctx}
	h.snapshot, _ = fn.(CheckpointedFunction)
	h.listener, _ = fn.(CheckpointListener)
	return h
}

// prepare runs SnapshotState.
func (h *hooks) prepare(b Barrier) error {
	if h.snapshot == nil {
		return nil
	}
	h.ctx.Enter()
	return h.ctx.wrap(h.snapshot.SnapshotState(b.ID))
}

// snapshotOf is the snapshot of an operator that has operator state alone.
func (h *hooks) snapshotOf(b Barrier) (Snapshot, error) {
	if err := h.prepare(b); err != nil {
		return Snapshot{}, err
	}
	return Snapshot{Lists: h.ctx.snapshotLists()}, nil
}

func (h *hooks) complete(id int64) error {
	if h.listener == nil {
		return nil
	}
	h.ctx.Enter()
	return h.ctx.wrap(h.listener.NotifyCheckpointComplete(id))
}

// aborted fails the task when the function fails, since nobody takes an error here.
func (h *hooks) aborted(id int64) {
	if h.listener == nil {
		return
	}
	h.ctx.Enter()
	if err := h.listener.NotifyCheckpointAborted(id); err != nil {
		h.ctx.Fail(h.ctx.wrap(err))
	}
}
