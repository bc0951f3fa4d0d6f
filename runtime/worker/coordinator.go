package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/internal/failpoint"
	"github.com/thalweg/thalweg/internal/guard"
	"github.com/thalweg/thalweg/internal/version"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/operator"
	"github.com/thalweg/thalweg/runtime/operator/alignment"
	"github.com/thalweg/thalweg/runtime/rpc"
	"github.com/thalweg/thalweg/runtime/rpc/pb"
)

// RunCoordinator serves as the job's coordinator process until the link or ctx ends: it runs the preflight checks and the enumerators.
// One loop calls all of them, so what they send and what a snapshot says are in one order.
func RunCoordinator(ctx context.Context, link rpc.CoordinatorUplink, cfg rpc.ProcessConfig, p *graph.Program, reg *fs.Registry, log zerolog.Logger) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := &coordinators{link: link, program: p, cfg: cfg, files: reg, log: log, events: make(chan func(), 256)}
	failpoint.At("coordinator/start")
	hello := &pb.WorkerHello{Protocol: version.Protocol, Sdk: version.Version, Pid: int32(os.Getpid()), Fingerprint: p.Graph.Fingerprint, JobId: cfg.JobID}
	if err := link.Send(&pb.CoordinatorUp{Msg: &pb.CoordinatorUp_Hello{Hello: hello}}); err != nil {
		return fmt.Errorf("worker: greet the JobMaster: %w", err)
	}
	received := make(chan error, 1)
	var wg sync.WaitGroup
	wg.Go(func() { received <- c.receive(ctx) })
	wg.Go(func() {
		rpc.Beat(ctx, config.HeartbeatInterval.Value(cfg.Config), func() { c.send(&pb.CoordinatorUp{}) })
	})
	var err error
	for over := false; !over; { // again when user code ended the loop's goroutine
		ended := make(chan struct{})
		go guard.Call(func() error { err = c.loop(ctx, received); over = true; return nil }, func(err error) {
			defer close(ended)
			if err != nil {
				c.fail(c.running.Name, fmt.Errorf("operator %s: enumerator or preflight check: %w", where(c.running), err), false)
			}
		})
		<-ended
	}
	c.stopAll()
	link.Close(context.Cause(ctx))
	cancel()
	wg.Wait()
	return err
}

func (c *coordinators) loop(ctx context.Context, received <-chan error) error {
	for {
		select {
		case fn := <-c.events:
			fn()
		case err := <-received:
			return err
		case <-ctx.Done():
			return nil
		}
	}
}

type coordinators struct {
	link    rpc.CoordinatorUplink
	program *graph.Program
	cfg     rpc.ProcessConfig
	files   *fs.Registry
	log     zerolog.Logger
	events  chan func() // everything below belongs to the loop that runs these
	all     []*enumerator
	running graph.Operator // whose code runs, or ran last
	checked bool
	align   alignment.Groups
}

func (c *coordinators) receive(ctx context.Context) error {
	for {
		m, err := c.link.Recv()
		if err != nil {
			if errors.Is(err, rpc.ErrPeerClosed) || errors.Is(err, rpc.ErrClosed) || ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("worker: connection to the JobMaster: %w", err)
		}
		if m.GetShutdown() != nil {
			return nil
		}
		select {
		case c.events <- func() { c.handle(ctx, m) }:
		case <-ctx.Done():
			return nil
		}
	}
}

func (c *coordinators) send(m *pb.CoordinatorUp) { _ = c.link.Send(m) } // the end of the link ends the loop

func (c *coordinators) fail(op string, err error, fatal bool) {
	c.send(&pb.CoordinatorUp{Msg: &pb.CoordinatorUp_Failure{Failure: &pb.Failure{
		Message: err.Error(), Kind: "coordinator", Operator: op, Detail: guard.Stack(err), Fatal: fatal}}})
}

