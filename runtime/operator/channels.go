package operator

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"

	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/network"
	"github.com/thalweg/thalweg/state"
)

// The parts of writers and readers (exchange.go) that do not know the type of records.

// outlet is the part of a writer that the type of records does not matter for: the channels of a partition.
type outlet struct {
	part      *network.Partition
	channels  []*network.Channel
	flushEach bool
	records   int64
	owner     *Context // whose records they are, for errors; nil when it is not known
}

// Owned tells a writer (Type.Writer) whose records it writes.
func Owned(writer any, c *Context) {
	if o, ok := writer.(interface{ ownedBy(c *Context) }); ok {
		o.ownedBy(c)
	}
}

func (o *outlet) ownedBy(c *Context) { o.owner = c }

// encodes implements encoder.
func (o *outlet) encodes() bool { return true }

func newOutlet(part *network.Partition, n int, flushEach bool) outlet {
	o := outlet{flushEach: flushEach, part: part}
	for i := range n {
		o.channels = append(o.channels, part.Channel(i))
	}
	return o
}

// Records is how many records were written; the task's goroutine reads it.
func (o *outlet) Records() int64 { return o.records }

func (o *outlet) done(c *network.Channel, buf []byte) error {
	if err := c.Put(buf); err != nil {
		return o.attribute(err)
	}
	if o.flushEach {
		return c.Flush()
	}
	return nil
}

// attribute says whose record it is that cannot be sent. It is the producer's, whatever code is at work.
func (o *outlet) attribute(err error) error {
	var size *network.RecordSizeError
	if o.owner == nil || !errors.As(err, &size) {
		return err
	}
	return &UserError{Operator: o.owner.Describe(), Err: err}
}

func (o *outlet) all(b ...byte) error {
	for _, c := range o.channels {
		if err := o.done(c, append(c.Buf(), b...)); err != nil {
			return err
		}
	}
	return nil
}

func (o *outlet) Watermark(ts int64) error {
	var b [9]byte
	b[0] = tagWatermark
	binary.LittleEndian.PutUint64(b[1:], uint64(ts))
	return o.all(b[:]...)
}

func (o *outlet) Idle(idle bool) error {
	if idle {
		return o.all(tagIdle)
	}
	return o.all(tagActive)
}

// dealer is an outlet that chooses the channels of records, whatever is in them.
type dealer struct {
	outlet
	deal uint8
	next int
	site string // of dealCustom: file:line of the user's call
}

const (
	dealOne    uint8 = iota // to the channel next
	dealTurn                // in turn, beginning with next
	dealRandom              // to a random one
	dealCustom              // to that of the writer's partitioner
	dealAll                 // to each
)

func newDealer(o outlet, p graph.Partitioner, subtask int) (dealer, error) {
	n := len(o.channels)
	switch p {
	case graph.Broadcast:
		return dealer{outlet: o, deal: dealAll}, nil
	case graph.Forward, graph.Global: // forward: one channel, the consumer subtask of the same index
		return dealer{outlet: o, deal: dealOne}, nil
	case graph.Rebalance, graph.Rescale:
		switch {
		case n == 1:
			return dealer{outlet: o, deal: dealOne}, nil
		case p == graph.Rebalance:
			return dealer{outlet: o, deal: dealTurn, next: subtask % n}, nil
		}
		return dealer{outlet: o, deal: dealTurn}, nil
	case graph.Shuffle:
		return dealer{outlet: o, deal: dealRandom}, nil
	}
	return dealer{}, fmt.Errorf("operator: compose: unknown partitioner %q", p)
}

// channel is that of the next record, of dealTurn and dealRandom.
func (d *dealer) channel() *network.Channel {
	i := d.next
	if d.deal == dealTurn {
		if d.next++; d.next == len(d.channels) {
			d.next = 0
		}
	} else {
		i = rand.IntN(len(d.channels))
	}
	return d.channels[i]
}

func (d *dealer) chosen(i int) (*network.Channel, error) {
	if i < 0 || i >= len(d.channels) {
		return nil, fmt.Errorf("PartitionCustom at %s: the partition function returned subtask %d; there are 0 to %d", d.site, i, len(d.channels)-1)
	}
	return d.channels[i], nil
}

// head begins a record in a channel.
func (o *outlet) head(c *network.Channel, ts int64) []byte {
	o.records++
	buf := c.Buf()
	if ts == NoTimestamp {
		return append(buf, 0)
	}
	buf = append(buf, tagTime)
	return binary.LittleEndian.AppendUint64(buf, uint64(ts))
}

// router is an outlet that sends records where their key groups are.
type router struct {
	outlet
	max   int
	route []uint16
}

func newRouter(o outlet, maxParallelism int) router {
	r := router{outlet: o, max: maxParallelism, route: make([]uint16, maxParallelism)}
	for g := range r.route {
		r.route[g] = uint16(state.SubtaskOf(maxParallelism, len(o.channels), uint16(g)))
	}
	return r
}

// keyed begins a record in the channel of its key.
func (w *router) keyed(h uint32, ts int64) (*network.Channel, []byte) {
	w.records++
	c := w.channels[w.route[state.GroupOf(h, w.max)]]
	buf := c.Buf()
	if ts != NoTimestamp {
		buf = append(buf, tagTime|tagHash)
		buf = binary.LittleEndian.AppendUint64(buf, uint64(ts))
	} else {
		buf = append(buf, tagHash)
	}
	return c, binary.LittleEndian.AppendUint32(buf, h)
}

// inlet is the part of a reader that the type of records does not matter for.
type inlet struct {
	next    advancer
	valve   *Valve
	records int64
	stop    *atomic.Bool
}

// never is for readers that nobody interrupts.
var never atomic.Bool

func newInlet(next advancer, channels int) inlet {
	return inlet{next: next, valve: NewValve(channels), stop: &never}
}

// Interrupt implements Reader.
func (r *inlet) Interrupt(stop *atomic.Bool) { r.stop = stop }

func (r *inlet) Records() int64   { return r.records }
func (r *inlet) Watermark() int64 { return r.valve.Output() }

func (r *inlet) End(channel int) error { return r.watermark(channel, MaxWatermark) }

func (r *inlet) watermark(channel int, ts int64) error {
	if out, ok := r.valve.OnWatermark(channel, ts); ok {
		return r.next.Watermark(out)
	}
	return nil
}

var (
	errShortTime = fmt.Errorf("%w: time cut short", ErrCorrupt)
	errShortHash = fmt.Errorf("%w: hash cut short", ErrCorrupt)
)

func (r *inlet) event(channel int, tag byte, b []byte) ([]byte, error) {
	switch tag {
	case tagWatermark:
		if len(b) < 8 {
			return nil, fmt.Errorf("%w: watermark cut short", ErrCorrupt)
		}
		return b[8:], r.watermark(channel, int64(binary.LittleEndian.Uint64(b)))
	case tagIdle, tagActive:
		out, advanced, idle, changed := r.valve.OnIdle(channel, tag == tagIdle)
		if advanced {
			if err := r.next.Watermark(out); err != nil {
				return nil, err
			}
		}
		if changed {
			return b, r.next.Idle(idle)
		}
		return b, nil
	}
	return nil, fmt.Errorf("%w: unknown tag %#x", ErrCorrupt, tag)
}
