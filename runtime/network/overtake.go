package network

import (
	"fmt"
	"sync/atomic"
)

// Soft bounds of a partition let its writer look up from its work instead of blocking in the middle of it: a barrier that overtakes data
// must find the task between two records. A channel that is at its bound is full; the writer is told, ends the record that it is at, and
// goes on when nothing is full (Partition.Full). What it writes until then is overdraft. With the overdraft used up it blocks as a writer
// without soft bounds does.
//
// Source: Flink's availability of outputs (RecordWriter.getAvailableFuture) and overdraft buffers (FLIP-227).
type Soft struct {
	// Overdraft is how many data buffers the partition's channels may hold above their bounds, all together.
	Overdraft int
	// Filled is called on the writer's goroutine when a channel became full.
	Filled func()
	// Room is called, by any goroutine, when the last full channel is no longer full. It must not block.
	Room func()
	// Left is called, by any goroutine, when the barrier of a checkpoint that may turn (MayTurn) has left a channel towards its consumer:
	// once per channel, unless Hasten turned it. It must not block.
	Left func(checkpoint int64)
}

type soft struct {
	Soft
	full      atomic.Int32 // channels that are
	overdrawn atomic.Int32 // data entries above the bounds
}

// lends reports whether a buffer may be queued above the bound.
func (s *soft) lends() bool { return int(s.overdrawn.Load()) < s.Overdraft }

// account follows a change of c.data or of its bound, under c.mu. room reports that no channel is full any more.
func (c *Channel) account() (room bool) {
	s, bound := c.p.soft, c.p.queueLimit(c.local)
	if excess := max(0, c.data-bound); excess != c.excess {
		s.overdrawn.Add(int32(excess - c.excess))
		c.excess = excess
	}
	if full := c.data >= bound; full != c.full {
		c.full = full
		if !full {
			return s.full.Add(-1) == 0
		}
		s.full.Add(1)
		s.Filled()
	}
	return false
}

// Full reports whether a channel is full: the writer should wait for Soft.Room. Always false without soft bounds.
func (p *Partition) Full() bool { return p.soft != nil && p.soft.full.Load() > 0 }

// Backpressured says that the writer waits for room, or has stopped to; for the metric. Of the writer's goroutine.
func (p *Partition) Backpressured(on bool) {
	p.blockMu.Lock()
	switch {
	case on && p.blockedSince == 0:
		p.blockedSince = nanos()
	case !on && p.blockedSince != 0:
		p.blocked += nanos() - p.blockedSince
		p.blockedSince = 0
	}
	p.blockMu.Unlock()
}

// Overtake sends ev, a barrier, on every channel in front of all that waits there, and returns a copy of the data that it overtook, by
// channel: whole elements in order, nil where nothing waited. It never blocks. Of the writer's goroutine; the partition has soft bounds.
// Errors: as Broadcast's.
func (p *Partition) Overtake(ev Event) ([][]byte, error) {
	if len(ev.Extra) > maxEventExtra {
		return nil, fmt.Errorf("network: overtake with %s in %s: extra of %d bytes exceeds %d", ev.Kind, p.id, len(ev.Extra), maxEventExtra)
	}
	ev.Options = ev.Options&^MayTurn | Urgent
	out := make([][]byte, len(p.channels))
	for i, c := range p.channels {
		if err := c.flush(true); err != nil {
			return nil, err
		}
		c.mu.Lock()
		if c.err != nil {
			c.mu.Unlock()
			return nil, c.err
		}
		out[i] = c.dataBefore(c.queue.len())
		c.putFirst(&ev) // unlocks
	}
	return out, nil
}

// Hasten turns the barrier of a checkpoint that may turn (MayTurn) into an Urgent one wherever it still waits, and returns a copy of the
// data that it overtook there, by channel. Of the writer's goroutine.
func (p *Partition) Hasten(checkpoint int64) [][]byte {
	out := make([][]byte, len(p.channels))
	for i, c := range p.channels {
		c.mu.Lock()
		at := c.queue.find(func(e *entry) bool { return e.event.turnable(checkpoint) })
		if at < 0 {
			c.mu.Unlock()
			continue
		}
		out[i] = c.dataBefore(at)
		c.putFirst(c.queue.remove(at).event.turned()) // unlocks
	}
	return out
}

