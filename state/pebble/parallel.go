package pebble

import (
	"context"
	"sync"
	"sync/atomic"
)

// parallel calls do for 0 to n-1, by some workers at a time. The first error ends the others' contexts, and is the one that is returned: what they
// then say is only that they were ended.
func parallel(ctx context.Context, workers, n int, do func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	var next atomic.Int64
	var once sync.Once
	var first error
	for range min(workers, n) {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if err := do(ctx, i); err != nil {
					once.Do(func() { first = err })
					cancel()
					return
				}
			}
		})
	}
	wg.Wait()
	return first
}
