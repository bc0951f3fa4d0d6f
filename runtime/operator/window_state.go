package operator

import "github.com/thalweg/thalweg/state"

// windowPrefix begins the names of per-window states, in snapshots.
const windowPrefix = "window-user-"

// windowState is the current key and window of a window function, with what removes its per-window states.
type windowState[K comparable] struct {
	merging bool // there is none
	cur     state.Key[K]
	ns      state.Namespace
	remove  []func(state.Key[K], state.Namespace) error
	drop    []func(state.Namespace) error
}

// keep notes a state that was opened: remove removes what a key has in a namespace, drop what all keys have.
func (w *windowState[K]) keep(remove func(state.Key[K], state.Namespace) error, drop func(state.Namespace) error) {
	w.remove, w.drop = append(w.remove, remove), append(w.drop, drop)
}

// WindowRuntimeContext is what a window function gets in Open. The states that its RuntimeContext opens are the key's own, over all windows.
// Those that the methods below open are of the key and the window, each under a name of its own: they are removed with the window, when the allowed
// lateness is over, whatever Clear does (those of global windows never are), and are not possible with session windows, which merge. Options and
// handles are those of keyed state. Source: Flink ProcessWindowFunction.Context.globalState, windowState; WindowOperator.PerWindowStateStore.
type WindowRuntimeContext[K comparable] struct {
	RuntimeContext[K]
	u *windowState[K]
}

// perWindow opens per-window state.
func (r *WindowRuntimeContext[K]) perWindow() *RuntimeContext[K] {
	return &RuntimeContext[K]{TaskContext: r.TaskContext, cur: r.cur, key: r.key, win: r.u}
}

// WindowValueState opens the per-window value state of this name.
func (r *WindowRuntimeContext[K]) WindowValueState[V any](name string, opts ...StateOption) (ValueState[V], error) {
	return r.perWindow().ValueState[V](name, opts...)
}

// WindowListState opens the per-window list state of this name.
func (r *WindowRuntimeContext[K]) WindowListState[V any](name string, opts ...StateOption) (ListState[V], error) {
	return r.perWindow().ListState[V](name, opts...)
}

// WindowMapState opens the per-window map state of this name.
func (r *WindowRuntimeContext[K]) WindowMapState[UK comparable, V any](name string, opts ...StateOption) (MapState[UK, V], error) {
	return r.perWindow().MapState[UK, V](name, opts...)
}

// WindowReducingState opens the per-window reducing state of this name. fn may change its first argument in place.
func (r *WindowRuntimeContext[K]) WindowReducingState[V any](name string, fn func(a, b V) V, opts ...StateOption) (ReducingState[V], error) {
	return r.perWindow().ReducingState(name, fn, opts...)
}

// WindowAggregatingState opens the per-window aggregating state of this name.
func (r *WindowRuntimeContext[K]) WindowAggregatingState[T, A, R any](name string, agg StateAggregator[T, A, R], opts ...StateOption) (AggregatingState[T, R], error) {
	return r.perWindow().AggregatingState(name, agg, opts...)
}
