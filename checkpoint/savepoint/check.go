package savepoint

import (
	"fmt"
	"slices"
	"strings"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/state"
)

// MisfitError lists everything that keeps a checkpoint from being restored into a graph.
type MisfitError struct {
	Path    string // where the checkpoint stands, may be empty
	Misfits []string
}

func (e *MisfitError) Error() string {
	var b strings.Builder
	b.WriteString("savepoint: restore")
	if e.Path != "" {
		b.WriteString(" " + e.Path)
	}
	fmt.Fprintf(&b, ": the state does not fit the job in %d point", len(e.Misfits))
	if len(e.Misfits) > 1 {
		b.WriteString("s")
	}
	for i, m := range e.Misfits {
		fmt.Fprintf(&b, "; (%d) %s", i+1, m)
	}
	return b.String()
}

// Adopted holds the max parallelism of vertices for which nobody set one: the checkpoint's where they have keyed state, else the default.
type Adopted map[graph.VertexID]int

// Apply returns g with the adopted values; g itself is not changed.
func (a Adopted) Apply(g graph.JobGraph) graph.JobGraph {
	if len(a) == 0 {
		return g
	}
	g.Vertices = slices.Clone(g.Vertices)
	for i := range g.Vertices {
		if n, ok := a[g.Vertices[i].ID]; ok {
			g.Vertices[i].MaxParallelism = n
		}
	}
	return g
}

// Check compares a checkpoint with the graph that is to be restored from it, before any task runs. A vertex whose MaxParallelism is
// derived, or not positive, has none set: with keyed state it adopts the checkpoint's, whatever its parallelism would make the default
// today, else it keeps the derived one. Operators without keyed state may change their max parallelism. With allowNonRestored, state
// that no operator claims is left behind. State of another layout than the operator's is refused with it, too: an operator claims it. State
// without a layout, of versions that knew none, is not.
//
// Errors: *MisfitError with all misfits at once.
// Source: Flink Checkpoints.loadAndValidateCheckpoint, StateAssignmentOperation.checkParallelismPreconditions; FLINK-40113, FLINK-2976.
func Check(cp metadata.Checkpoint, g graph.JobGraph, allowNonRestored bool) (Adopted, error) {
	var misfits []string
	add := func(format string, args ...any) { misfits = append(misfits, fmt.Sprintf(format, args...)) }

	known := map[graph.OperatorID]*graph.Operator{}
	for i := range g.Vertices {
		for j := range g.Vertices[i].Operators {
			known[g.Vertices[i].Operators[j].ID] = &g.Vertices[i].Operators[j]
		}
	}
	stored := map[graph.OperatorID]*metadata.Operator{}
	for i := range cp.Operators {
		o := &cp.Operators[i]
		stored[o.ID] = o
		op := known[o.ID]
		hasState := o.HasKeyed() || o.HasLists() || len(cp.Coordinators[o.ID]) > 0
		switch {
		case !hasState:
		case op == nil:
			if !allowNonRestored {
				add("operator %s has state in the checkpoint but is not in the job; give its successor that UID, or pass --allowNonRestoredState ("+config.AllowNonRestored.Key+"=true) to drop the state", o.Title())
			}
		case !op.Stateful && !op.Keyed && !op.Source && !op.Coordinate:
			if !allowNonRestored {
				add("operator %s has state in the checkpoint but keeps none in the job; pass --allowNonRestoredState ("+config.AllowNonRestored.Key+"=true) to drop it", title(op))
			}
		case o.HasKeyed() && !op.Keyed:
			add("operator %s has keyed state in the checkpoint but is not keyed in the job; give it another UID", title(op))
		case o.Layout() != "" && op.Layout != "" && o.Layout() != op.Layout:
			add("%s", otherLayout(op, o.Layout()))
		}
	}
	for id, b := range cp.Coordinators {
		if len(b) > 0 && stored[id] == nil && known[id] == nil && !allowNonRestored {
			add("operator id %s has coordinator state in the checkpoint but is not in the job; pass --allowNonRestoredState ("+config.AllowNonRestored.Key+"=true) to drop it", id)
		}
	}

	checkExchanges(cp, g, allowNonRestored, add)
	adopted := Adopted{}
	for i := range g.Vertices {
		checkVertex(&g.Vertices[i], stored, adopted, add)
	}
	if len(misfits) > 0 {
		slices.Sort(misfits)
		return nil, &MisfitError{Misfits: misfits}
	}
	return adopted, nil
}

