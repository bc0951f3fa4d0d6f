package faults

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// rawReader notes when records arrive in a topic, committed or not.
type rawReader struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup
	mu     sync.Mutex
	at     []time.Time
}

func (w *rawReader) start(ctx context.Context, brokers, topic string) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers), kgo.ConsumeTopics(topic), kgo.FetchMaxWait(50*time.Millisecond), kgo.MetadataMinAge(100*time.Millisecond))
	if err != nil {
		return fmt.Errorf("faults: reader: %w", err)
	}
	ctx, w.cancel = context.WithCancel(ctx)
	w.wg.Go(func() {
		defer cl.Close()
		for ctx.Err() == nil {
			f := cl.PollFetches(ctx)
			if f.NumRecords() > 0 {
				w.mu.Lock()
				w.at = append(w.at, time.Now())
				w.mu.Unlock()
			}
		}
	})
	return nil
}

func (w *rawReader) stop() {
	w.cancel()
	w.wg.Wait()
}

func (w *rawReader) last() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.at) == 0 {
		return time.Time{}
	}
	return w.at[len(w.at)-1]
}

func (w *rawReader) firstAfter(t time.Time) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	i, _ := slices.BinarySearchFunc(w.at, t, func(a, b time.Time) int { return a.Compare(b) })
	if i == len(w.at) {
		return time.Now()
	}
	return w.at[i]
}

// seconds counts the whole seconds between two times, and those of them in which a record came.
func (w *rawReader) seconds(from, to time.Time) (with, all int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	all = int(to.Sub(from) / time.Second)
	last := -1
	for _, at := range w.at {
		if n := int(at.Sub(from) / time.Second); !at.Before(from) && n < all && n != last {
			with, last = with+1, n
		}
	}
	return with, all
}
