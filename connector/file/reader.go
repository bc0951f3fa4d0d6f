package file

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/serde"
)

// reader reads its splits one after another.
type reader[T any] struct {
	cfg    *sourceConfig
	format serde.Format[T]
	blank  bool // empty lines are records
	ctx    connector.ReaderContext
	life   context.Context //nolint:containedctx // the task's
	stop   context.CancelFunc
	wg     sync.WaitGroup
	sys    systems
	wake   chan struct{}

	queue  []*split
	paused map[string]bool
	outs   map[string]connector.SplitOutput[T] // of splits that were begun
	asked  bool
	noMore bool

	cur      *split // being read
	out      connector.SplitOutput[T]
	f        *fetch
	buf      []byte // the whole chunk
	rest     []byte // not used yet
	eof      bool
	carry    []byte // the beginning of a line that the chunks before hold
	pos      int64  // of the next byte that was not used, carry included
	skipping bool   // the line at pos is not this split's, or the header
	skipped  connector.Counter
}

func newReader[T any](cfg *sourceConfig, format serde.Format[T], ctx connector.ReaderContext) *reader[T] {
	n := format.Name()
	return &reader[T]{cfg: cfg, format: format, ctx: ctx, blank: n == serde.String().Name() || n == serde.Bytes().Name(),
		sys: systems{reg: ctx.Files}, wake: make(chan struct{}, 1), paused: map[string]bool{}, outs: map[string]connector.SplitOutput[T]{}, skipped: ctx.Metrics.Counter("recordsSkipped")}
}

func (r *reader[T]) Start(ctx context.Context) error {
	r.life, r.stop = context.WithCancel(ctx)
	return nil
}

func (r *reader[T]) notify() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *reader[T]) Available() <-chan struct{} { return r.wake }

func (r *reader[T]) AddSplits(splits []connector.Split) error {
	for _, cs := range splits {
		s, err := decodeSplit(cs)
		if err != nil {
			return err
		}
		r.queue = append(r.queue, s)
	}
	r.asked = false
	r.notify()
	return nil
}

func (r *reader[T]) NoMoreSplits() {
	r.noMore = true
	r.notify()
}

// PauseSplits implements connector.SplitPauser. A split that is paused in the middle waits at its next line.
func (r *reader[T]) PauseSplits(pause, resume []string) {
	for _, id := range pause {
		r.paused[id] = true
	}
	for _, id := range resume {
		delete(r.paused, id)
	}
	if r.cur != nil && r.paused[r.cur.id()] {
		r.queue = append(r.queue, r.cur)
		r.leave()
	}
	r.notify()
}

// leave stops reading the current split.
func (r *reader[T]) leave() {
	r.f.cancel()
	r.cur, r.out, r.f, r.buf, r.rest, r.carry = nil, nil, nil, nil, nil, r.carry[:0]
}

// begin takes the next split that is not paused.
func (r *reader[T]) begin(out connector.Output[T]) bool {
	for i, s := range r.queue {
		if r.paused[s.id()] {
			continue
		}
		r.queue = append(r.queue[:i:i], r.queue[i+1:]...)
		if r.outs[s.id()] == nil {
			r.outs[s.id()] = out.Split(s.id())
		}
		r.cur, r.out, r.eof, r.carry = s, r.outs[s.id()], false, r.carry[:0]
		switch {
		case s.Next >= 0:
			r.pos, r.skipping = s.Next, false
		case s.Start > 0: // the byte before says whether a line begins here
			r.pos, r.skipping = s.Start-1, true
		default:
			r.pos, r.skipping = 0, r.cfg.header
		}
		r.f = startFetch(r.life, &r.wg, &r.sys, s, r.pos, r.notify)
		return true
	}
	return false
}

func (r *reader[T]) Poll(out connector.Output[T], max int) (connector.Status, error) {
	for n := 0; n < max; {
		if r.cur == nil && !r.begin(out) {
			return r.idle(), nil
		}
		line, ok, err := r.line()
		switch {
		case err != nil:
			return 0, err
		case ok:
		case r.ended():
			r.endSplit(out)
			continue
		default:
			return connector.NothingAvailable, nil
		}
		emitted, err := r.emit(line)
		if err != nil {
			return 0, err
		}
		if emitted {
			n++
		}
		r.endLine(out)
	}
	return connector.MoreAvailable, nil
}

