// Package alignment decides how far the sources of an alignment group may run ahead of the slowest of them. It is a pure core of layer
// L2: no goroutine, clock or I/O. The coordinator process feeds it with what the sources report and announces what it answers.
//
// Main flow: Add names a source of a group and its subtasks; Report takes the watermark of one subtask; Allowed is the highest watermark
// that the subtasks of a source may have: the least of the group and the source's drift. Subtasks that are idle or have ended report
// MaxWatermark and hold nobody back. A subtask that has not reported holds everybody back.
//
// Source: Flink SourceCoordinator (FLIP-182), where a source runs free until the first announcement; here it waits for it.
package alignment

import (
	"math"
	"slices"
)

// The watermark before any was reported, and the one of a subtask that does not count.
const (
	MinWatermark = int64(math.MinInt64)
	MaxWatermark = int64(math.MaxInt64)
)

// Groups are the alignment groups of a job. The zero value has none.
type Groups struct {
	sources map[string]*source
	groups  map[string][]*source
}

type source struct {
	group     string
	drift     int64
	reported  []int64 // by subtask
	announced int64
}

// Add names a source of a group; drift is in milliseconds.
func (g *Groups) Add(id, group string, drift int64, parallelism int) {
	s := &source{group: group, drift: drift, reported: make([]int64, parallelism), announced: MinWatermark}
	for i := range s.reported {
		s.reported[i] = MinWatermark
	}
	if g.sources == nil {
		g.sources, g.groups = map[string]*source{}, map[string][]*source{}
	}
	g.sources[id] = s
	g.groups[group] = append(g.groups[group], s)
}

// Remove takes a source out: it has ended, or starts anew.
func (g *Groups) Remove(id string) {
	s := g.sources[id]
	if s == nil {
		return
	}
	delete(g.sources, id)
	g.groups[s.group] = slices.DeleteFunc(g.groups[s.group], func(o *source) bool { return o == s })
}

// Report takes the watermark of a subtask. started says that it is the one that the group waited for, so that an announcement is due at
// once. Subtasks that are not known are ignored.
func (g *Groups) Report(id string, subtask int, watermark int64) (started bool) {
	s := g.sources[id]
	if s == nil || subtask < 0 || subtask >= len(s.reported) {
		return false
	}
	before := g.least(s.group)
	s.reported[subtask] = watermark
	return before == MinWatermark && g.least(s.group) != MinWatermark
}

func (g *Groups) least(group string) int64 {
	least := MaxWatermark
	for _, s := range g.groups[group] {
		for _, w := range s.reported {
			least = min(least, w)
		}
	}
	return least
}

// Members are the sources of the group that a source belongs to, itself included.
func (g *Groups) Members(id string) []string {
	s := g.sources[id]
	if s == nil {
		return nil
	}
	var out []string
	for name, other := range g.sources {
		if other.group == s.group {
			out = append(out, name)
		}
	}
	return out
}

// Allowed is the highest watermark that the source's subtasks may have now. changed says that it is not what the last call said.
func (g *Groups) Allowed(id string) (allowed int64, changed bool) {
	s := g.sources[id]
	if s == nil {
		return MaxWatermark, false
	}
	allowed = g.least(s.group)
	switch {
	case allowed == MinWatermark:
	case allowed > MaxWatermark-s.drift:
		allowed = MaxWatermark
	default:
		allowed += s.drift
	}
	changed = allowed != s.announced
	s.announced = allowed
	return allowed, changed
}