func (c *coordinators) handle(ctx context.Context, m *pb.CoordinatorDown) {
	switch m := m.GetMsg().(type) {
	case *pb.CoordinatorDown_Start:
		c.start(ctx, m.Start)
	case *pb.CoordinatorDown_Snapshot:
		c.snapshot(m.Snapshot.GetCheckpointId())
	case *pb.CoordinatorDown_Completed:
		for _, e := range c.all {
			e.guard(func() error { e.e.CheckpointComplete(m.Completed.GetCheckpointId()); return nil })
		}
	case *pb.CoordinatorDown_OperatorEvent:
		if e := c.find(m.OperatorEvent.GetOperatorId()); e != nil && m.OperatorEvent.GetAttempt() == e.attempt {
			e.event(m.OperatorEvent)
		}
	case *pb.CoordinatorDown_SubtaskReady:
		if e := c.find(m.SubtaskReady.GetOperatorId()); e != nil && m.SubtaskReady.GetAttempt() == e.attempt {
			e.ready(int(m.SubtaskReady.GetSubtask()))
		}
	}
}

func (c *coordinators) find(id string) *enumerator {
	for _, e := range c.all {
		if e.id.String() == id {
			return e
		}
	}
	return nil
}

// start checks once, and (re)makes enumerators with the given states: all, or those that are named.
func (c *coordinators) start(ctx context.Context, m *pb.StartCoordinators) {
	meant := func(id graph.OperatorID) bool {
		return len(m.GetOperators()) == 0 || slices.Contains(m.GetOperators(), id.String())
	}
	c.stop(meant)
	conf := config.Configuration(c.cfg.Config)
	env := connector.PreflightContext{CheckpointInterval: config.CheckpointInterval.Value(conf), CheckpointTimeout: config.CheckpointTimeout.Value(conf),
		Files: c.files, Batch: c.program.Graph.Mode == graph.Batch}
	var made []*enumerator
	for _, v := range c.program.Graph.Vertices {
		for _, op := range v.Operators {
			half, ok := c.program.Nodes[op.ID].Coordinator.(operator.Coordinator)
			if !ok || c.checked && !meant(op.ID) {
				continue
			}
			par := v.Parallelism
			if p, ok := m.GetParallelism()[op.ID.String()]; ok {
				par = int(p)
			}
			c.running = op
			log := c.log.With().Str("operator", op.Name).Str("uid", op.UID).Logger()
			if !c.checked {
				env.Parallelism, env.Logger = par, log
				if err := guard.Run(func() error { return half.Preflight(ctx, env) }); err != nil {
					c.fail(op.Name, fmt.Errorf("operator %s: %w", where(op), err), true)
					return
				}
			}
			if !meant(op.ID) {
				continue
			}
			e := &enumerator{c: c, op: op, id: op.ID, attempt: m.GetAttempt(), name: op.Name, where: where(op), parallelism: par, log: log, readers: map[int]bool{}, assigned: map[string]int{}, noMore: map[int]bool{}, held: map[int][]operator.SourceEvent{}}
			e.ctx, e.cancel = context.WithCancel(ctx) //nolint:fatcontext // one for each enumerator
			err := guard.Run(func() (err error) { e.e, err = half.Enumerator(e, m.GetStates()[op.ID.String()]); return err })
			if err != nil {
				e.cancel()
				c.fail(op.Name, fmt.Errorf("operator %s: %w", where(op), err), false)
				return
			}
			if e.e == nil {
				e.cancel()
				if half.Alignment() != nil {
					c.fail(op.Name, fmt.Errorf("operator %s: watermark alignment needs a source that has an enumerator", where(op)), true)
					return
				}
				continue
			}
			if a := half.Alignment(); a != nil && !env.Batch {
				e.align = a
				c.align.Add(e.id.String(), a.Group, a.Drift, par)
			}
			c.all = append(c.all, e)
			made = append(made, e)
		}
	}
	c.checked = true
	for _, e := range made {
		e.guard(func() error { return e.e.Start(e.ctx) })
		if e.align != nil {
			e.Async(time.Duration(e.align.Interval)*time.Millisecond, func(context.Context) (any, error) { return nil, nil }, func(any, error) { e.announce(false) })
		}
	}
	c.send(&pb.CoordinatorUp{Msg: &pb.CoordinatorUp_Ready{Ready: &pb.CoordinatorReady{}}})
}

func (c *coordinators) snapshot(id int64) {
	s := &pb.CoordinatorSnapshot{CheckpointId: id, States: map[string][]byte{}}
	for _, e := range c.all {
		c.running = e.op
		err := guard.Run(func() error {
			b, err := e.e.Snapshot(id)
			s.States[e.id.String()] = b
			return err
		})
		if err != nil {
			s.Error = fmt.Sprintf("operator %s: snapshot: %v", e.name, err)
		}
	}
	c.send(&pb.CoordinatorUp{Msg: &pb.CoordinatorUp_Snapshot{Snapshot: s}})
}

