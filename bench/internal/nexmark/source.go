package nexmark

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"

	"github.com/thalweg/thalweg/connector"
)

// Source is a stream of events with their event times: event n is that of a Generator, or of a file.
type Source struct {
	Events int64
	Rate   int64  // events per second of event time
	File   string // replayed; "" generates. It has as many parts as the source has subtasks.
}

// batch is how many events are passed on at once.
const batch = 128

// Boundedness implements connector.Source.
func (s Source) Boundedness() connector.Boundedness { return connector.Bounded }

// Enumerator implements connector.Source: subtask i of p has the events i, i+p, i+2p, ...
func (s Source) Enumerator(ctx connector.EnumeratorContext, restored []byte) (connector.Enumerator, error) {
	e := &enumerator{ctx: ctx}
	if restored == nil {
		for i := range ctx.Parallelism() {
			e.waiting = append(e.waiting, position{int64(i), int64(ctx.Parallelism()), int64(i)})
		}
		return e, nil
	}
	for b := restored; len(b) > 0; b = b[24:] {
		if len(b) < 24 {
			return nil, errors.New("nexmark: state of the enumerator is not valid")
		}
		e.waiting = append(e.waiting, decode(b))
	}
	return e, nil
}

// position is a split: the next event of a part.
type position struct{ part, parts, next int64 }

func (p position) split() connector.Split {
	return connector.Split{ID: strconv.FormatInt(p.part, 10), State: p.append(nil)}
}

func (p position) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(p.part))
	b = binary.BigEndian.AppendUint64(b, uint64(p.parts))
	return binary.BigEndian.AppendUint64(b, uint64(p.next))
}

func decode(b []byte) position {
	return position{int64(binary.BigEndian.Uint64(b)), int64(binary.BigEndian.Uint64(b[8:])), int64(binary.BigEndian.Uint64(b[16:]))}
}

type enumerator struct {
	ctx     connector.EnumeratorContext
	waiting []position
}

func (e *enumerator) Start(context.Context) error { return nil }

func (e *enumerator) AddReader(subtask int) {
	rest := e.waiting[:0]
	for _, p := range e.waiting {
		if int(p.part)%e.ctx.Parallelism() == subtask {
			e.ctx.Assign(subtask, p.split())
		} else {
			rest = append(rest, p)
		}
	}
	e.waiting = rest
	e.ctx.NoMoreSplits(subtask)
}

func (e *enumerator) AddSplitsBack(splits []connector.Split, _ int) {
	for _, s := range splits {
		e.waiting = append(e.waiting, decode(s.State))
	}
}

func (e *enumerator) HandleSplitRequest(int) {}

func (e *enumerator) Snapshot(int64) ([]byte, error) {
	b := []byte{}
	for _, p := range e.waiting {
		b = p.append(b)
	}
	return b, nil
}

func (e *enumerator) CheckpointComplete(int64) {}
func (e *enumerator) Close() error             { return nil }

// Reader implements connector.Source.
func (s Source) Reader(connector.ReaderContext) (connector.Reader[Event], error) {
	r := &reader{s: s, wake: make(chan struct{}, 1)}
	if s.File != "" {
		f, err := Open(s.File)
		if err != nil {
			return nil, err
		}
		r.file = f
	}
	return r, nil
}

type reader struct {
	s      Source
	file   *File
	parts  []*part
	noMore bool
	wake   chan struct{}
	made   [batch]Event
	times  [batch]int64
}

// part is a split being read.
type part struct {
	position
	out    connector.BatchOutput[Event]
	gen    *Generator
	replay *Replay
}

func (r *reader) Start(context.Context) error { return nil }

func (r *reader) AddSplits(splits []connector.Split) error {
	for _, s := range splits {
		p := &part{position: decode(s.State)}
		if r.file == nil {
			p.gen = NewGenerator(r.s.Rate)
		} else {
			if int(p.parts) != len(r.file.parts) || r.file.rate != r.s.Rate {
				return fmt.Errorf("nexmark: %s has %d parts at a rate of %d: want %d at %d", r.s.File, len(r.file.parts), r.file.rate, p.parts, r.s.Rate)
			}
			p.replay = r.file.Part(int(p.part))
			for range (p.next - p.part) / p.parts { // after a restart
				p.replay.Next(&r.made[0])
			}
		}
		r.parts = append(r.parts, p)
	}
	r.notify()
	return nil
}

func (r *reader) notify() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *reader) NoMoreSplits() {
	r.noMore = true
	r.notify()
}

func (r *reader) Available() <-chan struct{} { return r.wake }

func (r *reader) Poll(out connector.Output[Event], limit int) (connector.Status, error) {
	for i := 0; i < len(r.parts); i++ {
		p := r.parts[i]
		if p.out == nil {
			o, ok := out.Split(strconv.FormatInt(p.part, 10)).(connector.BatchOutput[Event])
			if !ok {
				return 0, errors.New("nexmark: the engine takes no batches")
			}
			p.out = o
		}
		for left := max(limit/len(r.parts), 1); left > 0 && p.next < r.s.Events; {
			n := r.fill(p, min(left, batch))
			if err := p.out.CollectBatch(r.made[:n], r.times[:n]); err != nil {
				return 0, err
			}
			left -= n
		}
		if p.next >= r.s.Events {
			out.ReleaseSplit(strconv.FormatInt(p.part, 10))
			r.parts = append(r.parts[:i], r.parts[i+1:]...)
			i--
		}
	}
	switch {
	case len(r.parts) > 0:
		return connector.MoreAvailable, nil
	case r.noMore:
		return connector.EndOfInput, nil
	}
	return connector.NothingAvailable, nil
}

// fill makes at most n events of a part.
func (r *reader) fill(p *part, n int) int {
	if p.gen != nil {
		p.gen.Reset()
	}
	i := 0
	for ; i < n && p.next < r.s.Events; i++ {
		e := &r.made[i]
		if p.gen != nil {
			p.gen.Fill(p.next, e)
		} else {
			p.replay.Next(e)
		}
		r.times[i] = e.Time()
		p.next += p.parts
	}
	return i
}

func (r *reader) Snapshot(int64) ([]connector.Split, error) {
	var all []connector.Split
	for _, p := range r.parts {
		all = append(all, p.split())
	}
	return all, nil
}

func (r *reader) CheckpointComplete(context.Context, int64) error { return nil }
func (r *reader) CheckpointAborted(int64)                         {}
func (r *reader) Close() error                                    { return nil }
