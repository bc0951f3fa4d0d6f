package network

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
)

// Source says where one channel of a gate comes from.
type Source struct {
	Partition    PartitionID
	Subpartition int
	// Address is the data address of the producer's worker; empty or the own one means this process.
	Address string
}

// Item is one data buffer or one event of a channel. Exactly one of Data and Event.Kind is set.
type Item struct {
	Channel int
	// Data holds whole elements. It may be read until Release, and for ever when the gate does not recycle.
	Data  []byte
	Event Event
	// Overtaken is, of an Urgent event, the data in front of which the gate put it, in order: Poll returns it again later. What waited at
	// a producer is not in it (Partition.Overtake), hence nothing of a channel of this process but what was restored.
	Overtaken []Item
	// Restored is the place of the data in GateOptions.Restored, from 1; 0: it came from the producer.
	Restored int
}

// Restored is data that was under way in a channel when a checkpoint was taken.
type Restored struct {
	Channel int
	Data    []byte // whole elements, at least one
}

// GateOptions are the optional parts of a gate.
type GateOptions struct {
	// Restored is polled before all else, in its order; barriers that are not Urgent wait for all of it.
	Restored []Restored
	// Attention is called, by any goroutine, when an Urgent event has arrived, which Poll and PollUrgent return before all else. It must
	// not block.
	Attention func()
	// Announce is called, by any goroutine, when a barrier that may turn (MayTurn) has arrived from another process. It must not block.
	Announce func(Event)
}

// Gate is one input of a task. Poll, Release, Block, Unblock, SetRecycle and Close belong to the goroutine of the task; the metrics may be
// read by any.
type Gate struct {
	env      *Environment
	notify   func()
	stop     func() bool // ends the watch on the context
	channels []*inputChannel
	recycle  atomic.Bool
	bytesIn  atomic.Int64

	again *inputChannel // of the task: has more, goes to the end of ready at the next Poll

	opts     GateOptions
	restored []Item // of the task: what is left of opts.Restored

	mu       sync.Mutex
	urgent   fifo[*inputChannel] // those with an Urgent event in front; one is there once per event
	ready    fifo[*inputChannel]
	idle     bool // Poll returned nothing since the last notify
	floating int  // credits that may be lent to channels with a backlog
	err      error
	closed   bool
}

// inputChannel is the consumer's end of a channel. It reads a Channel of this process, or has a queue that a connection fills.
type inputChannel struct {
	gate   *Gate
	index  int
	source Source
	remote bool

	// All below is guarded by gate.mu.
	inReady bool // is in gate.ready
	blocked bool // by Block
	parked  bool // became ready while blocked
	ended   bool // EndOfPartition was received

	local *Channel

	conn    *clientConn
	connID  uint32
	queue   fifo[entry]
	granted int // credits that the producer may still use, those in owed included
	owed    int // credits to send back
	extra   int // floating credits in this channel's hands
	backlog int // data buffers that waited at the producer when it sent last
}

// NewGate requests the sources and returns at once; a producer that is not there yet is waited for in the background, and failures come out of
// Poll. notify is called, from any goroutine, when Poll may return something after it returned nothing; it must not block. The end of
// ctx closes the gate with its cause. The caller must Close the gate. Errors: ErrClosed.
func (e *Environment) NewGate(ctx context.Context, sources []Source, notify func()) (*Gate, error) {
	return e.NewGateWith(ctx, sources, notify, GateOptions{})
}

// NewGateWith is NewGate with options.
func (e *Environment) NewGateWith(ctx context.Context, sources []Source, notify func(), opts GateOptions) (*Gate, error) {
	g := &Gate{env: e, notify: notify, floating: e.cfg.FloatingPerGate, opts: opts}
	for i, r := range opts.Restored {
		g.restored = append(g.restored, Item{Channel: r.Channel, Data: r.Data, Restored: i + 1})
	}
	for i, s := range sources {
		g.channels = append(g.channels, &inputChannel{gate: g, index: i, source: s, remote: !e.isLocal(s.Address)})
	}
	if err := e.addGate(g); err != nil {
		return nil, fmt.Errorf("network: new gate: %w", err)
	}
	for _, ch := range g.channels {
		if err := e.connect(ch); err != nil {
			g.Close()
			return nil, err
		}
	}
	stop := context.AfterFunc(ctx, func() { g.end(context.Cause(ctx)) })
	g.mu.Lock()
	g.stop = stop
	g.mu.Unlock()
	return g, nil
}

// Poll returns the next item, fairly over the channels that have one and are not blocked; ok is false when there is none now. It never
// blocks. Each data item must be given back by Release. Errors, which are final: *ConnectionError when a channel failed; the cause of
// the gate's context; ErrClosed.
func (g *Gate) Poll() (item Item, ok bool, err error) {
	g.mu.Lock()
	if g.again != nil {
		g.readyLocked(g.again)
		g.again = nil
	}
	if g.err == nil && (g.urgent.len() > 0 || len(g.restored) > 0) {
		if item, ok = g.pollUrgentLocked(); !ok && len(g.restored) > 0 {
			item, ok = g.restored[0], true
			g.restored[0] = Item{}
			g.restored = g.restored[1:]
		}
		if ok {
			g.mu.Unlock()
			return item, true, nil
		}
	}
	for {
		if g.err != nil {
			g.mu.Unlock()
			return Item{}, false, g.err
		}
		if g.ready.len() == 0 {
			g.idle = true
			g.mu.Unlock()
			return Item{}, false, nil
		}
		ch := g.ready.pop()
		ch.inReady = false
		if ch.blocked {
			ch.parked = true
			continue
		}
		if ch.local == nil {
			if ch.queue.len() == 0 {
				continue
			}
			en := ch.queue.pop()
			if ch.queue.len() > 0 {
				g.readyLocked(ch)
			}
			g.mu.Unlock()
			return g.item(ch, en), true, nil
		}
		g.mu.Unlock()
		en, _, more, ok := ch.local.take(true)
		if ok {
			if more {
				g.again = ch
			}
			if en.data != nil {
				g.bytesIn.Add(int64(len(en.data)))
			} else if en.event.Kind == EndOfPartition {
				g.mu.Lock()
				ch.ended = true
				g.mu.Unlock()
			}
			return g.item(ch, en), true, nil
		}
		g.mu.Lock()
	}
}

