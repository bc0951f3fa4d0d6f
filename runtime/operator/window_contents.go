package operator

import (
	"bytes"
	"iter"
	"unsafe"

	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
)

// WindowFunctions are the user's halves of an aggregating window operator: A is the accumulator.
type WindowFunctions[K comparable, T, A, R any] struct {
	// Add adds a record; first says that the accumulator is new (its zero value).
	Add func(acc *A, v T, first bool)
	// Copies says that Add copies what it keeps of a record's strings and slices, which are valid during the call only.
	Copies bool
	// Merge returns the accumulator of the records of both; it may change and reuse a, but not b.
	Merge func(a, b A) A
	// Create returns the accumulator of no records, for windows that an evictor emptied; nil to emit nothing for them.
	Create func() A
	// Emit emits the results of a window that is complete.
	Emit func(key K, w Window, acc *A, out *Collector[R]) error
}

// contents is what a window holds: C is an accumulator or a buffer of records. One instance serves one subtask.
type contents[T, C any] struct {
	fold  func(c *C, v T, first bool)           // adds a record; nil when add does
	add   func(c *C, v T, ts int64, first bool) // adds a record with its time
	merge func(a, b C) C                        // may change and reuse a
	empty func() C                              // the contents of no records; nil when there are no results for none
	void  func(c *C) bool                       // an evictor left nothing; nil when there is none
	// copies says that add copies what it keeps of a record, whose strings may be views of an exchange's buffer.
	copies bool
	codec  serde.Codec[C]
	views  bool            // the contents need a copy after add
	keeper state.Keeper[C] // makes it; nil: codec does
	last   C               // what they were before the record, when they are flat
	flat   bool            // they need none while they are the same bytes as before: they hold no slices, maps or pointers
	// mutable contents share memory with what is made from them by merge.
	mutable bool
	// shares says that what the user's half emits may share memory with them: a window that goes on is emitted from a copy.
	shares bool
}

func (c *contents[T, C]) init(shares bool) (err error) {
	if c.codec, err = serde.For[C](); err != nil {
		return err
	}
	c.views = c.codec.Views() && !c.copies
	c.mutable = serde.Mutable(c.codec)
	c.flat = c.views && !c.mutable
	c.shares = c.mutable && shares
	return nil
}

// given is what a user's half is given of p; stays says that the window, or another one, goes on with p's contents.
func (c *contents[T, C]) given(p *C, stays bool) *C {
	if !stays || !c.shares {
		return p
	}
	v := c.codec.Clone(*p)
	return &v
}

// mutableType reports whether values of T hold memory that a change in place is seen through; so do types without a codec, for all that is known.
func mutableType[T any]() bool {
	c, err := serde.For[T]()
	return err != nil || serde.Mutable(c)
}

// mutableCodec copies values of T; it is nil when no change of a copy can be seen through another, so that none is needed, and for types
// without a codec.
func mutableCodec[T any]() serde.Codec[T] {
	if c, err := serde.For[T](); err == nil && serde.Mutable(c) {
		return c
	}
	return nil
}

// put adds a record to a window's contents in state.
func (c *contents[T, C]) put(p *C, v T, ts int64, first bool) {
	if c.flat {
		c.last = *p
	}
	if c.fold != nil {
		c.fold(p, v, first)
	} else {
		c.add(p, v, ts, first)
	}
	if c.views && !(c.flat && sameBytes(p, &c.last)) { // else each would keep a whole exchange buffer alive
		own(p, c.keeper, c.codec)
	}
}

// own gives a value in a table copies of its strings and slices.
func own[V any](p *V, k state.Keeper[V], c serde.Codec[V]) {
	if k == nil || !k.Keep(p) {
		*p = c.Clone(*p)
	}
}

// sameBytes reports whether two values are the same in memory, strings by their place.
func sameBytes[C any](a, b *C) bool {
	n := int(unsafe.Sizeof(*a))
	return bytes.Equal(unsafe.Slice((*byte)(unsafe.Pointer(a)), n), unsafe.Slice((*byte)(unsafe.Pointer(b)), n))
}

