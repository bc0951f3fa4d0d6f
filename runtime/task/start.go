package task

import (
	"context"
	"sync"

	"github.com/thalweg/thalweg/runtime/operator"
)

// Start is where tasks that are deployed together with state wait for each other, when they have opened it: none of them processes anything
// before all have, and when stored state does not fit the program, all that does not is told at once. Where slots are shared, each worker has a
// subtask of every vertex, so what one worker knows is all there is to know.
type Start struct {
	mu      sync.Mutex
	missing int
	misfit  *operator.MisfitError
	all     chan struct{}
}

// NewStart returns the start of n tasks.
func NewStart(n int) *Start { return &Start{missing: n, all: make(chan struct{})} }

// Arrive says that one of the tasks has opened its state, or that it never will. A nil Start knows no others.
func (s *Start) Arrive(misfit *operator.MisfitError) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.misfit = s.misfit.Add(misfit)
	if s.missing--; s.missing == 0 {
		close(s.all)
	}
}

// wait waits for the others after Arrive, and returns what of anybody's state does not fit. A task whose own fits waits for its end then.
func (s *Start) wait(ctx context.Context, own *operator.MisfitError) error {
	if s == nil {
		if own != nil {
			return own
		}
		return nil
	}
	select {
	case <-s.all:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	switch {
	case s.misfit == nil:
		return nil
	case own != nil:
		return own.Add(s.misfit)
	}
	<-ctx.Done()
	return context.Cause(ctx)
}
