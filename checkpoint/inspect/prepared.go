package inspect

import (
	"fmt"
	"maps"
	"slices"
)

// Prepared is something that a committing sink prepared at the barrier of a checkpoint, and that belongs to the snapshot.
type Prepared struct {
	Operator   string // name, or uid or id when it has none
	Subtask    int
	Checkpoint int64
	Item       []byte // in the sink's own encoding
}

// Prepared lists what sinks have prepared to commit, by operator, subtask and checkpoint.
func (s *Snapshot) Prepared() ([]Prepared, error) {
	var all []Prepared
	for i := range s.Meta.Operators {
		o := &s.Meta.Operators[i]
		by, err := o.Prepared()
		if err != nil {
			return nil, fmt.Errorf("inspect: %s: what operator %s has prepared cannot be decoded: %w", s.URI, o.Title(), err)
		}
		for _, sub := range slices.Sorted(maps.Keys(by)) {
			for _, p := range by[sub] {
				for _, item := range p.Items {
					all = append(all, Prepared{o.Title(), sub, p.Checkpoint, item})
				}
			}
		}
	}
	return all, nil
}
