package operator

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
)

// What test harnesses need beyond Operator: hold the clock and look inside. Nothing of it is used while a job runs.

// Progress is a source, or an operator that assigns watermarks: its event time can be moved by hand.
type Progress interface {
	// Tick does at once what is done each pipeline.auto-watermark-interval.
	Tick() error
	// EmitWatermark emits a watermark as the splits' own would be; a lower one than before changes nothing.
	EmitWatermark(ts int64) error
	// EmitIdle emits that the stream is idle, or active again.
	EmitIdle(idle bool) error
}

// Tick implements Progress.
func (p *progress) Tick() error {
	if p.finished || !p.enabled {
		return nil
	}
	p.tick()
	return p.advance(p.clock())
}

// EmitWatermark implements Progress.
func (p *progress) EmitWatermark(ts int64) error {
	if p.finished || ts <= p.emitted {
		return nil
	}
	return p.emit(ts)
}

// EmitIdle implements Progress.
func (p *progress) EmitIdle(idle bool) error {
	if p.idle == idle {
		return nil
	}
	p.idle = idle
	return p.next.Idle(idle)
}

// Inspector opens the keyed state of an operator for a key that a test chooses.
type Inspector[K comparable] struct {
	*RuntimeContext[K]
	hash *state.Hasher[K]
	key  state.Key[K]
}

// NewInspector returns an inspector of the operator that c belongs to.
func NewInspector[K comparable](c *Context) (*Inspector[K], error) {
	codec, err := serde.ForKey[K]()
	if err != nil {
		return nil, err
	}
	i := &Inspector[K]{hash: state.NewHasher(codec)}
	i.key.Group = noKey
	i.RuntimeContext = &RuntimeContext[K]{TaskContext: TaskContext{c}, cur: &i.key, key: codec}
	return i, nil
}

// Select makes k the current key.
func (i *Inspector[K]) Select(k K) { i.key = state.KeyOf(i.hash, k, i.ctx.MaxParallelism) }

// Window opens states of the current key and the window that begins at a time, in milliseconds.
func (i *Inspector[K]) Window(start int64) *RuntimeContext[K] {
	if start == GlobalWindow().Start {
		start = 0 // as in windowOp.nsOf
	}
	return &RuntimeContext[K]{TaskContext: i.TaskContext, cur: &i.key, key: i.RuntimeContext.key, win: &windowState[K]{ns: start}}
}

// Encoded is the encoding of k in snapshots.
func (i *Inspector[K]) Encoded(k K) []byte { return i.RuntimeContext.key.Append(nil, k) }

// Options are the options that the operator's function opened a keyed state with, or a per-window state. The error names the states that it has.
func (i *Inspector[K]) Options(name string, perWindow bool) ([]StateOption, error) {
	if perWindow {
		return i.ctx.stateOptions(claimed{name, ofWindow}, "per-window state")
	}
	return i.ctx.stateOptions(claimed{name, ofKey}, "keyed state")
}

func (c *Context) stateOptions(of claimed, what string) ([]StateOption, error) {
	n, ok := c.claims[of]
	if !ok {
		var names []string
		for n := range maps.Keys(c.claims) {
			if n.of == of.of {
				names = append(names, n.name)
			}
		}
		slices.Sort(names)
		return nil, fmt.Errorf("operator %s has no %s %q; it has: %s", c.Name, what, of.name, strings.Join(names, ", "))
	}
	if n.ttl == nil {
		return nil, nil
	}
	return []StateOption{WithTTL(*n.ttl)}, nil
}

// GroupOf is the key group of k.
func (i *Inspector[K]) GroupOf(k K, maxParallelism int) uint16 {
	return state.GroupOf(i.hash.Hash(k), maxParallelism)
}

// The names of the timers that keyed functions register, in snapshots.
const (
	EventTimers      = "event-timers"
	ProcessingTimers = "processing-timers"
)
