package scheduler

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/thalweg/thalweg/runtime/graph"
)

// Bounds are how many subtasks a vertex must have at least, and has when there are slots for them.
type Bounds struct{ Lower, Upper int }

// Requirements are the bounds of every vertex of a job. Source: Flink JobResourceRequirements (FLIP-291).
type Requirements map[graph.VertexID]Bounds

// Fixed is what a job needs that runs at its graph's parallelism or not at all.
func Fixed(g *graph.JobGraph) Requirements {
	r := Requirements{}
	for id, n := range g.Parallelism() {
		r[id] = Bounds{n, n}
	}
	return r
}

// Elastic is what a job needs that runs with less than its graph's parallelism when slots are short.
func Elastic(g *graph.JobGraph) Requirements {
	r := Requirements{}
	for id, n := range g.Parallelism() {
		r[id] = Bounds{1, n}
	}
	return r
}

// Check compares the requirements with the job's graph. The error tells all that is wrong.
func (r Requirements) Check(g *graph.JobGraph) error {
	var bad []error
	say := func(format string, args ...any) { bad = append(bad, fmt.Errorf(format, args...)) }
	for i := range g.Vertices {
		v := &g.Vertices[i]
		b, ok := r[v.ID]
		switch {
		case !ok:
			say("vertex %s (%s) has no parallelism: name every vertex of the job", v.ID, v.Name)
		case b.Lower < 1:
			say("vertex %s (%s): lower bound %d: want 1 at least", v.ID, v.Name, b.Lower)
		case b.Upper < b.Lower:
			say("vertex %s (%s): the upper bound %d is below the lower bound %d", v.ID, v.Name, b.Upper, b.Lower)
		case b.Upper > v.MaxParallelism:
			say("vertex %s (%s): %d is above its max parallelism %d", v.ID, v.Name, b.Upper, v.MaxParallelism)
		}
		for _, in := range v.Inputs {
			if from := g.Vertex(in.From); in.Partitioner == graph.Forward && from != nil && r[from.ID] != b && ok {
				say("vertex %s (%s) is fed by %s (%s) subtask by subtask (FORWARD): both need the same parallelism", v.ID, v.Name, from.ID, from.Name)
			}
		}
	}
	for _, id := range slices.SortedFunc(maps.Keys(r), func(a, b graph.VertexID) int { return strings.Compare(a.String(), b.String()) }) {
		if g.Vertex(id) == nil {
			say("the job has no vertex %s", id)
		}
	}
	return errors.Join(bad...)
}

// Upper is the parallelism that is wanted, whatever slots there are.
func (r Requirements) Upper() graph.Parallelism {
	p := graph.Parallelism{}
	for id, b := range r {
		p[id] = b.Upper
	}
	return p
}

// holds reports whether p is within the bounds.
func (r Requirements) holds(p graph.Parallelism) bool {
	for id, n := range p {
		if b := r[id]; n < b.Lower || n > b.Upper {
			return false
		}
	}
	return true
}

// groupsOf are the slot sharing groups in the order of their first vertices; size says how many slots each needs.
func groupsOf(g *graph.JobGraph, size func(v *graph.Vertex) int) (groups []group, slots int) {
	for i := range g.Vertices {
		v := &g.Vertices[i]
		at := slices.IndexFunc(groups, func(g group) bool { return g.name == v.SlotSharingGroup })
		if at < 0 {
			at = len(groups)
			groups = append(groups, group{name: v.SlotSharingGroup})
		}
		groups[at].size = max(groups[at].size, size(v))
	}
	for i := range groups {
		groups[i].from = slots
		slots += groups[i].size
	}
	return groups, slots
}

func slotsOf(g *graph.JobGraph, p graph.Parallelism) int {
	_, n := groupsOf(g, func(v *graph.Vertex) int { return p[v.ID] })
	return n
}

// fit is the greatest parallelism within the bounds for which n slots are enough; ok is false when they are not even for the lower bounds.
// Groups get what they need at least, and then one slot each in turn.
// Source: Flink SlotSharingSlotAllocator.determineParallelism.
func (r Requirements) fit(g *graph.JobGraph, n int) (p graph.Parallelism, ok bool) {
	groups, used := groupsOf(g, func(v *graph.Vertex) int { return r[v.ID].Lower })
	most, _ := groupsOf(g, func(v *graph.Vertex) int { return r[v.ID].Upper })
	if used > n {
		return nil, false
	}
	for more := true; more; {
		more = false
		for i := range groups {
			if used < n && groups[i].size < most[i].size {
				groups[i].size++
				used++
				more = true
			}
		}
	}
	p = graph.Parallelism{}
	for i := range g.Vertices {
		v := &g.Vertices[i]
		at := slices.IndexFunc(groups, func(g group) bool { return g.name == v.SlotSharingGroup })
		p[v.ID] = min(r[v.ID].Upper, groups[at].size)
	}
	for changed := true; changed; { // a forward edge may lead from one group into another
		changed = false
		for i := range g.Vertices {
			v := &g.Vertices[i]
			for _, in := range v.Inputs {
				if in.Partitioner == graph.Forward && p[in.From] != p[v.ID] {
					p[in.From] = min(p[in.From], p[v.ID])
					p[v.ID] = p[in.From]
					changed = true
				}
			}
		}
	}
	return p, true
}

// vertexRequirements is Flink's JSON form of Bounds.
type vertexRequirements struct {
	Parallelism struct {
		Lower int `json:"lowerBound"`
		Upper int `json:"upperBound"`
	} `json:"parallelism"`
}

// MarshalJSON is Flink's form: {"<vertex id>": {"parallelism": {"lowerBound": 1, "upperBound": 4}}}. Source: JobResourceRequirementsBody.
func (r Requirements) MarshalJSON() ([]byte, error) {
	out := map[string]vertexRequirements{}
	for id, b := range r {
		var v vertexRequirements
		v.Parallelism.Lower, v.Parallelism.Upper = b.Lower, b.Upper
		out[id.String()] = v
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads the same.
func (r *Requirements) UnmarshalJSON(data []byte) error {
	var in map[string]vertexRequirements
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&in); err != nil {
		return err
	}
	*r = Requirements{}
	for text, v := range in {
		id, err := graph.ParseID(text)
		if err != nil {
			return fmt.Errorf("vertex %q: want 32 hex digits", text)
		}
		(*r)[graph.VertexID{ID: id}] = Bounds{v.Parallelism.Lower, v.Parallelism.Upper}
	}
	return nil
}
