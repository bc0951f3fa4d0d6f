package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/runtime/graph"
)

// SourceHead is the head of a source task: the task calls Poll instead of feeding inputs.
type SourceHead interface {
	Operator
	// Poll emits up to max records.
	Poll(max int) (connector.Status, error)
	Available() <-chan struct{}
	// HandleEvent takes an event from the enumerator.
	HandleEvent(payload []byte) error
	// Adopted tells that the enumerator was made again from the latest checkpoint, and that the splits did not change since: what the source waits
	// for it has to be told again.
	Adopted()
	// Finish emits the last watermark; called once at the end of input or when draining.
	Finish() error
	Records() int64
	Watermark() int64
	// Position describes what is being read, for errors; "" when unknown.
	Position() string
}

// SourceEvent is the payload of operator events between an enumerator and its readers.
type SourceEvent struct {
	Assign       []connector.Split `json:"assign,omitempty"`
	NoMoreSplits bool              `json:"noMore,omitempty"`
	Request      bool              `json:"request,omitempty"`  // reader to enumerator
	Released     []string          `json:"released,omitempty"` // reader to enumerator: splits that may be assigned again, to any reader
	Custom       []byte            `json:"custom,omitempty"`   // of the connector, either way
	// Of the watermark alignment: the reader's watermark, and the highest that it may have.
	Watermark *int64 `json:"watermark,omitempty"`
	Allowed   *int64 `json:"allowed,omitempty"`
}

const splitsState = "source-splits"

// Source reads src with the given watermark strategy.
func Source[T any](src connector.Source[T], wm Watermarks[T]) Factory {
	return SourceFactory[T]{src, wm}
}

// SourceFactory is the Factory of a source; test harnesses put another Source in its place.
type SourceFactory[T any] struct {
	Source     connector.Source[T]
	Watermarks Watermarks[T]
}

// Connector is the source, of whatever type.
func (f SourceFactory[T]) Connector() any { return f.Source }

// New implements Factory.
func (f SourceFactory[T]) New(ctx *Context, out any) (Operator, error) {
	r, err := receiver[T](out)
	if err != nil {
		return nil, err
	}
	ctx.layout = graph.LayoutSource
	o := &sourceOp{}
	to := &sourceOut[T]{o: o, t: newTimed(&o.progress, ctx, f.Watermarks, r)}
	o.add = func() *split { return &to.t.newSplit().split }
	o.make = func(rc connector.ReaderContext) error {
		rd, err := f.Source.Reader(rc)
		if err != nil || rd == nil {
			return err
		}
		o.reader, o.poll = rd, func(max int) (connector.Status, error) { return rd.Poll(to, max) }
		return nil
	}
	return o, nil
}

// sourceReader is what the type of records does not matter for in a connector.Reader.
type sourceReader interface {
	Start(ctx context.Context) error
	AddSplits(splits []connector.Split) error
	NoMoreSplits()
	Available() <-chan struct{}
	Snapshot(checkpointID int64) ([]connector.Split, error)
	CheckpointComplete(ctx context.Context, checkpointID int64) error
	CheckpointAborted(checkpointID int64)
	Close() error
}

type sourceOp struct {
	Base
	progress
	make   func(connector.ReaderContext) error // sets reader and poll
	add    func() *split
	reader sourceReader
	poll   func(max int) (connector.Status, error)
	asked  bool  // for a split, without an answer
	given  bool  // splits were assigned or restored; a source without an enumerator makes its own
	ended  bool  // the reader said so
	broken error // what the reader did against its contract during a Poll
}

func (o *sourceOp) Input(int) any    { return nil }
func (o *sourceOp) Records() int64   { return o.records }
func (o *sourceOp) Watermark() int64 { return o.published.Load() }

func (o *sourceOp) Open(ctx context.Context) error {
	var restored []connector.Split
	for _, item := range o.ctx.List(splitsState) {
		var s connector.Split
		if err := json.Unmarshal(item, &s); err != nil {
			return o.ctx.undecodable("splits", err)
		}
		restored = append(restored, s)
	}
	err := o.make(connector.ReaderContext{
		Subtask: o.ctx.Subtask, Parallelism: o.ctx.Parallelism, Restored: len(restored), Logger: o.ctx.Logger, Metrics: o.ctx.Metrics,
		CheckpointingEnabled: o.ctx.Checkpointing,
		RequestSplit:         func() { o.asked = true; o.send(SourceEvent{Request: true}) },
		SendEvent:            func(b []byte) { o.send(SourceEvent{Custom: b}) },
		Files:                o.ctx.Files,
	})
	if err != nil {
		return o.ctx.wrap(err)
	}
	if o.reader == nil {
		return o.violated("reader", "Reader returned nil")
	}
	if err := o.reader.Start(ctx); err != nil {
		return o.ctx.wrap(err)
	}
	o.open()
	o.startAlignment()
	return o.addSplits(restored)
}

