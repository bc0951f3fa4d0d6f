package pebble

import (
	"context"
	"errors"
	"testing"
)

// A file that is missing or damaged is what a restore fails with, not that the other downloads were ended for it: the client takes that for an
// interrupt of its own.
func TestFirstErrorIsTold(t *testing.T) {
	damaged := errors.New("damaged")
	err := parallel(t.Context(), 4, 100, func(ctx context.Context, i int) error {
		if i == 3 {
			return damaged
		}
		<-ctx.Done()
		return ctx.Err()
	})
	if !errors.Is(err, damaged) || errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
