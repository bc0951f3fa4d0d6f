package operator

import (
	"math"
	"slices"

	"github.com/thalweg/thalweg/state"
)

const (
	windowEventTimers      = "window-event-timers"
	windowProcessingTimers = "window-processing-timers"
)

// adopt goes on with what slicedOp kept, which stores windows that share nothing as windowOp does, but needs no timers. They are registered as
// if the windows had had the event-time trigger, so that a trigger of another kind finds what it would find after Flink's restore: a timer at
// the end of each window that was not emitted yet, and one when the window is gone. windowOp itself has timers for all windows with contents.
func (o *windowOp[K, T, C, R]) adopt() error {
	if _, ok := o.event.Next(); ok || !o.win.EventTime {
		return nil
	}
	var keys []state.Key[K]
	for _, ns := range o.live {
		keys = keys[:0]
		if err := o.table.Scan(ns, func(k state.Key[K], _ *C) error {
			keys = append(keys, k)
			return nil
		}); err != nil {
			return o.failed(err)
		}
		w := Window{ns, ns + o.win.Sliding.Size}
		for _, k := range keys {
			o.cur, o.ns = k, ns
			if err := o.adoptWindow(w); err != nil {
				return err
			}
		}
	}
	return nil
}

func (o *windowOp[K, T, C, R]) adoptWindow(w Window) error {
	if o.isLate(w) { // it was kept for other keys
		return o.purge()
	}
	if w.MaxTimestamp() > o.current() {
		if err := o.timer(true, true, w.MaxTimestamp()); err != nil {
			return o.failed(err)
		}
	}
	return o.mind(w, true)
}

// vacant reports whether no window is open.
func (o *windowOp[K, T, C, R]) vacant() bool {
	_, event := o.event.Next()
	_, proc := o.proc.Next()
	if event || proc {
		return false
	}
	var open []state.Namespace
	var err error
	if o.merges() {
		open, err = o.merging.Namespaces(nil)
	} else {
		open, err = o.table.Namespaces(nil)
	}
	return err == nil && len(open) == 0
}

// dropTimers removes the timers that windowOp left: slicedOp needs none, and a later windowOp is not to meet those of windows that are gone.
func (o *slicedOp[K, T, C, R]) dropTimers() error {
	for _, name := range []string{windowEventTimers, windowProcessingTimers} {
		if !o.Ctx.restoredKeyed(name) {
			continue
		}
		t, err := OpenTimers(o.Ctx, name, o.sel.Codec)
		if err != nil {
			return err
		}
		if err := t.PopUntil(math.MaxInt64, func(state.Key[K], state.Namespace, int64) error { return nil }); err != nil {
			return o.failed(err)
		}
	}
	return nil
}

// restoredKeyed reports whether keyed state of this name was restored.
func (c *Context) restoredKeyed(name string) bool {
	for i := range c.State.Keyed {
		if slices.ContainsFunc(c.State.Keyed[i].Tables, func(t state.TableMeta) bool { return t.Name == name }) {
			return true
		}
	}
	return false
}