func (c *coordinators) stopAll() { c.stop(func(graph.OperatorID) bool { return true }) }

func (c *coordinators) stop(which func(graph.OperatorID) bool) {
	var stopped, left []*enumerator
	for _, e := range c.all {
		if !which(e.id) {
			left = append(left, e)
			continue
		}
		stopped = append(stopped, e)
		c.align.Remove(e.id.String())
		e.cancel()
		c.running = e.op
		if err := guard.Run(e.e.Close); err != nil {
			c.log.Debug().Err(err).Str("operator", e.name).Msg("close enumerator")
		}
		e.closed = true
	}
	for _, e := range stopped {
		e.wg.Wait() // its goroutines watch e.ctx wherever they wait
	}
	c.all = left
}

// enumerator is one source's half; it implements connector.EnumeratorContext.
type enumerator struct {
	c           *coordinators
	op          graph.Operator
	id          graph.OperatorID
	attempt     int32 // of its readers
	name        string
	where       string // name with the place of the user's call
	parallelism int
	log         zerolog.Logger
	e           connector.Enumerator
	ctx         context.Context
	cancel      context.CancelFunc
	wg          sync.WaitGroup
	closed      bool
	readers     map[int]bool
	assigned    map[string]int                 // splits: the subtasks that they were assigned to and have not released them
	held        map[int][]operator.SourceEvent // for readers that are not up yet
	align       *operator.Alignment            // nil for none
	noMore      map[int]bool                   // readers that were told that they have all
}

// valid reports whether the enumerator may do what it does to a subtask; the job fails when it may not.
func (e *enumerator) valid(call string, subtask int) bool {
	if subtask < 0 || subtask >= e.parallelism {
		e.Fail(&connector.ContractError{Rule: "subtask", Detail: fmt.Sprintf("the enumerator called %s for subtask %d; the source has 0 to %d", call, subtask, e.parallelism-1)})
		return false
	}
	return true
}

// announce tells the readers how far they may go, if that is news.
func (e *enumerator) announce(always bool) {
	allowed, changed := e.c.align.Allowed(e.id.String())
	if !changed && !always {
		return
	}
	for sub := range e.readers {
		e.post(sub, operator.SourceEvent{Allowed: &allowed})
	}
}

// reported takes a reader's watermark; when the group waited for it, all of it may go on at once.
func (e *enumerator) reported(subtask int, watermark int64) {
	if !e.c.align.Report(e.id.String(), subtask, watermark) {
		return
	}
	for _, id := range e.c.align.Members(e.id.String()) {
		if m := e.c.find(id); m != nil {
			m.announce(false)
		}
	}
}

func (e *enumerator) guard(fn func() error) {
	e.c.running = e.op
	if err := guard.Run(fn); err != nil {
		e.Fail(err)
	}
}

func (e *enumerator) event(m *pb.OperatorEvent) {
	var ev operator.SourceEvent
	if err := json.Unmarshal(m.GetPayload(), &ev); err != nil {
		e.Fail(fmt.Errorf("decode event of subtask %d: %w", m.GetSubtask(), err))
		return
	}
	for _, id := range ev.Released {
		if e.assigned[id] == int(m.GetSubtask()) {
			delete(e.assigned, id)
		}
	}
	if ev.Request {
		e.guard(func() error { e.e.HandleSplitRequest(int(m.GetSubtask())); return nil })
	}
	if ev.Watermark != nil {
		e.reported(int(m.GetSubtask()), *ev.Watermark)
	}
	if ev.Custom != nil {
		h, ok := e.e.(connector.EventEnumerator)
		if !ok {
			e.Fail(&connector.ContractError{Rule: "events", Detail: fmt.Sprintf("the reader of subtask %d sent an event to an enumerator (%T) that takes none: it is no connector.EventEnumerator", m.GetSubtask(), e.e)})
			return
		}
		e.guard(func() error { h.HandleEvent(int(m.GetSubtask()), ev.Custom); return nil })
	}
}

