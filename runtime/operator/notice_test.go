package operator

import (
	"slices"
	"testing"

	"github.com/thalweg/thalweg/state"
)

// told is a backend that is told what is complete.
type told struct {
	state.Backend
	ids []int64
}

func (b *told) CheckpointCompleted(id int64) { b.ids = append(b.ids, id) }

type still struct{ Base }

func (still) Input(int) any { return nil }

// A barrier can come before the notice that the latest checkpoint is complete, and then files of the one before may be gone: the barrier says
// which it is.
func TestBarrierTellsWhichCheckpointIsComplete(t *testing.T) {
	b := &told{}
	c := &Context{keyed: b}
	for _, base := range []int64{0, 7} {
		if _, err := Take(still{}, c, Barrier{ID: 9, Base: base}); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(b.ids, []int64{7}) {
		t.Errorf("told of %v, want 7 alone", b.ids)
	}
	if _, err := Take(still{}, &Context{}, Barrier{ID: 9, Base: 7}); err != nil { // without keyed state
		t.Fatal(err)
	}
}
