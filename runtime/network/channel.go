package network

import (
	"fmt"
	"sync"
)

// entry is one element of a channel's queue: a data buffer, or an event.
type entry struct {
	data  []byte
	event *Event
}

// reader is who takes from a Channel: an input channel of a gate in this process, or a stream of a connection.
type reader interface {
	// readable is called with the channel's lock held when its queue stopped being empty. It returns whether wake is to be called once
	// the lock is free.
	readable() bool
	// urgent is called with the channel's lock held when an Urgent event was put in front; wake is called after it in any case.
	urgent()
	wake()
	// failed is called without locks when the channel ended before EndOfPartition.
	failed(*ConnectionError)
}

// Channel is one subpartition at the producer. Buf, Put, Flush and Send belong to the goroutine of the task.
type Channel struct {
	p     *Partition
	index int
	view  *view // set: it reads a spill

	// Of the writer only.
	buf   []byte
	limit int        // Put hands over at this length: BufferSize less room for one more record
	with  []*Channel // of other partitions, which are handed over before this one when it is full

	mu      sync.Mutex
	queue   fifo[entry]
	data    int    // data entries in queue
	reader  reader // nil before attach and after the end
	local   bool   // reader is in this process
	waiting bool   // the writer waits for room in queue
	full    bool   // of a soft partition: data has reached the bound
	excess  int    // of a soft partition: data entries above the bound
	done    bool   // EndOfPartition was taken, or nobody will take it
	err     error  // sticky
}

// Buf returns the current buffer, whose length is what is used. Append whole elements to it and give the result to Put. It is valid
// until the next call on the channel.
func (c *Channel) Buf() []byte {
	if c.buf == nil {
		c.buf = c.p.env.pool.get()
	}
	return c.buf
}

// RecordSizeError is about a record that is too large to be sent to another task.
type RecordSizeError struct{ Bytes, Max int }

func (e *RecordSizeError) Error() string {
	return fmt.Sprintf("a record of %d bytes is too large to go to another task: the largest may have %d bytes (%d MiB); keep what is large in files, and send where it is",
		e.Bytes, e.Max, e.Max>>20)
}

// Fatal tells the task that a restart is no use.
func (e *RecordSizeError) Fatal() bool { return true }

// Put takes buf, which is Buf() extended by one or more whole elements. When the buffer is full it is handed to the consumer, which blocks while the consumer is too far behind. Errors: the cause of the partition's context; *ConnectionError when
// the consumer is gone; *RecordSizeError for a record that is larger than MaxFrame (the buffer is then as before).
func (c *Channel) Put(buf []byte) error {
	if len(buf) >= c.limit {
		return c.putFull(buf)
	}
	c.buf = buf
	return nil
}

func (c *Channel) putFull(buf []byte) error {
	e := c.p.env
	if len(buf) > e.cfg.MaxFrame {
		before := len(c.buf)
		if len(buf)-before > e.cfg.MaxFrame {
			return &RecordSizeError{len(buf) - before, e.cfg.MaxFrame}
		}
		c.buf = buf[:before:before]
		if err := c.Flush(); err != nil {
			return err
		}
		c.buf = buf[before:]
		return c.Flush()
	}
	c.buf = buf
	if cap(buf) > e.cfg.BufferSize && len(buf) < 2*e.cfg.BufferSize {
		// The last record did not fit and append had to move the buffer: leave more room next time.
		c.limit = max(c.limit-(e.cfg.BufferSize-c.limit), e.cfg.BufferSize/4, 1)
	}
	if len(buf) < c.limit {
		return nil
	}
	for _, o := range c.with {
		if err := o.Flush(); err != nil {
			return err
		}
	}
	return c.Flush()
}

// Flush hands the current buffer over, if it holds anything. It blocks as Put does.
func (c *Channel) Flush() error { return c.flush(false) }

func (c *Channel) flush(force bool) error {
	if len(c.buf) == 0 {
		return nil
	}
	return c.handOver(force)
}

// Send flushes and puts ev behind. It blocks as Put does for the flush only.
func (c *Channel) Send(ev Event) error {
	if len(ev.Extra) > maxEventExtra {
		return fmt.Errorf("network: send %s to %s/%d: extra of %d bytes exceeds %d", ev.Kind, c.p.id, c.index, len(ev.Extra), maxEventExtra)
	}
	return c.send(&ev)
}

func (c *Channel) send(ev *Event) error {
	if err := c.flush(c.p.soft != nil); err != nil {
		return err
	}
	if c.p.spill != nil {
		return nil // the ends follow from the content's
	}
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return c.err
	}
	c.pushLocked(entry{event: ev}) // unlocks
	return nil
}

