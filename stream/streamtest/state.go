package streamtest

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/thalweg/thalweg/checkpoint/storage"
	"github.com/thalweg/thalweg/runtime/operator"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/state/canonical"
	"github.com/thalweg/thalweg/stream"
)

// KeyState is the state and the timers of one key of an operator, to look at. It is valid over restarts.
type KeyState[K comparable] struct {
	j        *engine
	operator string
	key      K
	window   *time.Time // start of the window whose states these are; nil: the key's own
}

// Key is the state of one key of the keyed process function, or of the window function, with this UID or name.
func Key[K comparable](j *Job, operator string, key K) *KeyState[K] { return keyOf(j.e, operator, key) }

func keyOf[K comparable](j *engine, operator string, key K) *KeyState[K] {
	return &KeyState[K]{j: j, operator: operator, key: key}
}

// Window is the per-window state of the key, of the window that begins at start (the Start of WindowContext.Window).
func (k *KeyState[K]) Window(start time.Time) *KeyState[K] {
	w := *k
	w.window = &start
	return &w
}

// states opens states for a look.
func (k *KeyState[K]) states(p *operator.Inspector[K]) *operator.RuntimeContext[K] {
	if k.window != nil {
		return p.Window(k.window.UnixMilli())
	}
	return p.RuntimeContext
}

type probeID struct {
	operator string
	subtask  int
}

// probe finds the operator's subtask that has the key, and its inspector with the key as the current one.
func (k *KeyState[K]) probe() (*operator.Inspector[K], *subtask, int) {
	j := k.j
	j.t.Helper()
	j.start()
	var names []string
	for _, s := range j.subtasks {
		for i, o := range s.vertex.Operators {
			if !o.Keyed || k.operator != "" && o.UID != k.operator && o.Name != k.operator {
				if o.Keyed {
					names = append(names, o.Name)
				}
				continue
			}
			id := probeID{o.ID.String(), s.index}
			p, ok := j.probes[id].(*operator.Inspector[K])
			if !ok {
				var err error
				if p, err = operator.NewInspector[K](s.ctxs[i]); err != nil {
					j.t.Fatalf("streamtest: keys of %s: %v", o.Name, err)
				}
				j.probes[id] = p
			}
			if state.SubtaskOf(s.vertex.MaxParallelism, s.vertex.Parallelism, p.GroupOf(k.key, s.vertex.MaxParallelism)) == s.index {
				p.Select(k.key)
				return p, s, i
			}
		}
	}
	j.t.Fatalf("streamtest: the job has no keyed operator %q; it has: %s", k.operator, strings.Join(names, ", "))
	return nil, nil, 0
}

func (k *KeyState[K]) options(p *operator.Inspector[K], name string) []stream.StateOption {
	k.j.t.Helper()
	o, err := p.Options(name, k.window != nil)
	k.check(name, err)
	return o
}

func (k *KeyState[K]) check(name string, err error) {
	if err != nil {
		k.j.t.Helper()
		k.j.t.Fatalf("streamtest: state %q of key %v: %v", name, k.key, err)
	}
}

// Value is the value of a ValueState; found is false when there is none.
func (k *KeyState[K]) Value[V any](name string) (v V, found bool) {
	k.j.t.Helper()
	p, _, _ := k.probe()
	s, err := k.states(p).ValueState[V](name, k.options(p, name)...)
	k.check(name, err)
	v, found, err = s.Value()
	k.check(name, err)
	return v, found
}

// Reducing is the value of a ReducingState.
func (k *KeyState[K]) Reducing[V any](name string) (v V, found bool) {
	k.j.t.Helper()
	p, _, _ := k.probe()
	s, err := k.states(p).ReducingState(name, func(V, V) (v V) { return v }, k.options(p, name)...)
	k.check(name, err)
	v, found, err = s.Get()
	k.check(name, err)
	return v, found
}

// Aggregating is the result of an AggregatingState.
func (k *KeyState[K]) Aggregating[T, A, R any](name string, agg stream.StateAggregator[T, A, R]) (r R, found bool) {
	k.j.t.Helper()
	p, _, _ := k.probe()
	s, err := k.states(p).AggregatingState(name, agg, k.options(p, name)...)
	k.check(name, err)
	r, found, err = s.Get()
	k.check(name, err)
	return r, found
}

// List are the elements of a ListState.
func (k *KeyState[K]) List[V any](name string) []V {
	k.j.t.Helper()
	p, _, _ := k.probe()
	s, err := k.states(p).ListState[V](name, k.options(p, name)...)
	k.check(name, err)
	vs, err := s.Get()
	k.check(name, err)
	return slices.Clone(vs)
}

// Map are the entries of a MapState.
func (k *KeyState[K]) Map[UK comparable, V any](name string) map[UK]V {
	k.j.t.Helper()
	p, _, _ := k.probe()
	s, err := k.states(p).MapState[UK, V](name, k.options(p, name)...)
	k.check(name, err)
	out := map[UK]V{}
	k.check(name, s.ForEach(func(uk UK, v V) error {
		out[uk] = v
		return nil
	}))
	return out
}

// EventTimeTimers are the times of the key's event-time timers, in order.
func (k *KeyState[K]) EventTimeTimers() []time.Time {
	k.j.t.Helper()
	return k.timers(operator.EventTimers)
}

// ProcessingTimeTimers are the times of the key's processing-time timers, in order.
func (k *KeyState[K]) ProcessingTimeTimers() []time.Time {
	k.j.t.Helper()
	return k.timers(operator.ProcessingTimers)
}

func (k *KeyState[K]) timers(name string) []time.Time {
	k.j.t.Helper()
	p, s, i := k.probe()
	out, err := k.j.timersOf(s, i, name, p.Encoded(k.key))
	k.check(name, err)
	return out
}

// timersOf reads the timers of an encoded key out of a snapshot, which is where every backend has them in one form.
func (j *engine) timersOf(s *subtask, i int, name string, key []byte) ([]time.Time, error) {
	b, err := s.ctxs[i].Backend()
	if err != nil {
		return nil, err
	}
	snap, err := b.Snapshot(j.checkpoints+1<<40, true)
	if err != nil {
		return nil, err
	}
	h, err := snap.Write(j.ctx, storage.NewSink(j.reg, snapshotDir, "", 1<<40))
	b.CheckpointAborted(j.checkpoints + 1<<40)
	if err != nil {
		return nil, err
	}
	r, err := canonical.NewReader(context.Background(), storage.NewSource(j.reg), s.vertex.MaxParallelism, b.Range(), []state.Handle{h})
	if err != nil {
		return nil, err
	}
	defer r.Close() //nolint:errcheck // it holds no file
	out := []time.Time{}
	err = r.Scan(name, func(e *canonical.Entry) error {
		if bytes.Equal(e.Key, key) {
			out = append(out, time.UnixMilli(e.At).UTC())
		}
		return nil
	})
	slices.SortFunc(out, func(a, b time.Time) int { return a.Compare(b) })
	return out, err
}
