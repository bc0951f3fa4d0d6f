package operator

import (
	"fmt"
	"time"

	"github.com/thalweg/thalweg/checkpoint/metadata"
)

// An operator's layout is a short text that says what its state is made of. It is in the operator's snapshots and in the job graph, and state is
// restored by an operator of the same layout only (checkpoint/savepoint compares them before any task runs): what stands in the way would be
// found by nobody else, since another kind of operator ignores it, and windows of another size count it in the wrong place. What an operator can
// go on from without loss is of one layout. Texts are stable across versions.
const (
	layoutProcess      = "process function"
	layoutKeyedProcess = "keyed process function"
	layoutIntervalJoin = "interval join"
	layoutAsync        = "asynchronous function"
	layoutReduce       = "rolling reduction"
	layoutRolling      = "rolling aggregation"
)

// laidOut is a Factory of operators with a layout.
type laidOut struct {
	make   FactoryFunc
	layout string
}

// laid gives the operators that fn makes a layout.
func laid(layout string, fn FactoryFunc) Factory { return laidOut{fn, layout} }

// New makes an operator whose snapshots have the layout.
func (l laidOut) New(ctx *Context, out any) (Operator, error) {
	op, err := l.make(ctx, out)
	ctx.layout = l.layout
	return op, err
}

// Layout is what runtime/graph puts into the job graph.
func (l laidOut) Layout() string { return l.layout }

// withLayout adds the layout to a snapshot that has state.
func (c *Context) withLayout(s Snapshot) Snapshot {
	if c.layout == "" || len(s.Lists) == 0 && len(s.Keyed) == 0 || c.vacant != nil && c.vacant() {
		return s
	}
	s.Lists = append(s.Lists, metadata.ListState{Name: metadata.LayoutState, Mode: metadata.Split, Items: [][]byte{[]byte(c.layout)}})
	return s
}

// windowLayout is the layout of a window operator. Windows that have a table of their own are of one layout whether slicedOp or windowOp keeps
// them: see windowOp.adopt. Sessions are stored with their bounds, so that their gap may change. Lateness, triggers (of windowOp) and the function
// are no part of it.
func windowLayout(kind WindowKind, event bool, s Sliding, trigger, evictor bool) string {
	if kind == GlobalWindows {
		return kept("global windows", evictor)
	}
	when := "processing-time"
	if event {
		when = "event-time"
	}
	plain := event && !trigger && !evictor
	if kind == SessionWindows {
		text := when + " sessions"
		if event && !plain {
			text += " with a trigger or an evictor"
		}
		return kept(text, evictor)
	}
	if s.Size <= 0 || s.Slide <= 0 {
		return "" // a mistake of the graph
	}
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	text := fmt.Sprintf("tumbling %s windows of %s", when, ms(s.Size))
	if s.Size != s.Slide {
		text = fmt.Sprintf("sliding %s windows of %s every %s", when, ms(s.Size), ms(s.Slide))
	}
	if offset := (s.Offset%s.Slide + s.Slide) % s.Slide; offset != 0 {
		text += fmt.Sprintf(", offset %s", ms(offset))
	}
	if plain && s.slices().Size != s.Size {
		text += ", in slices"
	}
	return kept(text, evictor)
}

func kept(layout string, evictor bool) string {
	if evictor {
		return layout + ", with their records for an evictor"
	}
	return layout
}
