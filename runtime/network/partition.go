package network

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Partition is one output of a task: a channel per consumer. One goroutine, the task, writes; the metrics may be used by any.
type Partition struct {
	env      *Environment
	id       PartitionID
	ctx      context.Context //nolint:containedctx // the partition's life: it ends a blocked Put
	channels []*Channel
	spill    *spill // of a blocking partition
	soft     *soft  // its bounds are soft; nil: the writer blocks at them

	bytesOut atomic.Int64

	blockMu      sync.Mutex // taken only by a writer that blocks, and by readers of the metric
	blocked      int64      // nanoseconds of the blocks that are over
	blockedSince int64      // on the clock of nanos; 0: not blocked

	wake chan struct{} // capacity 1: some channel has room, or failed

	finished bool         // of the writer
	closed   atomic.Bool  // Close was called
	open     atomic.Int32 // channels that are not done
}

// NewPartition registers a partition of the given number of subpartitions (at least one) and serves consumers that wait for it. ctx ends a
// blocked writer with its cause; after Finish it has no effect. Errors: ErrClosed; a partition of this id exists.
func (e *Environment) NewPartition(ctx context.Context, id PartitionID, subpartitions int) (*Partition, error) {
	p, err := e.newPartition(ctx, id, subpartitions)
	if err != nil {
		return nil, err
	}
	return p, e.register(p)
}

// NewSoftPartition is NewPartition with soft bounds (Soft) and barriers that overtake (Overtake, Hasten).
func (e *Environment) NewSoftPartition(ctx context.Context, id PartitionID, subpartitions int, s Soft) (*Partition, error) {
	p, err := e.newPartition(ctx, id, subpartitions)
	if err != nil {
		return nil, err
	}
	p.soft = &soft{Soft: s}
	return p, e.register(p)
}

func (e *Environment) newPartition(ctx context.Context, id PartitionID, subpartitions int) (*Partition, error) {
	if subpartitions < 1 {
		return nil, fmt.Errorf("network: new partition %s: %d subpartitions", id, subpartitions)
	}
	p := &Partition{env: e, id: id, ctx: ctx, wake: make(chan struct{}, 1)}
	limit := max(1, e.cfg.BufferSize-e.cfg.BufferSize/64)
	for i := range subpartitions {
		p.channels = append(p.channels, &Channel{p: p, index: i, limit: limit})
	}
	p.open.Store(int32(subpartitions))
	return p, nil
}

// ID returns the partition's name.
func (p *Partition) ID() PartitionID { return p.id }

// Channels returns the number of subpartitions.
func (p *Partition) Channels() int { return len(p.channels) }

// Channel returns the i-th subpartition.
func (p *Partition) Channel(i int) *Channel { return p.channels[i] }

// Together says that the partitions, all of one task and of as many subpartitions, are the inputs of one consumer: when the buffer of a
// subpartition is full, what the others hold for the same subtask goes before it. So a join sees its inputs in about the order in which
// they were written, and need not keep most of what one side sends for a buffer's time until the other's is full too. Of the writer's goroutine, before it writes.
func Together(parts ...*Partition) {
	for _, p := range parts {
		for i, c := range p.channels {
			for _, o := range parts {
				if o != p {
					c.with = append(c.with, o.channels[i])
				}
			}
		}
	}
}

// Holds reports whether any channel holds something that was not handed over. Of the writer's goroutine.
func (p *Partition) Holds() bool {
	for _, c := range p.channels {
		if len(c.buf) > 0 {
			return true
		}
	}
	return false
}

// FlushAll hands over what the channels hold. It blocks as Channel.Put does.
func (p *Partition) FlushAll() error {
	for _, c := range p.channels {
		if err := c.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// Broadcast sends ev on every channel, behind what that channel holds. It blocks as Channel.Put does, for the flush only.
func (p *Partition) Broadcast(ev Event) error {
	if len(ev.Extra) > maxEventExtra {
		return fmt.Errorf("network: broadcast %s to %s: extra of %d bytes exceeds %d", ev.Kind, p.id, len(ev.Extra), maxEventExtra)
	}
	for _, c := range p.channels {
		if err := c.send(&ev); err != nil {
			return err
		}
	}
	return nil
}

// Finish sends EndOfPartition on every channel, behind what that channel holds; it blocks as Channel.Put does. Consumers can read all of it
// after Close too. A channel whose consumer is gone does not keep the others from their end: it makes Finish return its
// *ConnectionError when they have it. A call after one that returned nil or such an error does nothing.
func (p *Partition) Finish() error {
	if p.finished {
		return nil
	}
	if p.spill != nil {
		return p.spill.finish()
	}
	var first error
	for _, c := range p.channels {
		err := c.send(&Event{Kind: EndOfPartition})
		var gone *ConnectionError
		if err != nil && !errors.As(err, &gone) {
			return err
		}
		if first == nil {
			first = err
		}
	}
	p.finished = true
	return first
}

// Close ends the task's use of the partition. After Finish it stays until every consumer has read to its end (or
// Environment.ReleaseBefore), a blocking one until it is released; without, consumers fail with ProducerGone. A second call does nothing.
// It belongs to the writer's goroutine.
func (p *Partition) Close() {
	if p.closed.Swap(true) {
		return
	}
	if !p.finished {
		p.fail(ErrClosed)
	}
	for _, c := range p.channels {
		if c.buf != nil {
			p.env.pool.put(c.buf)
			c.buf = nil
		}
	}
	if p.open.Load() == 0 {
		p.env.unregister(p)
	}
}

// fail ends all channels that are not done.
func (p *Partition) fail(cause error) {
	if p.spill != nil {
		p.spill.release()
		return
	}
	for _, c := range p.channels {
		c.producerGone(&ConnectionError{Kind: ProducerGone, Peer: "local", Partition: p.id, Subpartition: c.index, Err: cause})
	}
}

func (p *Partition) channelDone() {
	if p.open.Add(-1) == 0 && p.closed.Load() {
		p.env.unregister(p)
	}
}

// BackpressuredNanos returns how long the writer has been blocked so far, in nanoseconds, a block in progress included.
func (p *Partition) BackpressuredNanos() int64 {
	p.blockMu.Lock()
	defer p.blockMu.Unlock()
	if p.blockedSince != 0 {
		return p.blocked + nanos() - p.blockedSince
	}
	return p.blocked
}

// BytesOut returns the bytes of data that were handed over.
func (p *Partition) BytesOut() int64 { return p.bytesOut.Load() }

// queueLimit is how many data buffers may wait in a channel. For a local reader the queue is also what would be under way.
func (p *Partition) queueLimit(local bool) int {
	if local {
		return 2 * p.env.cfg.BuffersPerChannel
	}
	return p.env.cfg.BuffersPerChannel
}

// wait blocks the writer until wakeWriter or the end of the context.
func (p *Partition) wait() error {
	p.blockMu.Lock()
	p.blockedSince = nanos()
	p.blockMu.Unlock()
	var err error
	select {
	case <-p.wake:
	case <-p.ctx.Done():
		err = context.Cause(p.ctx)
	}
	p.blockMu.Lock()
	p.blocked += nanos() - p.blockedSince
	p.blockedSince = 0
	p.blockMu.Unlock()
	return err
}

func (p *Partition) wakeWriter() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

var processStart = time.Now()

// nanos is a monotonic clock, never 0.
func nanos() int64 { return int64(time.Since(processStart)) + 1 }