func (e *enumerator) ready(subtask int) {
	if e.readers[subtask] {
		return
	}
	e.readers[subtask] = true
	for _, ev := range e.held[subtask] {
		e.post(subtask, ev)
	}
	delete(e.held, subtask)
	if e.align != nil {
		e.announce(true)
	}
	e.guard(func() error { e.e.AddReader(subtask); return nil })
}

func (e *enumerator) post(subtask int, ev operator.SourceEvent) {
	if e.closed {
		return
	}
	if !e.readers[subtask] {
		e.held[subtask] = append(e.held[subtask], ev)
		return
	}
	b, err := json.Marshal(ev)
	if err != nil {
		e.Fail(fmt.Errorf("encode event: %w", err))
		return
	}
	e.c.send(&pb.CoordinatorUp{Msg: &pb.CoordinatorUp_OperatorEvent{OperatorEvent: &pb.OperatorEvent{
		OperatorId: e.id.String(), Subtask: int32(subtask), Attempt: e.attempt, Payload: b}}})
}

// Parallelism implements connector.EnumeratorContext.
func (e *enumerator) Parallelism() int { return e.parallelism }

// Readers implements connector.EnumeratorContext.
func (e *enumerator) Readers() []int {
	var r []int
	for s := range e.readers {
		r = append(r, s)
	}
	slices.Sort(r)
	return r
}

// Assign implements connector.EnumeratorContext.
func (e *enumerator) Assign(subtask int, splits ...connector.Split) {
	if !e.valid("Assign", subtask) {
		return
	}
	if e.noMore[subtask] {
		e.Fail(&connector.ContractError{Rule: "assign-after-no-more", Detail: fmt.Sprintf("the enumerator assigned splits to subtask %d after NoMoreSplits", subtask)})
		return
	}
	for _, s := range splits {
		if other, ok := e.assigned[s.ID]; ok && other != subtask && s.ID != "" {
			e.Fail(&connector.ContractError{Rule: "split-assigned-once", Detail: fmt.Sprintf("the enumerator assigned split %q to subtask %d, and to subtask %d before, which has not released it", s.ID, subtask, other)})
			return
		}
		e.assigned[s.ID] = subtask
	}
	e.post(subtask, operator.SourceEvent{Assign: splits})
}

// NoMoreSplits implements connector.EnumeratorContext.
func (e *enumerator) NoMoreSplits(subtask int) {
	if e.valid("NoMoreSplits", subtask) {
		e.noMore[subtask] = true
		e.post(subtask, operator.SourceEvent{NoMoreSplits: true})
	}
}

// SendEvent implements connector.EnumeratorContext.
func (e *enumerator) SendEvent(subtask int, payload []byte) {
	if e.valid("SendEvent", subtask) {
		e.post(subtask, operator.SourceEvent{Custom: payload})
	}
}

// Files implements connector.EnumeratorContext.
func (e *enumerator) Files() *fs.Registry { return e.c.files }

// Async implements connector.EnumeratorContext.
func (e *enumerator) Async(period time.Duration, work func(context.Context) (any, error), done func(any, error)) {
	e.wg.Go(func() {
		for {
			var r any
			var err error
			worked := make(chan struct{})
			go guard.Call(func() (err error) { r, err = work(e.ctx); return err }, func(outcome error) {
				defer close(worked)
				err = outcome
			})
			<-worked
			select {
			case e.c.events <- func() {
				if !e.closed {
					e.guard(func() error { done(r, err); return nil })
				}
			}:
			case <-e.ctx.Done():
				return
			}
			if period <= 0 {
				return
			}
			select {
			case <-time.After(period):
			case <-e.ctx.Done():
				return
			}
		}
	})
}

// Fail implements connector.EnumeratorContext.
func (e *enumerator) Fail(err error) {
	if e.closed || e.ctx.Err() != nil {
		return
	}
	if err == nil {
		err = errors.New("the enumerator called Fail without an error")
	}
	e.c.fail(e.name, fmt.Errorf("operator %s: %w", e.where, err), isFatal(err))
}

// where is an operator with the place of the user's call, for errors.
func where(op graph.Operator) string {
	if op.CallSite == "" {
		return op.Name
	}
	return op.Name + " at " + op.CallSite
}

func isFatal(err error) bool {
	var f interface{ Fatal() bool }
	return errors.As(err, &f) && f.Fatal()
}

// Logger implements connector.EnumeratorContext.
func (e *enumerator) Logger() zerolog.Logger { return e.log }
