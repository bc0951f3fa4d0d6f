package task

import (
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
	t *Task
	s operator.SourceHead
}

func (i *sourceInput) step() (bool, error) {
	t := i.t
	if t.endOfData || t.suspended {
		return false, nil
	}
	st, err := i.s.Poll(batch)
	if err != nil {
		return false, err
	}
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
}

// gate is one vertex input.
type gate struct {
	g      *network.Gate
	reader operator.Reader
	base   int // first channel in the reader
	first  int // first channel in the task's alignment
	early  bool
	late   bool // in BATCH, waits for the early ones
}

func (i *gateInput) step() (bool, error) {
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
			err = g.reader.Read(g.base+item.Channel, item.Data)
		} else {
			err = i.event(g, item)
		}
		g.g.Release(item)
		return true, err
	}
	return false, nil
}

func (i *gateInput) event(g *gate, item network.Item) error {
	t := i.t
	switch item.Event.Kind {
	case network.Barrier:
		return t.onBarrier(g.first+item.Channel, item.Event)
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
	if t.source != nil {
		if err := t.source.Finish(); err != nil {
			return err
		}
	}
	for _, o := range t.ops {
		if err := o.EndInput(); err != nil {
			return err
		}
	}
	for _, p := range t.parts {
		if err := p.Broadcast(network.Event{Kind: network.EndOfData}); err != nil {
			return err
		}
	}
	t.endOfData = true
	t.log.Debug().Dur("after", time.Since(t.metrics.started)).Msg("end of data")
	t.env.Report.State(t.d.Execution, endOfDataState, nil)
	return nil
}