// windowUser is the user's half that makes results of a window's contents. One instance serves one subtask.
type windowUser[K comparable, C, R any] interface {
	open(o *windowEnv[K, R]) error
	// fire emits a window's results. Whoever evicts returns the new contents and true.
	fire(k state.Key[K], w Window, c *C) (changed bool, err error)
	// shares says that what fire emits, or does with c, may reach or change the memory of mutable contents.
	shares() bool
	// stateful says that fire uses state, and that clear is to be called for each key of a window that is gone.
	stateful() bool
	clear(k state.Key[K], w Window) error
	// remove removes a key's per-window state of a namespace, forget that of all keys.
	remove(k state.Key[K], ns state.Namespace) error
	forget(ns state.Namespace) error
	close() error
}

// windowEnv is what the user's half works with.
type windowEnv[K comparable, R any] struct {
	ctx     *Context
	codec   serde.Codec[K]
	c       Collector[R]
	clock   *windowClock
	merging bool // per-window state is not possible
	ns      func(Window) state.Namespace
}

// emitFunc is a user's half without state.
type emitFunc[K comparable, C, R any] struct {
	env  *windowEnv[K, R]
	emit func(key K, w Window, c *C, out *Collector[R]) error
}

func (u *emitFunc[K, C, R]) open(e *windowEnv[K, R]) error {
	u.env = e
	e.c.asIs() // shares: they are made of contents of their own
	return nil
}

func (u *emitFunc[K, C, R]) fire(k state.Key[K], w Window, c *C) (bool, error) {
	u.env.ctx.Enter()
	u.env.c.begin(Meta{TS: w.MaxTimestamp(), Hash: k.Hash})
	return false, u.env.c.done(u.emit(k.Key, w, c, &u.env.c))
}

func (*emitFunc[K, C, R]) shares() bool                               { return mutableType[R]() }
func (*emitFunc[K, C, R]) stateful() bool                             { return false }
func (*emitFunc[K, C, R]) clear(state.Key[K], Window) error           { return nil }
func (*emitFunc[K, C, R]) remove(state.Key[K], state.Namespace) error { return nil }
func (*emitFunc[K, C, R]) forget(state.Namespace) error               { return nil }
func (*emitFunc[K, C, R]) close() error                               { return nil }

// ProcessWindowFunction is a user's function over the records of a window, or over the one value they were aggregated to. One instance
// serves one subtask. Source: Flink ProcessWindowFunction.
type ProcessWindowFunction[K comparable, V, R any] interface {
	// Open runs once, before any record; state handles are made here.
	Open(rt *WindowRuntimeContext[K]) error
	// Process runs each time that a window is emitted. The elements are valid during the call and not to be changed.
	Process(ctx *WindowContext[K], elements iter.Seq[V], out *Collector[R]) error
	// Clear runs when a window is gone. Its per-window state is removed afterwards, whatever Clear does.
	Clear(ctx *WindowContext[K]) error
	Close() error
}

// WindowContext is what a window function gets with each call. Its Timestamp is the window's last millisecond, which is the event time of
// what is emitted.
type WindowContext[K comparable] struct {
	ProcessContext
	cur *state.Key[K]
	w   Window
}

// Key is the window's key.
func (c *WindowContext[K]) Key() K { return c.cur.Key }

// Window is the window.
func (c *WindowContext[K]) Window() TimeWindow { return c.w.Times() }

// processUser runs a ProcessWindowFunction. each gives the elements of a window's contents.
type processUser[K comparable, V, C, R any] struct {
	fn   ProcessWindowFunction[K, V, R]
	each func(c *C) iter.Seq[V]
	env  *windowEnv[K, R]
	ws   windowState[K]
	wc   WindowContext[K]
}