// handOver queues c.buf, waiting for room unless it is forced.
func (c *Channel) handOver(force bool) error {
	p, buf := c.p, c.buf
	if p.spill != nil {
		return p.spill.write(c)
	}
	size := p.env.cfg.BufferSize
	c.mu.Lock()
	for {
		if c.err != nil {
			c.mu.Unlock()
			return c.err
		}
		if c.queue.len() > 0 && len(buf) <= size/2 {
			// Nobody has taken the last buffer yet: fill it up rather than queue crumbs. So frequent flushes cost little under backpressure.
			if t := c.queue.back(); t.data != nil && len(t.data)+len(buf) <= size {
				t.data = append(t.data, buf...)
				c.mu.Unlock()
				p.bytesOut.Add(int64(len(buf)))
				c.buf = buf[:0]
				return nil
			}
		}
		if force || c.data < p.queueLimit(c.local) || p.soft != nil && p.soft.lends() {
			break
		}
		c.waiting = true
		c.mu.Unlock()
		if err := p.wait(); err != nil {
			return err
		}
		c.mu.Lock()
	}
	n := len(buf)
	if c.local && n <= size/8 {
		// A reader that keeps views would keep the whole buffer: give it a copy of the right size.
		c.buf = buf[:0]
		buf = append(make([]byte, 0, n), buf...)
	} else {
		c.buf = nil
	}
	c.data++
	if p.soft != nil {
		c.account()
	}
	c.pushLocked(entry{data: buf})
	p.bytesOut.Add(int64(n))
	return nil
}

// pushLocked appends e, tells the reader, and unlocks.
func (c *Channel) pushLocked(e entry) {
	c.queue.push(e)
	var wake reader
	if c.reader != nil && c.queue.len() == 1 && c.reader.readable() {
		wake = c.reader
	}
	c.mu.Unlock()
	if wake != nil {
		wake.wake()
	}
}

// take removes the first entry. Data needs credit, events do not. backlog is the number of data entries left, more whether any entry is.
func (c *Channel) take(credit bool) (e entry, backlog int, more, ok bool) {
	if c.view != nil {
		return c.takeView(credit)
	}
	c.mu.Lock()
	if c.queue.len() == 0 {
		c.mu.Unlock()
		return entry{}, 0, false, false
	}
	if !credit && c.queue.front().data != nil {
		backlog = c.data
		c.mu.Unlock()
		return entry{}, backlog, true, false
	}
	e = c.queue.pop()
	wake, end, room, left := false, false, false, false
	if e.data != nil {
		c.data--
		wake, c.waiting = c.waiting, false
		if c.p.soft != nil {
			room = c.account()
		}
	} else if left = e.event.Options&MayTurn != 0; e.event.Kind == EndOfPartition {
		end = !c.done
		c.done, c.reader = true, nil
	}
	backlog, more = c.data, c.queue.len() > 0
	c.mu.Unlock()
	if room {
		c.p.soft.Room()
	}
	if left && c.p.soft != nil {
		c.p.soft.Left(e.event.Checkpoint)
	}
	if wake {
		c.p.wakeWriter()
	}
	if end {
		c.p.channelDone()
	}
	return e, backlog, more, true
}

// attach connects the reader, and reports whether to wake it. It fails when the channel has one already,
// or has failed.
func (c *Channel) attach(r reader, local bool) (wake bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return false, c.err
	}
	if c.reader != nil || c.done {
		return false, fmt.Errorf("network: attach to %s/%d: the subpartition was requested before", c.p.id, c.index)
	}
	c.reader, c.local = r, local
	if c.waiting && local {
		c.waiting = false // the bound is wider for a local reader
		c.p.wakeWriter()
	}
	if c.p.soft != nil && c.account() {
		c.p.soft.Room()
	}
	urgent := c.view == nil && urgentAhead(&c.queue) > 0
	if urgent {
		r.urgent()
	}
	return (c.view != nil || c.queue.len() > 0) && r.readable() || urgent, nil
}

// consumerGone ends the channel from the reader's side: what is queued is dropped, and the writer gets err at its next hand-over. Nothing
// happens when r is not the channel's reader any more.
func (c *Channel) consumerGone(r reader, err error) {
	c.mu.Lock()
	if c.reader != r || c.done {
		c.mu.Unlock()
		return
	}
	c.endLocked(err)
	c.mu.Unlock()
	c.over()
}

// producerGone ends the channel from the writer's side.
func (c *Channel) producerGone(err *ConnectionError) {
	c.mu.Lock()
	if c.done {
		c.mu.Unlock()
		return
	}
	r := c.reader
	c.endLocked(err)
	c.mu.Unlock()
	if r != nil {
		r.failed(err)
	}
	c.over()
}

// over follows the end of the channel.
func (c *Channel) over() {
	if c.view != nil {
		c.p.spill.forget(c)
		return
	}
	c.p.wakeWriter()
	c.p.channelDone()
}

func (c *Channel) endLocked(err error) {
	c.done, c.reader, c.err = true, nil, err
	c.queue, c.data, c.waiting = fifo[entry]{}, 0, false
	if c.p.soft != nil && c.account() {
		c.p.soft.Room()
	}
}