func (g *Gate) item(ch *inputChannel, en entry) Item {
	if en.data != nil {
		return Item{Channel: ch.index, Data: en.data}
	}
	return Item{Channel: ch.index, Event: *en.event}
}

// Release gives a data item back: its credit, and its memory when the gate recycles, so that Data must not be used any more. It must be
// called once per data item, in any order; for an event it does nothing.
func (g *Gate) Release(item Item) {
	if item.Data == nil || item.Restored > 0 {
		return
	}
	ch := g.channels[item.Channel]
	if g.recycle.Load() {
		g.env.pool.put(item.Data)
	}
	if !ch.remote {
		return // the room in the queue was given back by Poll
	}
	g.mu.Lock()
	conn, id := ch.conn, ch.connID
	if ch.ended || g.closed {
		g.mu.Unlock()
		return
	}
	if ch.extra > 0 && ch.backlog == 0 {
		ch.extra--
		g.floating++
	} else {
		ch.owed++
		ch.granted++
	}
	n := 0
	if ch.owed*2 >= g.env.cfg.BuffersPerChannel+ch.extra {
		n, ch.owed = ch.owed, 0
	}
	g.mu.Unlock()
	if n > 0 {
		conn.credit(id, n)
	}
}

// Block keeps the channel's items out of Poll until Unblock; they stay queued and hold their credit.
func (g *Gate) Block(channel int) {
	g.mu.Lock()
	g.channels[channel].blocked = true
	g.mu.Unlock()
}

// Unblock ends Block.
func (g *Gate) Unblock(channel int) {
	g.mu.Lock()
	ch := g.channels[channel]
	ch.blocked = false
	if ch.parked {
		ch.parked = false
		g.readyLocked(ch)
	}
	g.mu.Unlock()
}

// SetRecycle says whether released buffers are used again. False, the default, when decoded values may be views into the buffers, which are
// then left to the garbage collector.
func (g *Gate) SetRecycle(on bool) { g.recycle.Store(on) }

// Channels returns the number of channels.
func (g *Gate) Channels() int { return len(g.channels) }

// Queued returns how many items wait, those of blocked channels included.
func (g *Gate) Queued() int {
	g.mu.Lock()
	n := len(g.restored)
	var local []*Channel
	for _, ch := range g.channels {
		n += ch.queue.len()
		if ch.local != nil && !ch.ended {
			local = append(local, ch.local)
		}
	}
	g.mu.Unlock()
	for _, c := range local {
		c.mu.Lock()
		n += c.queue.len()
		c.mu.Unlock()
	}
	return n
}

// BytesIn returns the bytes of data that arrived from other processes or were taken from this one.
func (g *Gate) BytesIn() int64 { return g.bytesIn.Load() }

// Close ends the gate. Producers whose channels were not read to EndOfPartition get a *ConnectionError of kind ConsumerGone. It may be called
// from any goroutine, more than once.
func (g *Gate) Close() { g.end(ErrClosed) }

// end closes the gate; later polls return err unless the gate failed before.
func (g *Gate) end(err error) {
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return
	}
	g.closed = true
	stop := g.stop
	wake := g.failLocked(err)
	g.mu.Unlock()
	if stop != nil {
		stop()
	}
	for _, ch := range g.channels {
		g.env.disconnect(ch)
	}
	g.env.removeGate(g)
	if wake {
		g.notify()
	}
}

func (g *Gate) failLocked(err error) (wake bool) {
	if g.err == nil {
		g.err = err
	}
	wake, g.idle = g.idle, false
	return wake
}

func (g *Gate) readyLocked(ch *inputChannel) {
	if !ch.inReady {
		ch.inReady = true
		g.ready.push(ch)
	}
}

// readable implements reader for a local channel.
func (ch *inputChannel) readable() bool {
	g := ch.gate
	g.mu.Lock()
	g.readyLocked(ch)
	wake := g.idle && !ch.blocked
	if wake {
		g.idle = false
	}
	g.mu.Unlock()
	return wake
}

func (ch *inputChannel) wake() {
	g := ch.gate
	if g.opts.Attention != nil {
		g.mu.Lock()
		urgent := g.urgent.len() > 0
		g.mu.Unlock()
		if urgent {
			g.opts.Attention()
		}
	}
	g.notify()
}

// failed implements reader; connections use it too.
func (ch *inputChannel) failed(err *ConnectionError) {
	g := ch.gate
	g.mu.Lock()
	if ch.ended {
		g.mu.Unlock()
		return
	}
	wake := g.failLocked(err)
	g.mu.Unlock()
	if wake {
		g.notify()
	}
}