func (o *sourceOp) send(e SourceEvent) {
	b, err := json.Marshal(e)
	if err != nil {
		o.ctx.Fail(fmt.Errorf("operator %s: encode source event: %w", o.ctx.Describe(), err))
		return
	}
	o.ctx.SendEvent(o.ctx.ID, b)
}

func (o *sourceOp) HandleEvent(payload []byte) error {
	o.ctx.Enter()
	var e SourceEvent
	if err := json.Unmarshal(payload, &e); err != nil {
		return fmt.Errorf("operator %s: decode source event: %w", o.ctx.Describe(), err)
	}
	if len(e.Assign) > 0 || e.NoMoreSplits {
		o.asked = false
	}
	if err := o.addSplits(e.Assign); err != nil {
		return err
	}
	if e.NoMoreSplits {
		o.noMore = true
		o.reader.NoMoreSplits()
	}
	if e.Allowed != nil && o.align != nil {
		o.align.allowed = *e.Allowed
		o.hold()
	}
	if e.Custom != nil {
		r, ok := o.reader.(connector.EventReader)
		if !ok {
			return o.violated("events", "the enumerator sent an event to a reader (%T) that takes none: it is no connector.EventReader", o.reader)
		}
		return o.ctx.wrap(r.HandleEvent(e.Custom))
	}
	return nil
}

// Adopted implements SourceHead.
func (o *sourceOp) Adopted() {
	if o.asked {
		o.send(SourceEvent{Request: true})
	}
	if o.align != nil {
		o.align.sent = MinWatermark
		o.report()
	}
}

// violated is the error of a source that does not keep its contract.
func (o *sourceOp) violated(rule, format string, args ...any) error {
	return o.ctx.wrap(&connector.ContractError{Rule: rule, Detail: fmt.Sprintf(format, args...)})
}

// addSplits gives splits to the reader; each holds the watermark back from here on, also before its first record.
func (o *sourceOp) addSplits(splits []connector.Split) error {
	if len(splits) == 0 {
		return nil
	}
	o.given = true
	for _, s := range splits {
		switch {
		case s.ID == "":
			return o.violated("split-id", "a split has no id")
		case o.splits[s.ID] != nil:
			return o.violated("split-assigned-once", "split %q was assigned to a reader that reads it already", s.ID)
		case o.ended:
			return o.violated("end", "split %q was assigned after the reader had said EndOfInput", s.ID)
		case o.main != nil && o.enabled:
			return o.violated("split-output", mainBesideSplits)
		}
		o.splits[s.ID] = o.add()
	}
	if err := o.checkAlignable(); err != nil {
		return err
	}
	return o.ctx.wrap(o.reader.AddSplits(splits))
}

const mainBesideSplits = "the reader has splits and emits records that belong to none (Output.Collect): its splits would hold the watermark back for ever; use Output.Split"

func (o *sourceOp) Poll(max int) (connector.Status, error) {
	o.ctx.Enter()
	if o.align != nil && o.hold() {
		return connector.NothingAvailable, nil
	}
	st, err := o.poll(max)
	switch {
	case o.broken != nil:
		return st, o.broken
	case err != nil:
		return st, o.ctx.wrap(err)
	case o.failed != nil: // what the reader did not return
		return st, o.ctx.wrap(o.failed)
	case st == connector.NothingAvailable && o.reader.Available() == nil:
		return st, o.violated("available", "the reader has nothing available, and no channel that says when it has")
	case st == connector.EndOfInput:
		o.ended = true
	case st < connector.MoreAvailable || st > connector.EndOfInput:
		return st, o.violated("poll-status", "Poll returned the status %d, which there is not", st)
	}
	return st, nil
}

// Available is nil, which never fires, as long as alignment holds the source.
func (o *sourceOp) Available() <-chan struct{} {
	if o.align != nil && o.align.held {
		return nil
	}
	return o.reader.Available()
}

func (o *sourceOp) Position() string {
	if p, ok := o.reader.(interface{ Position() string }); ok {
		return p.Position()
	}
	return ""
}

// sourceOut takes a reader's records, and is what of a source is compiled for each type of them.
type sourceOut[T any] struct {
	o    *sourceOp
	t    *timed[T]
	main *splitOutput[T]
}

// Progress is for test harnesses.
func (s *sourceOut[T]) Progress() Progress { return s.o }

