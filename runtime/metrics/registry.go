package metrics

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Counter is a monotonic count. The zero value is usable; safe for concurrent use.
type Counter struct {
	_ [56]byte // keeps the counters of different tasks out of each other's cache lines
	n atomic.Int64
}

// Add adds n.
func (c *Counter) Add(n int64) { c.n.Add(n) }

// Inc adds one.
func (c *Counter) Inc() { c.n.Add(1) }

// Count is the present value.
func (c *Counter) Count() int64 { return c.n.Load() }

// Meter is a counter whose rate is reported as well, under the name given to Group.Meter with "PerSecond".
type Meter struct {
	Counter
	mu   sync.Mutex
	at   time.Time
	last int64
	rate float64
}

// Rate is the events per second between the last two calls that were at least a second apart.
func (m *Meter) Rate(now time.Time) float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.Count()
	if m.at.IsZero() {
		m.at, m.last = now, n
		return 0
	}
	if d := now.Sub(m.at); d >= time.Second {
		m.rate = float64(n-m.last) / d.Seconds()
		m.at, m.last = now, n
	}
	return m.rate
}

// Registry holds the groups of a process. The zero value is usable; safe for concurrent use.
type Registry struct {
	mu     sync.Mutex
	groups map[*Group]struct{}
}

// Group opens a group. Close it when its task has ended.
func (r *Registry) Group(s Scope) *Group {
	g := &Group{scope: s, r: r, metrics: map[string]any{}}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.groups == nil {
		r.groups = map[*Group]struct{}{}
	}
	r.groups[g] = struct{}{}
	return g
}

// Group is the metrics of one scope.
type Group struct {
	scope Scope
	r     *Registry

	mu      sync.Mutex
	metrics map[string]any // *Counter, *Meter, func() float64
}

// Scope is what the group was opened with.
func (g *Group) Scope() Scope { return g.scope }

// Close takes the group out of the registry.
func (g *Group) Close() {
	g.r.mu.Lock()
	defer g.r.mu.Unlock()
	delete(g.r.groups, g)
}

// Counter returns the counter of this name, a new one if there is none. A name that is taken by another kind of metric gives a counter
// that is not reported.
func (g *Group) Counter(name string) *Counter {
	c, _ := register(g, name, func() *Counter { return &Counter{} })
	return c
}

// Meter returns the meter of this name; it is reported as name and namePerSecond.
func (g *Group) Meter(name string) *Meter {
	m, _ := register(g, name, func() *Meter { return &Meter{} })
	return m
}

// Gauge registers a function that is called when metrics are collected. A second one of the same name replaces the first.
func (g *Group) Gauge(name string, fn func() float64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.metrics[name] = fn
}

func register[M any](g *Group, name string, fresh func() M) (M, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch old := g.metrics[name].(type) {
	case nil:
	case M:
		return old, true
	default:
		return fresh(), false
	}
	m := fresh()
	g.metrics[name] = m
	return m, true
}

// Sample is one value.
type Sample struct {
	Scope   Scope
	Name    string
	Value   float64
	Counter bool // monotonic
}

// Collect reads all metrics, ordered by scope and name.
func (r *Registry) Collect() []Sample {
	r.mu.Lock()
	groups := slices.Collect(maps.Keys(r.groups))
	r.mu.Unlock()
	var out []Sample
	for _, g := range groups {
		out = append(out, g.Collect()...)
	}
	slices.SortFunc(out, func(a, b Sample) int {
		return cmp.Or(cmp.Compare(a.Scope.Identifier(), b.Scope.Identifier()), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// Collect reads the metrics of one group, ordered by name.
func (g *Group) Collect() []Sample {
	g.mu.Lock()
	metrics := maps.Clone(g.metrics)
	g.mu.Unlock()
	now := time.Now()
	var out []Sample
	for _, name := range slices.Sorted(maps.Keys(metrics)) {
		switch m := metrics[name].(type) {
		case *Counter:
			out = append(out, Sample{g.scope, name, float64(m.Count()), true})
		case *Meter:
			out = append(out, Sample{g.scope, name, float64(m.Count()), true}, Sample{g.scope, name + "PerSecond", m.Rate(now), false})
		case func() float64:
			if v, ok := call(m); ok {
				out = append(out, Sample{g.scope, name, v, false})
			}
		}
	}
	return out
}

func call(fn func() float64) (v float64, ok bool) {
	defer func() {
		if recover() != nil {
			v, ok = 0, false
		}
	}()
	v = fn()
	return v, !math.IsNaN(v)
}
