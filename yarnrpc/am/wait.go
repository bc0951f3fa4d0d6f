package am

import (
	"context"
	"time"
)

// finishPoll is the pause between two questions whether the ResourceManager has stored the end. Source: AMRMClientImpl.
const finishPoll = 100 * time.Millisecond

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