// dataBefore copies the data of the first n entries.
func (c *Channel) dataBefore(n int) []byte {
	var out []byte
	for i := range n {
		out = append(out, c.queue.at(i).data...)
	}
	return out
}

// putFirst queues an Urgent event behind others of its sort that wait already, tells the reader, and unlocks c.mu.
func (c *Channel) putFirst(ev *Event) {
	c.queue.insert(urgentAhead(&c.queue), entry{event: ev})
	r := c.reader
	if r != nil {
		r.urgent()
	}
	c.mu.Unlock()
	if r != nil {
		r.wake()
	}
}

// urgentAhead counts the Urgent events at the front of a queue.
func urgentAhead(q *fifo[entry]) (n int) {
	for n < q.len() && q.at(n).event != nil && q.at(n).event.urgent() {
		n++
	}
	return n
}

// takeUrgent removes the first entry if it is an Urgent event. more reports whether anything is left.
func (c *Channel) takeUrgent() (ev *Event, more bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if urgentAhead(&c.queue) > 0 {
		ev = c.queue.pop().event
	}
	return ev, c.queue.len() > 0
}

// urgent implements reader for a local channel.
func (ch *inputChannel) urgent() {
	g := ch.gate
	g.mu.Lock()
	g.urgent.push(ch)
	g.idle = false
	g.mu.Unlock()
}

// urgent implements reader.
func (st *stream) urgent() {
	st.conn.mu.Lock()
	st.readyLocked()
	st.conn.mu.Unlock()
}

// overtake puts an Urgent event, which came behind the first n entries of the queue, in front of them. g.mu is held.
func (ch *inputChannel) overtake(ev *Event, n int) {
	at := urgentAhead(&ch.queue)
	for i := at; i < n; i++ {
		if ch.queue.at(i).data != nil {
			ev.overtook++
		}
	}
	ch.queue.insert(at, entry{event: ev})
	ch.gate.urgent.push(ch)
}

// PollUrgent returns the next Urgent event, if there is one; see Poll.
func (g *Gate) PollUrgent() (item Item, ok bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err != nil {
		return Item{}, false, g.err
	}
	item, ok = g.pollUrgentLocked()
	return item, ok, nil
}

// pollUrgentLocked is called with g.mu held, which is free while the queue of a local channel is used.
func (g *Gate) pollUrgentLocked() (Item, bool) {
	for g.urgent.len() > 0 {
		ch := g.urgent.pop()
		item := Item{Channel: ch.index}
		for _, r := range g.restored {
			if r.Channel == ch.index {
				item.Overtaken = append(item.Overtaken, r)
			}
		}
		var more bool
		if ch.local != nil {
			g.mu.Unlock()
			var ev *Event
			ev, more = ch.local.takeUrgent()
			g.mu.Lock()
			if ev == nil {
				continue // Poll has taken it
			}
			item.Event = *ev
		} else {
			if urgentAhead(&ch.queue) == 0 {
				continue
			}
			item.Event = *ch.queue.pop().event
			for i := 0; item.Event.overtook > 0; i++ {
				if d := ch.queue.at(i).data; d != nil {
					item.Overtaken = append(item.Overtaken, Item{Channel: ch.index, Data: d})
					item.Event.overtook--
				}
			}
			more = ch.queue.len() > 0
		}
		if more && ch != g.again {
			g.readyLocked(ch)
		}
		return item, true
	}
	return Item{}, false
}

// Hasten turns the barrier of a checkpoint that may turn (MayTurn) into an Urgent one in every channel of another process in which it has
// arrived and was not polled. In those of this process the producer does it.
func (g *Gate) Hasten(checkpoint int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, ch := range g.channels {
		if at := ch.queue.find(func(e *entry) bool { return e.event.turnable(checkpoint) }); at >= 0 {
			ch.overtake(ch.queue.remove(at).event.turned(), at)
		}
	}
}