// Collect implements connector.Output.
func (s *sourceOut[T]) Collect(v T, ts int64) error {
	if s.main == nil {
		if err := s.o.mayCollect(); err != nil {
			return err
		}
		s.main = s.t.newSplit()
		s.o.main = &s.main.split
	}
	return s.main.Collect(v, ts)
}

func (o *sourceOp) mayCollect() error {
	if len(o.splits) > 0 && o.enabled {
		return o.fail(o.violated("split-output", mainBesideSplits))
	}
	return nil
}

// errNotBack is about a reader that swallows what panics in operators behind it: their records would be lost in silence.
var errNotBack = errors.New("the reader recovered a panic that came out of Collect, from what is behind it in the chain: the record is lost there, or half done. " +
	"Recover around code of your own, and emit outside of that")

// fail keeps an error, which the reader might not return: nothing more is emitted.
func (p *progress) fail(err error) error {
	p.failed = err
	return err
}

// Split implements connector.Output.
func (s *sourceOut[T]) Split(id string) connector.SplitOutput[T] {
	if known := s.o.splits[id]; known != nil {
		return known.output.(*splitOutput[T])
	}
	n := s.t.newSplit()
	s.o.unknown(id, &n.split)
	return n
}

// unknown takes a split that the reader writes to and was not given.
func (o *sourceOp) unknown(id string, s *split) {
	if o.given {
		o.broken = o.violated("split-known", "the reader asks for the output of split %q, which it was not given or has released", id)
		return
	}
	o.splits[id] = s
}

// ReleaseSplit implements connector.Output.
func (s *sourceOut[T]) ReleaseSplit(id string) { s.o.release(id) }

func (o *sourceOp) release(id string) {
	s := o.splits[id]
	if s == nil {
		o.broken = o.violated("split-known", "the reader releases split %q, which it was not given or has released", id)
		return
	}
	if s.paused {
		o.paused--
	}
	s.released = true
	delete(o.splits, id)
	if o.given {
		o.send(SourceEvent{Released: []string{id}}) // at once: what the reader tells its enumerator afterwards may lead to a new assignment
	}
}

func (o *sourceOp) Finish() error {
	err := o.finish()
	if o.align != nil {
		o.report()
	}
	return err
}

func (o *sourceOp) Snapshot(b Barrier) (Snapshot, error) {
	o.ctx.Enter()
	splits, err := o.reader.Snapshot(b.ID)
	if err != nil {
		return Snapshot{}, o.ctx.wrap(err)
	}
	l := metadata.ListState{Name: splitsState, Mode: metadata.Split}
	ids := make(map[string]bool, len(splits))
	for _, s := range splits {
		if s.ID == "" || ids[s.ID] {
			return Snapshot{}, o.violated("split-in-one", "the reader's snapshot holds split %q twice, or one without an id", s.ID)
		}
		ids[s.ID] = true
		item, err := json.Marshal(s)
		if err != nil {
			return Snapshot{}, fmt.Errorf("operator %s: encode split %s: %w", o.ctx.Describe(), s.ID, err)
		}
		l.Items = append(l.Items, item)
	}
	if err := o.complete(ids); err != nil {
		return Snapshot{}, err
	}
	return Snapshot{Lists: []metadata.ListState{l}}, nil
}

// complete checks that a snapshot has the splits of the reader, all of them and no others: one that is left out is read by nobody after a
// restore. At its end a reader may have none of them any more; one that emits by Output.Collect alone need not release them.
func (o *sourceOp) complete(ids map[string]bool) error {
	if !o.given || o.ended {
		return nil
	}
	for id := range ids {
		if o.splits[id] == nil {
			return o.violated("split-known", "the reader's snapshot holds split %q, which it was not given or has released", id)
		}
	}
	for id := range o.splits {
		if !ids[id] && o.main == nil {
			return o.violated("split-kept", "the reader's snapshot leaves out split %q, which it was given and has not released: "+
				"nobody would read it after a restore; release it (Output.ReleaseSplit) when it is read to its end", id)
		}
	}
	return nil
}

func (o *sourceOp) CheckpointComplete(id int64) error {
	o.ctx.Enter()
	ctx, cancel := context.WithTimeout(o.ctx.Services.Context(), time.Minute)
	defer cancel()
	return o.ctx.wrap(o.reader.CheckpointComplete(ctx, id))
}

func (o *sourceOp) CheckpointAborted(id int64) {
	o.ctx.Enter()
	o.reader.CheckpointAborted(id)
}

func (o *sourceOp) Close() error {
	if o.reader == nil {
		return nil
	}
	return o.ctx.wrap(o.reader.Close())
}
