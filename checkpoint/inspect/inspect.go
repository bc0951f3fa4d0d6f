// Package inspect reads checkpoints and savepoints without the job that wrote them: what they hold, entry by entry, and what changed between
// two. It is layer L2 (imports checkpoint/{metadata,storage}, runtime/graph, state, serde, fs).
//
// Main flow: Open reads _metadata; States lists what is there from it alone; Each reads the entries of one state, decoded by the schemas
// that stand in the files, so no Go type is needed; Diff compares two snapshots group by group.
//
// Invariants: nothing is written; memory is bounded by one key group of one state; what a schema does not tell (types with a codec of their
// own) is shown as hex with the reason, never guessed.
package inspect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/checkpoint/storage"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/state/canonical"
	"github.com/thalweg/thalweg/state/pebble"
)

// Kinds of State.
const (
	Value       = "value"
	List        = "list"
	Map         = "map"
	Timers      = "timers"
	Items       = "operator list"  // dealt out over the subtasks
	UnionItems  = "operator union" // each subtask gets all
	Coordinator = "coordinator"    // of the operator's half in the master
)

// Snapshot is an opened checkpoint or savepoint. Close it.
type Snapshot struct {
	URI  string
	Meta metadata.Checkpoint
	reg  *fs.Registry
	src  *storage.Source
	// native are the handles in pebble's own form that were looked into so far: their files are fetched once.
	native map[place]*pebble.Backend
}

// place is where a handle stands in the metadata.
type place struct {
	operator        graph.OperatorID
	subtask, handle int
}

// Open reads the _metadata of the checkpoint or savepoint at uri, its directory or that file. Errors: see storage.ReadMetadata.
func Open(ctx context.Context, reg *fs.Registry, uri string) (*Snapshot, error) {
	m, err := storage.ReadMetadata(ctx, reg, uri)
	if err != nil {
		return nil, err
	}
	return &Snapshot{URI: uri, Meta: m, reg: reg, src: storage.NewSource(reg), native: map[place]*pebble.Backend{}}, nil
}

// Close closes what was opened and removes local copies.
func (s *Snapshot) Close() error {
	err := s.src.Close()
	for _, b := range s.native {
		err = errors.Join(err, b.Close())
	}
	clear(s.native)
	return err
}

// State is one state of an operator, over all subtasks.
type State struct {
	Operator string `json:"operator"` // name
	UID      string `json:"uid,omitempty"`
	ID       string `json:"operatorId"`
	Name     string `json:"state"`
	Kind     string `json:"kind"`
	Key      string `json:"keyType,omitempty"`
	Value    string `json:"valueType,omitempty"`
	Format   string `json:"format,omitempty"` // of the files: canonical, or a backend's own
	Entries  int64  `json:"entries"`          // -1: not known without reading them
	Bytes    int64  `json:"bytes"`            // -1: not known; files hold all of an operator's states together

	op   *metadata.Operator
	meta state.TableMeta
}

// Operator is what a snapshot holds of one operator.
type Operator struct {
	Name           string  `json:"operator"`
	UID            string  `json:"uid,omitempty"`
	ID             string  `json:"operatorId"`
	Parallelism    int     `json:"parallelism"`
	MaxParallelism int     `json:"maxParallelism"`
	Bytes          int64   `json:"bytes"` // of all its states
	States         []State `json:"states"`
}

// Operators lists the operators that have state, and their states, as the metadata has them.
func (s *Snapshot) Operators() []Operator {
	var all []Operator
	for i := range s.Meta.Operators {
		m := &s.Meta.Operators[i]
		o := Operator{Name: m.Name, UID: m.UID, ID: m.ID.String(), Parallelism: m.Parallelism, MaxParallelism: m.MaxParallelism, States: states(m)}
		for j := range m.Subtasks {
			for k := range m.Subtasks[j].Keyed {
				o.Bytes += m.Subtasks[j].Keyed[k].Size
			}
		}
		if b, ok := s.Meta.Coordinators[m.ID]; ok {
			o.States = append(o.States, State{Operator: m.Name, UID: m.UID, ID: o.ID, Name: "coordinator", Kind: Coordinator, Entries: 1, Bytes: int64(len(b)), op: m})
		}
		for _, st := range o.States {
			if st.Bytes > 0 {
				o.Bytes += st.Bytes
			}
		}
		if len(o.States) > 0 {
			all = append(all, o)
		}
	}
	return all
}

