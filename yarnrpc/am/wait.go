package am

import (
	"context"
	"time"
)

// The pause between two questions whether the ResourceManager has stored the end doubles from the first to the second.
const (
	firstFinishPoll = 5 * time.Millisecond
	finishPoll      = 100 * time.Millisecond
)

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
