package operator

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/state/backend"
	"github.com/thalweg/thalweg/state/canonical"
)

// State that is stored in another way than the program opens it does not end the operator's Open: an empty one is opened instead, which nobody
// gets to use, so that all that does not fit is told at once. Who opens state elsewhere (offline, tests) gets the error itself.

// misfit is stored state that does not fit.
type misfit struct {
	err  error  // attributed to the operator and the subtask
	text string // the same for all subtasks
}

// MisfitError says what of the stored state of the operators of one task, or of several, their program cannot open. No restart can.
type MisfitError struct {
	Misfits []string // each once
	first   error
}

func (e *MisfitError) Error() string {
	if len(e.Misfits) < 2 {
		return e.first.Error()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "the stored state does not fit the program in %d points", len(e.Misfits))
	for i, m := range e.Misfits {
		fmt.Fprintf(&b, "; (%d) %s", i+1, m)
	}
	return b.String()
}

// Unwrap is the first misfit, with the subtask that found it.
func (e *MisfitError) Unwrap() error { return e.first }

// Fatal tells the task that a restart is no use.
func (e *MisfitError) Fatal() bool { return true }

// Add returns an error with the misfits of both, which may be nil.
func (e *MisfitError) Add(more *MisfitError) *MisfitError {
	if e == nil || more == nil {
		return cmp.Or(e, more)
	}
	all := slices.Concat(e.Misfits, more.Misfits)
	slices.Sort(all)
	return &MisfitError{slices.Compact(all), e.first}
}

// misfit is what the operator has found so far, nil for nothing.
func (c *Context) misfit() (all *MisfitError) {
	for _, m := range c.misfits {
		all = all.Add(&MisfitError{[]string{m.text}, m.err})
	}
	return all
}

// refuse notes an error about stored state that does not fit, and returns it.
func (c *Context) refuse(err error) error {
	title, _, _ := strings.Cut(c.Describe(), ", subtask ")
	c.misfits = append(c.misfits, misfit{c.wrap(err), "operator " + title + ": " + err.Error()})
	return err
}

// openState opens keyed state of a name with open, in the operator's backend or, when what is stored there does not fit and the operator is being
// opened, in an empty one.
func (c *Context) openState(kind, name string, open func(b state.Backend) error) error {
	b, err := c.Backend()
	if err != nil {
		return err
	}
	what := fmt.Sprintf("%s %q", kind, name)
	if err = open(b); err == nil {
		return nil
	}
	var fit *canonical.MisfitError
	if !errors.As(err, &fit) || !c.opening {
		return c.restoring(what, err)
	}
	_ = c.refuse(fmt.Errorf("%s: %w", what, lastingError{err}))
	if c.spare == nil {
		if c.spare, err = backend.New(backend.HashMap, state.Config{Range: b.Range(), MaxParallelism: b.MaxParallelism()}); err != nil {
			return err
		}
	}
	return open(c.spare)
}
