package eos

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Watcher reads the output with read_committed while the job runs, and samples the group's offsets.
type Watcher struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup
	mu     sync.Mutex
	events []Event
	err    error
}

// Watch starts a watcher on a topic; group may be empty, else its offsets in input are sampled each 100 ms.
func (c Cluster) Watch(ctx context.Context, output, input, group string) (*Watcher, error) {
	cl, err := c.client(kgo.ConsumeTopics(output), kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()), kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxWait(100*time.Millisecond), kgo.MetadataMinAge(100*time.Millisecond))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	w := &Watcher{cancel: cancel}
	w.wg.Go(func() {
		defer cl.Close()
		for {
			fs := cl.PollFetches(ctx)
			if ctx.Err() != nil {
				return
			}
			now := time.Now().UTC()
			w.mu.Lock()
			for _, e := range fs.Errors() {
				if !kerr.IsRetriable(e.Err) && !kgo.IsRetryableBrokerErr(e.Err) && !errors.Is(e.Err, kerr.UnknownTopicOrPartition) {
					w.err = errors.Join(w.err, fmt.Errorf("eos: watch %s-%d: %w", e.Topic, e.Partition, e.Err))
				}
			}
			fs.EachRecord(func(r *kgo.Record) {
				w.events = append(w.events, Event{Kind: KindLive, At: now, Partition: r.Partition, Offset: r.Offset, Key: string(r.Key), Value: string(r.Value)})
			})
			w.mu.Unlock()
		}
	})
	if group == "" {
		return w, nil
	}
	acl, err := c.client()
	if err != nil {
		w.Stop()
		return nil, err
	}
	w.wg.Go(func() {
		defer acl.Close()
		adm := kadm.NewClient(acl)
		last := map[int32]int64{}
		for sleepUntil(ctx, time.Now().Add(100*time.Millisecond)) == nil {
			os, err := adm.FetchOffsets(ctx, group)
			if err != nil {
				continue // brokers may be down on purpose
			}
			now := time.Now().UTC()
			os.Each(func(r kadm.OffsetResponse) {
				if r.Topic != input || r.At < 0 || last[r.Partition] == r.At {
					return
				}
				last[r.Partition] = r.At
				w.mu.Lock()
				w.events = append(w.events, Event{Kind: KindGroup, At: now, Partition: r.Partition, Offset: r.At})
				w.mu.Unlock()
			})
		}
	})
	return w, nil
}

// Count is the number of records seen so far.
func (w *Watcher) Count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for i := range w.events {
		if w.events[i].Kind == KindLive {
			n++
		}
	}
	return n
}

// WaitFor waits until n records were seen.
func (w *Watcher) WaitFor(ctx context.Context, n int) error {
	for w.Count() < n {
		if err := sleepUntil(ctx, time.Now().Add(10*time.Millisecond)); err != nil {
			return fmt.Errorf("eos: watched %d of %d records: %w", w.Count(), n, err)
		}
	}
	return nil
}

// Seen calls fn for the records seen from a position on and returns the next position; for progress and latency measurements.
func (w *Watcher) Seen(from int, fn func(Event)) int {
	w.mu.Lock()
	evs := w.events[from:len(w.events):len(w.events)]
	w.mu.Unlock()
	for _, e := range evs {
		fn(e)
	}
	return from + len(evs)
}

// Stop ends the watcher and returns what it saw.
func (w *Watcher) Stop() ([]Event, error) {
	w.cancel()
	w.wg.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.events, w.err
}