func (u *processUser[K, V, C, R]) open(e *windowEnv[K, R]) error {
	u.env = e
	u.ws.merging = e.merging
	u.wc.ProcessContext = ProcessContext{&e.c.emission, MinWatermark}
	u.wc.cur = &u.ws.cur
	u.ws.cur.Group = noKey
	e.ctx.Enter()
	return e.ctx.wrap(u.fn.Open(&WindowRuntimeContext[K]{RuntimeContext[K]{TaskContext: TaskContext{e.ctx}, cur: &u.ws.cur, key: e.codec}, &u.ws}))
}

func (u *processUser[K, V, C, R]) enter(k state.Key[K], w Window) {
	u.env.ctx.Enter()
	u.env.c.begin(Meta{TS: w.MaxTimestamp(), Hash: k.Hash})
	u.ws.cur, u.wc.w, u.wc.watermark = k, w, u.env.clock.at(k.Group)
	if !u.ws.merging {
		u.ws.ns = u.env.ns(w)
	}
}

func (u *processUser[K, V, C, R]) fire(k state.Key[K], w Window, c *C) (bool, error) {
	u.enter(k, w)
	return false, u.env.c.done(u.fn.Process(&u.wc, u.each(c), &u.env.c))
}

func (u *processUser[K, V, C, R]) shares() bool   { return mutableType[V]() }
func (u *processUser[K, V, C, R]) stateful() bool { return true }

func (u *processUser[K, V, C, R]) clear(k state.Key[K], w Window) error {
	u.enter(k, w)
	return u.env.c.done(u.fn.Clear(&u.wc))
}

func (u *processUser[K, V, C, R]) remove(k state.Key[K], ns state.Namespace) error {
	for _, remove := range u.ws.remove {
		if err := remove(k, ns); err != nil {
			return err
		}
	}
	return nil
}

func (u *processUser[K, V, C, R]) forget(ns state.Namespace) error {
	for _, drop := range u.ws.drop {
		if err := drop(ns); err != nil {
			return err
		}
	}
	return nil
}

func (u *processUser[K, V, C, R]) close() error {
	if u.env == nil {
		return nil // the operator did not open as far as here
	}
	u.env.ctx.Enter()
	return u.env.c.closed(u.fn.Close())
}

// gather collects the contents of a window by key. It is kept and used again.
type gather[K comparable, C any] struct {
	index   []uint32 // 1 + position in entries; 0 is free
	entries []gathered[K, C]
}

type gathered[K comparable, C any] struct {
	k state.Key[K]
	c C
}

func (g *gather[K, C]) reset() {
	clear(g.index)
	clear(g.entries)
	g.entries = g.entries[:0]
	if len(g.index) == 0 {
		g.index = make([]uint32, 64)
	}
	if cap(g.entries) > 1<<16 { // what a peak took is given back
		g.index, g.entries = make([]uint32, 64), nil
	}
}

// at finds or makes the entry of a key.
func (g *gather[K, C]) at(k state.Key[K]) (c *C, found bool) {
	mask := uint32(len(g.index) - 1)
	i := k.Hash * 0x9e3779b1 >> 7 & mask
	for ; g.index[i] != 0; i = (i + 1) & mask {
		if e := &g.entries[g.index[i]-1]; e.k.Hash == k.Hash && e.k.Key == k.Key {
			return &e.c, true
		}
	}
	var zero C
	g.entries = append(g.entries, gathered[K, C]{k, zero})
	g.index[i] = uint32(len(g.entries))
	if len(g.entries)*4 > len(g.index)*3 {
		g.index = make([]uint32, 2*len(g.index))
		mask = uint32(len(g.index) - 1)
		for n := range g.entries {
			i := g.entries[n].k.Hash * 0x9e3779b1 >> 7 & mask
			for ; g.index[i] != 0; i = (i + 1) & mask {
			}
			g.index[i] = uint32(n + 1)
		}
	}
	return &g.entries[len(g.entries)-1].c, false
}