func checkVertex(v *graph.Vertex, stored map[graph.OperatorID]*metadata.Operator, adopted Adopted, add func(string, ...any)) {
	var first *metadata.Operator // of the chain, with keyed state
	var firstTitle string
	set := v.MaxParallelism > 0 && !v.MaxDerived
	for i := range v.Operators {
		o := stored[v.Operators[i].ID]
		if o == nil || !o.HasKeyed() || !v.Operators[i].Keyed {
			continue
		}
		if set && o.MaxParallelism != v.MaxParallelism {
			add("operator %s has max parallelism %d in the job, its keyed state was stored with %d; set it to %d",
				title(&v.Operators[i]), v.MaxParallelism, o.MaxParallelism, o.MaxParallelism)
		}
		if !set && first != nil && first.MaxParallelism != o.MaxParallelism {
			add("operators %s and %s run in one chain, but their keyed state was stored with max parallelism %d and %d; start a new chain between them",
				firstTitle, title(&v.Operators[i]), first.MaxParallelism, o.MaxParallelism)
		}
		if first == nil {
			first, firstTitle = o, title(&v.Operators[i])
		}
	}
	limit := v.MaxParallelism
	if !set {
		if first != nil {
			limit = first.MaxParallelism
		} else if limit <= 0 {
			limit = state.DefaultMaxParallelism(v.Parallelism)
		}
		if limit != v.MaxParallelism {
			adopted[v.ID] = limit
		}
	}
	if v.Parallelism > limit {
		what := "its max parallelism"
		if !set && first != nil {
			what = "the max parallelism of its state"
		}
		add("vertex %q has parallelism %d, above %s, %d; lower the parallelism", v.Name, v.Parallelism, what, limit)
	}
}

// otherLayout says that an operator's state is made of something else than what the operator keeps.
func otherLayout(op *graph.Operator, stored string) string {
	at := ""
	if op.CallSite != "" {
		at = " at " + op.CallSite
	}
	drain := ""
	if strings.Contains(stored, "event-time") {
		drain = "; or stop the former program with --drain before the change, which ends its windows"
	}
	return fmt.Sprintf("operator %s%s keeps, in the job, %s, and the checkpoint holds %s, which would be lost or counted wrongly; keep what the former program had%s; or give the operator another UID and pass --allowNonRestoredState (%s=true), which drops the former state",
		title(op), at, op.Layout, stored, drain, config.AllowNonRestored.Key)
}

func title(o *graph.Operator) string {
	m := metadata.Operator{ID: o.ID, UID: o.UID, Name: o.Name}
	return m.Title()
}

// Assign deals the checkpoint's state out to the subtasks of every vertex of g, whose max parallelisms must be set (see Adopted.Apply).
// State without operator is left out, and what was under way on an edge that g has not. Errors: those of metadata.Redistribute.
func Assign(cp metadata.Checkpoint, g graph.JobGraph) (Assignment, error) {
	out := Assignment{}
	for i := range g.Vertices {
		v := &g.Vertices[i]
		tasks := make([]metadata.Task, v.Parallelism)
		for j := range v.Operators {
			op := cp.Operator(v.Operators[j].ID)
			if op == nil {
				continue
			}
			shares, err := metadata.Redistribute(*op, v.Parallelism, v.MaxParallelism)
			if err != nil {
				return nil, fmt.Errorf("savepoint: assign state to vertex %q: %w", v.Name, err)
			}
			for k, s := range shares {
				if len(s.Keyed) > 0 || len(s.Lists) > 0 {
					tasks[k].Operators = append(tasks[k].Operators, metadata.TaskOperator{ID: op.ID, State: s})
				}
			}
		}
		assignExchanges(cp, g, v, tasks)
		out[v.ID] = tasks
	}
	return out, nil
}
