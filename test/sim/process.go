package sim

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/operator"
)

// process is a model of the coordinator process (runtime/worker/coordinator.go): the sources' enumerators, with one queue of messages each way
// and one of its own results.
type process struct {
	m    *master
	down []func()
	up   []any
	own  []func() // results of Async
	all  map[graph.OperatorID]*enumerating
	up1  bool // its hello was sent
}

// What the process tells the JobMaster.
type (
	processHello    struct{}
	processReady    struct{}
	processSnapshot struct {
		id     int64
		states map[graph.OperatorID][]byte
		err    error
	}
	processEvent struct {
		op      graph.OperatorID
		subtask int
		attempt int
		payload []byte
	}
	processFailure struct{ err error }
)

// enumerating is one life of the enumerator; it implements connector.EnumeratorContext.
type enumerating struct {
	p           *process
	op          graph.OperatorID
	e           connector.Enumerator
	attempt     int
	parallelism int
	readers     map[int]bool
	held        map[int][]operator.SourceEvent
	closed      bool
}

func (p *process) start(attempt, parallelism int, op graph.OperatorID, half operator.Coordinator, restored []byte) {
	if old := p.all[op]; old != nil {
		old.closed = true
		_ = old.e.Close()
	}
	e := &enumerating{p: p, op: op, attempt: attempt, parallelism: parallelism, readers: map[int]bool{}, held: map[int][]operator.SourceEvent{}}
	var err error
	if e.e, err = half.Enumerator(e, restored); err == nil {
		p.all[op] = e
		err = e.e.Start(context.Background())
	}
	if err != nil {
		p.up = append(p.up, processFailure{err})
		return
	}
	p.up = append(p.up, processReady{})
}

func (p *process) snapshot(id int64) {
	s := processSnapshot{id: id, states: map[graph.OperatorID][]byte{}}
	for op, e := range p.all {
		state, err := e.e.Snapshot(id)
		if s.states[op] = state; err != nil {
			s.err = err
		}
	}
	p.up = append(p.up, s)
}

func (e *enumerating) ready(subtask int) {
	if e.readers[subtask] {
		return
	}
	e.readers[subtask] = true
	for _, ev := range e.held[subtask] {
		e.post(subtask, ev)
	}
	delete(e.held, subtask)
	e.e.AddReader(subtask)
}

func (e *enumerating) post(subtask int, ev operator.SourceEvent) {
	if e.closed {
		return
	}
	if !e.readers[subtask] {
		e.held[subtask] = append(e.held[subtask], ev)
		return
	}
	b, err := json.Marshal(ev)
	if err != nil {
		e.Fail(err)
		return
	}
	e.p.up = append(e.p.up, processEvent{e.op, subtask, e.attempt, b})
}

// Parallelism implements connector.EnumeratorContext.
func (e *enumerating) Parallelism() int { return e.parallelism }

// Readers implements connector.EnumeratorContext.
func (e *enumerating) Readers() []int {
	var r []int
	for s := range e.readers {
		r = append(r, s)
	}
	slices.Sort(r)
	return r
}

// Assign implements connector.EnumeratorContext.
func (e *enumerating) Assign(subtask int, splits ...connector.Split) {
	e.post(subtask, operator.SourceEvent{Assign: splits})
}

// NoMoreSplits implements connector.EnumeratorContext.
func (e *enumerating) NoMoreSplits(subtask int) {
	e.post(subtask, operator.SourceEvent{NoMoreSplits: true})
}

// Async implements connector.EnumeratorContext: the work is done when the scheduler says so.
func (e *enumerating) Async(_ time.Duration, work func(context.Context) (any, error), done func(any, error)) {
	e.p.own = append(e.p.own, func() {
		if !e.closed {
			done(work(context.Background()))
		}
	})
}

// SendEvent implements connector.EnumeratorContext.
func (e *enumerating) SendEvent(subtask int, payload []byte) {
	e.post(subtask, operator.SourceEvent{Custom: payload})
}

// Fail implements connector.EnumeratorContext.
func (e *enumerating) Fail(err error) { e.p.up = append(e.p.up, processFailure{err}) }

// Files implements connector.EnumeratorContext.
func (e *enumerating) Files() *fs.Registry { return e.p.m.w.reg }

// Logger implements connector.EnumeratorContext.
func (e *enumerating) Logger() zerolog.Logger { return zerolog.Nop() }
