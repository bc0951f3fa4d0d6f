package metadata

import (
	"fmt"
	"slices"

	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/state"
)

// Redistribute deals the state of one operator out to newParallelism subtasks; element i of the result is subtask i's share.
//
// Keyed handles go to every subtask whose key-group range (state.RangeOf) they meet; one handle may go to several, and the backend
// that is opened with it reads only its own groups. List items of mode Split are dealt round-robin over the concatenation by subtask
// index; when the parallelism is unchanged they stay where they were. Lists of mode Union go whole to every subtask. Handles, items
// and file references are shared with op, not copied.
//
// Errors: *MaxParallelismError when keyed state would meet another number of key groups; a parallelism that is not in
// [1, newMaxParallelism]; a list with two modes.
// Source: Flink StateAssignmentOperation, RoundRobinOperatorStateRepartitioner, KeyGroupRangeAssignment.
func Redistribute(op Operator, newParallelism, newMaxParallelism int) ([]Subtask, error) {
	if newParallelism < 1 || newParallelism > newMaxParallelism {
		return nil, fmt.Errorf("metadata: redistribute %s: parallelism %d is not in [1, %d], the max parallelism", op.Title(), newParallelism, newMaxParallelism)
	}
	if op.HasKeyed() && op.MaxParallelism != newMaxParallelism {
		return nil, fmt.Errorf("metadata: redistribute: %w", &MaxParallelismError{Operator: op.Title(), Stored: op.MaxParallelism, Wanted: newMaxParallelism})
	}
	out := make([]Subtask, newParallelism)
	for i := range out {
		out[i].Index = i
	}
	subtasks := slices.Clone(op.Subtasks)
	slices.SortStableFunc(subtasks, func(a, b Subtask) int { return a.Index - b.Index })

	for i := range out {
		r := state.RangeOf(newMaxParallelism, newParallelism, i)
		for _, s := range subtasks {
			for _, h := range s.Keyed {
				if h.Range.Start < r.End && r.Start < h.Range.End {
					out[i].Keyed = append(out[i].Keyed, h)
				}
			}
		}
	}
	return out, redistributeLists(op, subtasks, out)
}

func redistributeLists(op Operator, subtasks, out []Subtask) error {
	type list struct {
		mode  Mode
		items [][]byte
	}
	var names []string
	lists := map[string]*list{}
	for _, s := range subtasks {
		for _, l := range s.Lists {
			g := lists[l.Name]
			if g == nil {
				g = &list{mode: l.Mode}
				lists[l.Name] = g
				names = append(names, l.Name)
			}
			if g.mode != l.Mode {
				return fmt.Errorf("metadata: redistribute %s: list state %q is stored in two modes", op.Title(), l.Name)
			}
			g.items = append(g.items, l.Items...)
		}
	}
	slices.Sort(names)
	same := op.Parallelism == len(out)
	for _, name := range names {
		g := lists[name]
		shares := make([][][]byte, len(out))
		switch {
		case g.mode == Union:
			for i := range shares {
				shares[i] = g.items
			}
		case same:
			for _, s := range subtasks {
				if s.Index < 0 || s.Index >= len(out) {
					return fmt.Errorf("metadata: redistribute %s: stored subtask %d of %d", op.Title(), s.Index, op.Parallelism)
				}
				for _, l := range s.Lists {
					if l.Name == name {
						shares[s.Index] = append(shares[s.Index], l.Items...)
					}
				}
			}
		default:
			for i, it := range g.items {
				shares[i%len(out)] = append(shares[i%len(out)], it)
			}
		}
		for i, items := range shares {
			if len(items) > 0 {
				out[i].Lists = append(out[i].Lists, ListState{Name: name, Mode: g.mode, Items: items})
			}
		}
	}
	return nil
}

// MaxParallelismError says that keyed state was stored under another number of key groups.
type MaxParallelismError struct {
	Operator       string
	Stored, Wanted int
}

func (e *MaxParallelismError) Error() string {
	return fmt.Sprintf("operator %s: keyed state was stored with max parallelism %d, the job has %d; set its max parallelism to %d",
		e.Operator, e.Stored, e.Wanted, e.Stored)
}

// Title names the operator for people: name and UID, or the id when it has neither.
func (o *Operator) Title() string {
	switch {
	case o.Name != "" && o.UID != "":
		return fmt.Sprintf("%q (uid %q)", o.Name, o.UID)
	case o.Name != "":
		return fmt.Sprintf("%q (id %s)", o.Name, o.ID)
	case o.UID != "":
		return fmt.Sprintf("uid %q", o.UID)
	}
	return "id " + o.ID.String()
}

// HasKeyed reports whether any subtask stored keyed state.
func (o *Operator) HasKeyed() bool {
	return slices.ContainsFunc(o.Subtasks, func(s Subtask) bool { return len(s.Keyed) > 0 })
}

// HasLists reports whether any subtask stored list state.
func (o *Operator) HasLists() bool {
	return slices.ContainsFunc(o.Subtasks, func(s Subtask) bool { return len(s.Lists) > 0 })
}

// Layout is the operator's layout, "" when it is not known.
func (o *Operator) Layout() string {
	for _, s := range o.Subtasks {
		for _, l := range s.Lists {
			if l.Name == LayoutState && len(l.Items) > 0 {
				return string(l.Items[0])
			}
		}
	}
	return ""
}

// Refs calls fn for every file reference of the checkpoint; fn may change it.
func (c *Checkpoint) Refs(fn func(*state.FileRef)) {
	for i := range c.Operators {
		for j := range c.Operators[i].Subtasks {
			c.Operators[i].Subtasks[j].Refs(fn)
		}
	}
	for i := range c.Exchanges {
		for j := range c.Exchanges[i].Parts {
			fn(&c.Exchanges[i].Parts[j].Segment.File)
		}
	}
}

// Refs calls fn for every file reference of the task's state; fn may change it.
func (t *Task) Refs(fn func(*state.FileRef)) {
	for i := range t.Operators {
		t.Operators[i].State.Refs(fn)
	}
	for i := range t.InFlight {
		fn(&t.InFlight[i].Segment.File)
	}
}

// Refs calls fn for every file reference of the subtask's state; fn may change it.
func (s *Subtask) Refs(fn func(*state.FileRef)) {
	for i := range s.Keyed {
		for j := range s.Keyed[i].Files {
			fn(&s.Keyed[i].Files[j].Ref)
		}
	}
}

// Operator returns the operator with this id, or nil.
func (c *Checkpoint) Operator(id graph.OperatorID) *Operator {
	for i := range c.Operators {
		if c.Operators[i].ID == id {
			return &c.Operators[i]
		}
	}
	return nil
}

// Clone returns a copy whose file references may be changed; everything below them, and other state, is shared with c.
func (c *Checkpoint) Clone() Checkpoint {
	out := *c
	out.Operators = slices.Clone(c.Operators)
	for i := range out.Operators {
		out.Operators[i].Subtasks = slices.Clone(out.Operators[i].Subtasks)
		for j := range out.Operators[i].Subtasks {
			s := &out.Operators[i].Subtasks[j]
			s.Keyed = slices.Clone(s.Keyed)
			for k := range s.Keyed {
				s.Keyed[k].Files = slices.Clone(s.Keyed[k].Files)
			}
		}
	}
	out.Exchanges = slices.Clone(c.Exchanges)
	for i := range out.Exchanges {
		out.Exchanges[i].Parts = slices.Clone(out.Exchanges[i].Parts)
	}
	return out
}
