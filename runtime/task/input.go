package task

import (
	"errors"
	"fmt"
	"time"

	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/runtime/network"
	"github.com/thalweg/thalweg/runtime/operator"
)

// input feeds the head of the chain.
type input interface {
	// step processes one batch; progress is false when there was nothing.
	step() (progress bool, err error)
	available() <-chan struct{} // nil blocks for ever
	records() int64
	watermark() int64
	bytesIn() int64
	close()
}

// sourceInput polls a source.
type sourceInput struct {
	t    *Task
	s    operator.SourceHead
	pace pace
}

func newSourceInput(t *Task, s operator.SourceHead) *sourceInput {
	i := &sourceInput{t: t, s: s, pace: pace{max: batch, now: batch}}
	if t.unaligned != nil {
		i.pace.now = 1
	}
	return i
}

func (i *sourceInput) step() (bool, error) {
	t := i.t
	if t.endOfData || t.suspended {
		return false, nil
	}
	start := i.begin()
	st, err := i.s.Poll(i.pace.now)
	if err != nil {
		return false, err
	}
	i.end(start)
	switch st {
	case connector.EndOfInput:
		return true, t.reachEnd()
	case connector.NothingAvailable:
		return false, nil
	}
	return true, nil
}

func (i *sourceInput) available() <-chan struct{} {
	if i.t.endOfData || i.t.suspended {
		return nil
	}
	return i.s.Available()
}

func (i *sourceInput) records() int64   { return i.s.Records() }
func (i *sourceInput) watermark() int64 { return i.s.Watermark() }
func (i *sourceInput) bytesIn() int64   { return 0 }
func (i *sourceInput) close()           {}

// gateInput reads network inputs: one reader per input of the head operator, each over the channels of one or more gates.
type gateInput struct {
	t        *Task
	gates    []*gate
	readers  []operator.Reader
	turn     int
	channels int // all
	ended    int // channels at end of data
	early    int // channels, not at end of data, that others wait for
	atEnd    func() error
	held     held
}

// held is a buffer that was read in part, since the task had to look up from it.
type held struct {
	g    *gate // nil: none
	item network.Item
	rest []byte
}

// gate is one vertex input.
type gate struct {
	g      *network.Gate
	index  int // of the vertex's inputs
	reader operator.Reader
	base   int // first channel in the reader
	first  int // first channel in the task's alignment
	early  bool
	late   bool // in BATCH, waits for the early ones
}

func (i *gateInput) step() (bool, error) {
	if i.t.unaligned != nil {
		if any, err := i.urgent(); any || err != nil {
			return true, err
		}
	}
	if i.held.g != nil {
		return true, i.read(i.held.g, i.held.item, i.held.rest)
	}
	for range i.gates {
		g := i.gates[i.turn]
		if i.turn++; i.turn == len(i.gates) {
			i.turn = 0
		}
		if g.late && i.early > 0 {
			continue
		}
		item, ok, err := g.g.Poll()
		if err != nil {
			return false, err
		}
		if !ok {
			continue
		}
		if item.Data != nil {
			i.t.unaligned.record(g, item)
			return true, i.read(g, item, item.Data)
		}
		return true, i.event(g, item)
	}
	return false, nil
}

// urgent takes the events that have overtaken what waits.
func (i *gateInput) urgent() (any bool, err error) {
	for _, g := range i.gates {
		for {
			item, ok, err := g.g.PollUrgent()
			if err != nil || !ok {
				if err != nil {
					return any, err
				}
				break
			}
			any = true
			if err := i.event(g, item); err != nil {
				return any, err
			}
		}
	}
	return any, nil
}

// read gives data, the item's or what is left of it, to the reader.
func (i *gateInput) read(g *gate, item network.Item, data []byte) error {
	rest, err := g.reader.Read(g.base+item.Channel, data)
	if err == nil && len(rest) > 0 {
		i.held = held{g, item, rest}
		return nil
	}
	i.held = held{}
	g.g.Release(item)
	if errors.Is(err, operator.ErrCorrupt) {
		err = fmt.Errorf("operator %s: input: %w", i.t.ctxs[0].Describe(), err)
	}
	return err
}

func (i *gateInput) event(g *gate, item network.Item) error {
	t := i.t
	switch item.Event.Kind {
	case network.Barrier:
		return t.onBarrier(g, item)
	case network.EndOfData:
		if err := g.reader.End(g.base + item.Channel); err != nil {
			return err
		}
		if g.early {
			i.early--
		}
		if i.ended++; i.ended == i.channels {
			return i.atEnd()
		}
		return nil
	case network.EndOfPartition:
		if t.d.Batch {
			return nil // follows the end of the channel's data at once
		}
		if t.finishing || t.endOfData || t.suspended {
			return t.onEndOfPartition(g.first + item.Channel)
		}
		return fmt.Errorf("task: channel %d of %s ended before its data did", item.Channel, t.d.Vertex.Name)
	}
	return fmt.Errorf("task: unknown event %d", item.Event.Kind)
}

// block and unblock stop and resume a channel during alignment.
func (i *gateInput) block(channel int, on bool) {
	for _, g := range i.gates {
		if c := channel - g.first; c >= 0 && c < g.g.Channels() {
			if on {
				g.g.Block(c)
			} else {
				g.g.Unblock(c)
			}
			return
		}
	}
}

func (i *gateInput) available() <-chan struct{} { return nil } // gates notify through the mailbox

func (i *gateInput) records() int64 {
	var n int64
	for _, r := range i.readers {
		n += r.Records()
	}
	return n
}

func (i *gateInput) watermark() int64 {
	w := operator.MaxWatermark
	for _, r := range i.readers {
		w = min(w, r.Watermark())
	}
	return w
}

func (i *gateInput) bytesIn() int64 {
	var n int64
	for _, g := range i.gates {
		n += g.g.BytesIn()
	}
	return n
}

func (i *gateInput) close() {
	for _, g := range i.gates {
		g.g.Close()
	}
}

// reachEnd runs when all input was processed: the operators flush, the end is passed on, and the task stays for checkpoints.
func (t *Task) reachEnd() error {
	if t.endOfData {
		return nil
	}
	if err := operator.EndOfData(t.source, t.ops, t.parts); err != nil {
		return err
	}
	t.endOfData = true
	t.log.Debug().Dur("after", time.Since(t.metrics.started)).Msg("end of data")
	t.report(endOfDataState, nil)
	return nil
}
