package savepoint

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/state/canonical"
)

// CheckBackend checks that the keyed state of g's operators is in a form that the state backend of this kind (state.backend.type) reads:
// the canonical one, or its own, which is named after it. Errors: *MisfitError.
func CheckBackend(cp metadata.Checkpoint, g graph.JobGraph, kind string) error {
	foreign := map[string][]string{} // operators by form
	for i := range g.Vertices {
		for k := range g.Vertices[i].Operators {
			op := &g.Vertices[i].Operators[k]
			o := cp.Operator(op.ID)
			if o == nil || !op.Keyed {
				continue
			}
			for _, s := range o.Subtasks {
				for _, h := range s.Keyed {
					if f := h.Format; f != canonical.Format && f != kind && !slices.Contains(foreign[f], title(op)) {
						foreign[f] = append(foreign[f], title(op))
					}
				}
			}
		}
	}
	var misfits []string
	for _, f := range slices.Sorted(maps.Keys(foreign)) {
		misfits = append(misfits, fmt.Sprintf("the keyed state of operator %s is in the native form of state backend %q, which %q does not read; set state.backend.type to %s, "+
			"or let the job that wrote it take a savepoint in canonical form, which every backend reads", strings.Join(foreign[f], ", "), f, kind, f))
	}
	if len(misfits) == 0 {
		return nil
	}
	return &MisfitError{Misfits: misfits}
}