// states are those of one operator, keyed ones first, by name.
func states(m *metadata.Operator) []State {
	keyed, lists := map[string]*State{}, map[string]*State{}
	base := State{Operator: m.Name, UID: m.UID, ID: m.ID.String(), op: m}
	for i := range m.Subtasks {
		for _, h := range m.Subtasks[i].Keyed {
			for _, t := range h.Tables {
				st := keyed[t.Name]
				if st == nil {
					st = new(base)
					st.Name, st.Kind, st.Format, st.Bytes, st.meta = t.Name, kindOf(t), h.Format, -1, t
					st.Key, st.Value = types(t)
					keyed[t.Name] = st
				}
				if t.Stored < 0 || st.Entries < 0 {
					st.Entries = -1
				} else {
					st.Entries += t.Stored
				}
			}
		}
		for _, l := range m.Subtasks[i].Lists {
			st := lists[l.Name]
			if st == nil {
				st = new(base)
				if st.Name, st.Kind = l.Name, Items; l.Mode == metadata.Union {
					st.Kind = UnionItems
				}
				lists[l.Name] = st
			}
			st.Entries += int64(len(l.Items))
			for _, item := range l.Items {
				st.Bytes += int64(len(item))
			}
		}
	}
	return append(sorted(keyed), sorted(lists)...)
}