func (r *reader[T]) idle() connector.Status {
	if len(r.queue) == 0 {
		if r.noMore && r.cfg.monitor == 0 {
			return connector.EndOfInput
		}
		if !r.asked && !r.noMore {
			r.asked = true
			r.ctx.RequestSplit()
		}
	}
	return connector.NothingAvailable
}

// line returns the next line with its end, valid until the next call of line or endLine; ok is false when none is there yet, or the split
// has ended.
func (r *reader[T]) line() (line []byte, ok bool, err error) {
	for {
		if i := bytes.IndexByte(r.rest, '\n'); i >= 0 {
			line, r.rest = r.rest[:i+1], r.rest[i+1:]
			if len(r.carry) > 0 {
				r.carry = append(r.carry, line...)
				line = r.carry
			}
			return line, true, nil
		}
		r.carry = append(r.carry, r.rest...)
		r.rest = nil
		if len(r.carry) > r.cfg.maxLine {
			return nil, false, r.tooLong()
		}
		if r.eof {
			return r.carry, len(r.carry) > 0, nil
		}
		if r.buf != nil {
			select {
			case r.f.free <- r.buf:
			default:
			}
			r.buf = nil
		}
		select {
		case c := <-r.f.chunks:
			if c.err != nil && !errors.Is(c.err, io.EOF) {
				return nil, false, c.err
			}
			r.buf, r.rest, r.eof = c.data[:cap(c.data)], c.data, c.err != nil
		default:
			return nil, false, nil
		}
	}
}

func (r *reader[T]) tooLong() error {
	return lastingError{fmt.Errorf("file: %s: the line at byte %d is longer than %d bytes (file.MaxLine)", r.cur.Path, r.pos, r.cfg.maxLine)}
}

// ended says that all of the file was used.
func (r *reader[T]) ended() bool { return r.eof && len(r.rest) == 0 && len(r.carry) == 0 }

// emit decodes a line, unless it is to be skipped.
func (r *reader[T]) emit(line []byte) (bool, error) {
	if len(line) > r.cfg.maxLine {
		return false, r.tooLong()
	}
	size := int64(len(line))
	at := r.pos
	r.pos += size
	if r.skipping {
		r.skipping = false
		return false, nil
	}
	if line[size-1] == '\n' {
		line = bytes.TrimSuffix(line[:size-1], []byte{'\r'})
	}
	if len(line) == 0 && !r.blank {
		return false, nil
	}
	v, err := r.format.Deserialize(line)
	if err != nil {
		if r.cfg.skipBad {
			r.skipped.Add(1)
			r.ctx.Logger.Debug().Err(err).Str("file", r.cur.Path).Int64("offset", at).Msg("record skipped")
			return false, nil
		}
		return false, fmt.Errorf("file: %s: the line at byte %d cannot be decoded: %w (file.SkipBadRecords counts such lines instead)", r.cur.Path, at, err)
	}
	return true, r.out.Collect(v, connector.NoTimestamp)
}

// endLine moves the position behind the line, and ends the split when the next line is another's.
func (r *reader[T]) endLine(out connector.Output[T]) {
	r.carry = r.carry[:0]
	r.cur.Next = r.pos
	r.endSplit(out)
}

func (r *reader[T]) endSplit(out connector.Output[T]) {
	if r.pos >= r.cur.End || r.ended() {
		out.ReleaseSplit(r.cur.id())
		delete(r.outs, r.cur.id())
		r.leave()
	}
}

// Position implements connector.Positioner.
func (r *reader[T]) Position() string {
	if r.cur == nil {
		return ""
	}
	return fmt.Sprintf("%s, byte %d", r.cur.Path, max(r.cur.Next, 0))
}

func (r *reader[T]) Snapshot(int64) ([]connector.Split, error) {
	var out []connector.Split
	if r.cur != nil {
		cs, err := r.cur.encode()
		if err != nil {
			return nil, err
		}
		out = append(out, cs)
	}
	for _, s := range r.queue {
		cs, err := s.encode()
		if err != nil {
			return nil, err
		}
		out = append(out, cs)
	}
	return out, nil
}

func (r *reader[T]) CheckpointComplete(context.Context, int64) error { return nil }

func (r *reader[T]) CheckpointAborted(int64) {}

func (r *reader[T]) Close() error {
	if r.stop != nil {
		r.stop()
	}
	r.wg.Wait()
	return r.sys.close()
}