func sorted(m map[string]*State) []State {
	var all []State
	for _, s := range m {
		all = append(all, *s)
	}
	slices.SortFunc(all, func(a, b State) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func kindOf(t state.TableMeta) string {
	switch v := untimed(&t.Value); {
	case t.Kind == canonical.KindTimers:
		return Timers
	case t.Key.Kind == state.KindPair:
		return Map
	case v.Kind == state.KindList:
		return List
	}
	return Value
}

// untimed is the schema without the time of last access.
func untimed(s *serde.Schema) *serde.Schema {
	if s.Kind == state.KindTimed && s.Elem != nil {
		return s.Elem
	}
	return s
}

// types are the types of a state's keys and values as users would write them.
func types(t state.TableMeta) (key, value string) {
	key = t.Key.String()
	if t.Key.Kind == state.KindPair {
		key = t.Key.Key.String()
	}
	if t.Kind == canonical.KindTimers {
		return key, ""
	}
	v, timed := untimed(&t.Value), ""
	if v.Kind == state.KindList && v.Elem != nil {
		v = v.Elem
		if v.Kind == state.KindTimed {
			v, timed = v.Elem, " with a time to live"
		}
		value = "[]" + v.String()
	} else {
		value = v.String()
	}
	if t.Value.Kind == state.KindTimed {
		timed = " with a time to live"
	}
	if t.Key.Kind == state.KindPair {
		value = "map[" + t.Key.Elem.String() + "]" + value
	}
	return key, value + timed
}

// Entry is one entry of a state.
type Entry struct {
	Group     int             `json:"keyGroup"`
	Namespace int64           `json:"namespace,omitempty"` // of windows: their start, ms
	Window    *time.Time      `json:"window,omitempty"`    // Namespace as a time, where it is a window's (or a slice's) start
	Time      *int64          `json:"time,omitempty"`      // timers: ms
	Key       json.RawMessage `json:"key,omitempty"`
	MapKey    json.RawMessage `json:"mapKey,omitempty"`
	Value     json.RawMessage `json:"value,omitempty"`
	Subtask   int             `json:"subtask,omitempty"` // operator states: who wrote it
}

// userPrefix is before the names of the states that functions open, which are not to be taken for those of operators (package runtime/operator).
const userPrefix = "user-"

// Find returns the states that match: operator is a name, a uid or an id (or its first digits), name a state's, as it is stored or as the
// program opens it; "" matches all. Nothing
// found is an error that lists what there is.
func (s *Snapshot) Find(operator, name string) ([]State, error) {
	var found []State
	var operators, names []string
	for _, o := range s.Operators() {
		operators = append(operators, o.label())
		if operator != "" && o.Name != operator && o.UID != operator && !strings.HasPrefix(o.ID, operator) {
			continue
		}
		for _, st := range o.States {
			names = append(names, st.Name)
			if name == "" || st.Name == name || st.Name == userPrefix+name {
				found = append(found, st)
			}
		}
	}
	switch {
	case len(found) > 0 || operator == "" && name == "":
		return found, nil
	case len(names) == 0:
		return nil, fmt.Errorf("inspect: %s has no state of operator %q: there are %s", s.URI, operator, strings.Join(operators, ", "))
	}
	slices.Sort(names)
	return nil, fmt.Errorf("inspect: %s has no state %q of that operator: there are %s", s.URI, name, strings.Join(slices.Compact(names), ", "))
}

func (o *Operator) label() string {
	if o.UID != "" {
		return o.UID
	}
	return o.Name
}

// Each calls fn for the entries of a state that Find or Operators returned, in the order of their key groups, until fn fails. Files in
// pebble's own form are fetched to a local folder first. Errors: those of reading the files.
func (s *Snapshot) Each(ctx context.Context, st State, fn func(Entry) error) error {
	switch st.Kind {
	case Coordinator:
		return fn(Entry{Value: appendBase64(nil, s.Meta.Coordinators[st.op.ID])})
	case Items, UnionItems:
		for i := range st.op.Subtasks {
			for _, l := range st.op.Subtasks[i].Lists {
				for _, item := range l.Items {
					if l.Name != st.Name {
						continue
					}
					if err := fn(Entry{Subtask: st.op.Subtasks[i].Index, Value: appendBase64(nil, item)}); err != nil {
						return err
					}
				}
			}
		}
		return nil
	}
	return s.scan(ctx, st, state.Range{End: st.op.MaxParallelism}, func(m state.TableMeta, e *canonical.Entry) error { return fn(entry(m, e)) })
}

// scan reads the stored entries of a keyed state whose groups are in rng, with the schemas that they were written with.
func (s *Snapshot) scan(ctx context.Context, st State, rng state.Range, fn func(state.TableMeta, *canonical.Entry) error) error {
	for i := range st.op.Subtasks {
		for j, h := range st.op.Subtasks[i].Keyed {
			at := slices.IndexFunc(h.Tables, func(t state.TableMeta) bool { return t.Name == st.Name })
			if at < 0 || h.Range.Start >= rng.End || h.Range.End <= rng.Start {
				continue
			}
			var err error
			switch meta := h.Tables[at]; h.Format {
			case canonical.Format:
				err = s.scanCanonical(ctx, st, rng, h, func(e *canonical.Entry) error {
					meta.Value = *e.Schema
					return fn(meta, e)
				})
			case pebble.Format:
				var b *pebble.Backend
				if b, err = s.open(ctx, place{st.op.ID, i, j}, st.op.MaxParallelism, h); err != nil {
					break
				}
				err = b.Stored(st.Name, rng, func(v *serde.Schema, e *canonical.Entry) error {
					if v != nil {
						meta.Value = *v
					}
					return fn(meta, e)
				})
			default:
				err = fmt.Errorf("state %q of operator %s is in the form %q, which this program does not know; use a newer one", st.Name, st.op.Title(), h.Format)
			}
			if err != nil {
				return fmt.Errorf("inspect: %w", err)
			}
		}
	}
	return nil
}

func (s *Snapshot) scanCanonical(ctx context.Context, st State, rng state.Range, h state.Handle, fn func(*canonical.Entry) error) error {
	r, err := canonical.NewReader(ctx, s.src, st.op.MaxParallelism, rng, []state.Handle{h})
	if err != nil {
		return err
	}
	return errors.Join(r.Scan(st.Name, fn), r.Close())
}

// nativeMemory is the cache of a store that is read through once.
const nativeMemory = 32 << 20

// open fetches a handle in pebble's form, once.
func (s *Snapshot) open(ctx context.Context, at place, maxParallelism int, h state.Handle) (*pebble.Backend, error) {
	if b := s.native[at]; b != nil {
		return b, nil
	}
	dir, err := os.MkdirTemp("", "thalweg-state-")
	if err != nil {
		return nil, fmt.Errorf("local folder for the files of a snapshot: %w", err)
	}
	b, err := pebble.New(state.Config{Range: h.Range, MaxParallelism: maxParallelism, Dir: dir, MemoryBytes: nativeMemory, Restore: []state.Handle{h}, Source: s.src, Context: ctx})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	s.native[at] = b
	return b, nil
}

// ofWindows begins the names of what window operators keep: contents, per-window state of functions (window-user-...) and of triggers. The namespaces
// of their tables are starts, or 0: of global windows, and where all windows of a key are one entry.
const ofWindows = "window-"

// entry decodes what is stored.
func entry(m state.TableMeta, e *canonical.Entry) Entry {
	out := Entry{Group: e.Group, Namespace: e.Namespace}
	if m.Kind == canonical.KindTable && e.Namespace != 0 && strings.HasPrefix(m.Name, ofWindows) {
		out.Window = new(time.UnixMilli(e.Namespace).UTC())
	}
	key := e.Key
	if m.Key.Kind == state.KindPair {
		k, n, err := appendValue(nil, key, m.Key.Key)
		if err != nil {
			out.Key = render(key, m.Key.Key)
		} else {
			out.Key, out.MapKey = k, render(key[n:], m.Key.Elem)
		}
	} else {
		out.Key = render(key, &m.Key)
	}
	if m.Kind == canonical.KindTimers {
		out.Time = new(e.At)
		return out
	}
	out.Value = render(e.Value, &m.Value)
	return out
}

// Count reads a state for the number of its entries and the bytes of their keys and values as they are stored.
func (s *Snapshot) Count(ctx context.Context, st State) (entries, bytes int64, err error) {
	if st.Bytes >= 0 { // in the metadata
		return st.Entries, st.Bytes, nil
	}
	err = s.scan(ctx, st, state.Range{End: st.op.MaxParallelism}, func(_ state.TableMeta, e *canonical.Entry) error {
		entries++
		bytes += int64(len(e.Key) + len(e.Value))
		return nil
	})
	return entries, bytes, err
}
