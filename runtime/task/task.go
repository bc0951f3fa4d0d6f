// Package task runs one subtask of a vertex: a chain of operators behind network inputs or a source. It is layer L2.
//
// A task is one goroutine. Everything that concerns its operators happens there: records, watermarks, barriers, processing-time timers
// and mails (triggers, notices, results of background work). Its loop runs mails, then due timers, then one batch of input, and waits
// only when there is nothing to do. Other goroutines of a task write snapshots (one per checkpoint) and sink commits.
//
// In BATCH see batch.go.
//
// Life: compose the chain, open the operators (restore), RUNNING, …, end of data (every input ended; the task stays and takes part in
// checkpoints until it is told to finish), FINISHED. Files: task.go (life and loop), compose.go, input.go, checkpoint.go,
// unaligned.go (barriers that overtake), mailbox.go.
package task

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/checkpoint/storage/backup"
	"github.com/thalweg/thalweg/checkpoint/storage/merge"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/internal/failpoint"
	"github.com/thalweg/thalweg/internal/guard"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/network"
	"github.com/thalweg/thalweg/runtime/operator"
	"github.com/thalweg/thalweg/runtime/rpc"
	"github.com/thalweg/thalweg/runtime/rpc/pb"
	"github.com/thalweg/thalweg/runtime/task/barrier"
	"github.com/thalweg/thalweg/state"
)

// Deployment says what a task runs.
type Deployment struct {
	Execution          graph.ExecutionID
	JobName            string
	Vertex             *graph.Vertex
	Head               *graph.ChainNode
	Subtask            int
	Parallelism        int
	MaxParallelism     int
	Inputs             [][]network.Source // one per vertex input
	Subpartitions      []int              // one per vertex output
	ConsumerMax        map[int]int        // vertex output -> max parallelism of its consumer
	Overtakes          []bool             // by vertex output: barriers of unaligned checkpoints may overtake there (graph.Vertex.Overtakes of the consumer)
	Batch              bool               // the job runs in BATCH
	CommitOnly         bool               // all there is to do is to commit what Restore holds
	Restore            metadata.Task
	RestoredCheckpoint int64
	Slot               int
	// Hold lets the task process nothing before Proceed: the JobMaster hears from each task whether what it restores fits.
	Hold bool
}

// Environment is what a worker gives to its tasks.
type Environment struct {
	JobID    string
	Embedded bool // the job ends with this process
	Config   config.Configuration
	Network  *network.Environment
	FS       *fs.Registry
	Dirs     []string // local directories, used in turn
	// Backup keeps local copies of checkpoints, and Recover restores from them; nil for none.
	Backup, Recover *backup.Store
	// Merge puts small state files of the worker's tasks together; nil for none.
	Merge       *merge.Merger
	StateMemory int64 // a slot's bytes for state
	// StatePool is the memory that the state backends of a slot share; nil gives each of them StateMemory.
	StatePool func(group string, subtask int) *state.Pool
	Logger    zerolog.Logger
	Now       func() time.Time
	Report    Reporter
}

// Reporter takes a task's reports; its methods are called from the task's goroutines and must not block for long.
type Reporter interface {
	State(id graph.ExecutionID, s pb.TaskState, f *pb.Failure)
	Ack(ack *pb.CheckpointAck)
	Decline(id graph.ExecutionID, checkpoint int64, f *pb.Failure)
	Event(op graph.OperatorID, id graph.ExecutionID, payload []byte)
	// Opened tells that a task that is held has opened its state, and what of the stored state does not fit.
	Opened(id graph.ExecutionID, misfits []string)
}

// Task is a running subtask. Its methods are safe from any goroutine.
type Task struct {
	d      Deployment
	env    Environment
	log    zerolog.Logger
	ctx    context.Context
	cancel context.CancelCauseFunc
	mail   *mailbox
	timers clockTimers // by the machine's clock
	paces  clockTimers // by Uptime
	born   time.Time
	mark   operator.Marker

	ops      []operator.Operator // chain order, head first
	ctxs     []*operator.Context
	parts    []*network.Partition
	writers  []interface{ Records() int64 }
	outTypes []operator.Type // by vertex output
	input    input
	source   operator.SourceHead // nil for tasks with network inputs

	mute      bool // BATCH: watermarks of the head are those of a key, and for nobody else
	flush     idleFlush
	endOfData bool
	suspended bool
	finishing bool

	aligner   *barrier.Aligner
	unaligned *unaligned // nil: all checkpoints are aligned
	snapshots snapshots
	metrics   *metrics
	takeover  *Takeover
	composed  atomic.Bool // parts and input are set
	proceed   chan struct{}
	release   func() // closes proceed, once
	done      chan struct{}
}

// ErrCanceled is the cause of a task that was told to cancel.
var ErrCanceled = errors.New("task: canceled")

// New makes a task. Run runs it.
func New(ctx context.Context, env Environment, d Deployment) *Task {
	t := &Task{d: d, env: env, mail: newMailbox(), proceed: make(chan struct{}), done: make(chan struct{}), metrics: newMetrics(), born: time.Now(), takeover: NewTakeover(d.RestoredCheckpoint)}
	t.release = sync.OnceFunc(func() { close(t.proceed) })
	t.log = env.Logger.With().Str("vertex", brief(d.Vertex)).Int("subtask", d.Subtask).Int("attempt", d.Execution.Attempt).Logger()
	t.ctx, t.cancel = context.WithCancelCause(ctx)
	t.snapshots.running = map[int64]context.CancelFunc{}
	return t
}

// ID is the execution that the task is.
func (t *Task) ID() graph.ExecutionID { return t.d.Execution }

// Done is closed when Run has returned.
func (t *Task) Done() <-chan struct{} { return t.done }

// Cancel ends the task without finishing it.
func (t *Task) Cancel() {
	t.cancel(ErrCanceled)
	t.mail.interrupt()
}

// Proceed lets a task go on that is held.
func (t *Task) Proceed() { t.release() }

// Survives is what a JobMaster must know of the task that did not deploy it.
func (t *Task) Survives() *pb.SurvivingTask {
	m := &pb.SurvivingTask{ExecutionId: t.d.Execution.String(), Slot: int32(t.d.Slot), Parallelism: int32(t.d.Parallelism), MaxParallelism: int32(t.d.MaxParallelism),
		Source: len(t.d.Inputs) == 0}
	t.takeover.Fill(m)
	return m
}

// Adopted tells the task that another JobMaster goes on with it, whose enumerators know nothing of what the task has said since their checkpoint.
func (t *Task) Adopted() {
	t.Post(func() error {
		if t.source != nil {
			t.source.Adopted()
		}
		return nil
	})
}

// report tells the task's state.
func (t *Task) report(s pb.TaskState, f *pb.Failure) {
	t.takeover.Moved(s) // before it is told: who asks for it afterwards hears no earlier one
	t.env.Report.State(t.d.Execution, s, f)
}

// Finish lets a task end that is at the end of its data, or suspended.
func (t *Task) Finish() {
	t.takeover.Finishing()
	t.Post(func() error {
		t.finishing = true
		return nil
	})
}

// Run runs the task until it has finished, failed or was cancelled, and reports each state.
func (t *Task) Run() {
	defer close(t.done)
	t.env.Merge.Join(t.d.Execution.String())
	defer t.env.Merge.Leave(t.d.Execution.String())
	guard.Call(func() error {
		t.report(pb.TaskState_INITIALIZING, nil)
		t.end(t.run())
		return nil
	}, func(err error) {
		switch {
		case err == nil:
		case errors.Is(err, guard.ErrExit):
			t.end(fmt.Errorf("user code of operator %s ended the task's goroutine (runtime.Goexit, which testing's FailNow and the like call)", t.current()))
		default: // in the end itself
			t.end(fmt.Errorf("operator %s: while the task ends: %w", t.current(), err))
		}
	})
}

// end releases what the task holds and reports its last state.
func (t *Task) end(err error) {
	switch {
	case err == nil:
		t.cleanup(err)
		t.report(pb.TaskState_FINISHED, nil)
	case errors.Is(err, ErrCanceled):
		t.cleanup(err)
		t.report(pb.TaskState_CANCELED, nil)
	default:
		f := t.describe(err)
		// At info: the JobMaster warns of it, and in a local run both have one log.
		t.log.Info().Str("kind", f.Kind).Str("operator", f.Operator).Str("detail", f.Detail).Msg(f.Message)
		slow := time.AfterFunc(slowClose, func() { t.report(pb.TaskState_FAILING, f) })
		t.cleanup(err)
		slow.Stop()
		t.report(pb.TaskState_FAILED, f)
	}
}

// slowClose is how long the operators of a failed task may take to close before its failure is told without waiting for them: user code
// may never return. The JobMaster then gives the task as long as one that it cancelled, and ends its worker.
const slowClose = time.Second

func (t *Task) run() (err error) {
	defer func() {
		if r := recover(); r != nil {
			p := operator.Panicked(t.current(), r)
			p.Reading = t.position()
			err = p
		}
		if cause := context.Cause(t.ctx); cause != nil && err != nil {
			err = cause // what ended the context is the root; the error is how it showed
		}
	}()
	if err := failpoint.Error("restore/task"); err != nil {
		return err
	}
	if err := t.open(); err != nil {
		return err
	}
	t.scheduleFlush()
	failpoint.At("task/running")
	t.report(pb.TaskState_RUNNING, nil)
	if t.d.CommitOnly {
		t.endAtOnce()
	}
	if err := t.loop(); err != nil {
		return err
	}
	return t.closeAll()
}

// open composes and opens the operators. A task that is held waits afterwards.
func (t *Task) open() error {
	var misfit *operator.MisfitError
	if err := t.compose(); err != nil {
		return err
	}
	t.composed.Store(true)
	for i := len(t.ops) - 1; i >= 0; i-- {
		t.mark.Current = i
		err := operator.Open(t.ctx, t.ops[i], t.ctxs[i])
		var m *operator.MisfitError
		if errors.As(err, &m) {
			misfit = misfit.Add(m) // what else does not fit is told with it
		} else if err != nil {
			return fmt.Errorf("open: %w", err)
		}
	}
	switch {
	case t.d.Hold:
		return t.hold(misfit)
	case misfit != nil:
		return fmt.Errorf("open: %w", misfit)
	}
	return nil
}

// hold tells what of the stored state does not fit, and waits: for the word to go on or, when something does not fit in any task of the job, for the end.
func (t *Task) hold(misfit *operator.MisfitError) error {
	var misfits []string
	if misfit != nil {
		misfits = misfit.Misfits
	}
	t.env.Report.Opened(t.d.Execution, misfits)
	select {
	case <-t.proceed:
		return nil
	case <-t.ctx.Done():
		return context.Cause(t.ctx)
	}
}

// current describes the operator whose user code runs.
func (t *Task) current() string {
	if i := t.mark.Current; i < len(t.ctxs) && t.ctxs[i] != nil {
		return t.ctxs[i].Describe()
	}
	return t.d.Vertex.Name
}

// position is where the source reads, "" when it does not say.
func (t *Task) position() (pos string) {
	if t.source == nil {
		return ""
	}
	if err := guard.Run(func() error { pos = t.source.Position(); return nil }); err != nil {
		return fmt.Sprintf("a position that could not be told (%v)", err)
	}
	return pos
}

// closeAll closes the operators at a clean end, while the task's context lives: what a function's Close does may count (a last write), so
// its error fails the task.
func (t *Task) closeAll() error {
	for i, o := range t.ops {
		t.ops[i], t.mark.Current = nil, i
		if err := o.Close(); err != nil {
			return fmt.Errorf("close: %w", err)
		}
	}
	return nil
}

// batch is how many records a source emits between looks at the mailbox.
const batch = 512

func (t *Task) loop() error {
	wake := time.NewTimer(time.Hour)
	defer wake.Stop()
	for {
		t.mail.look.Store(false)
		if err := t.mail.run(); err != nil {
			return err
		}
		if err := context.Cause(t.ctx); err != nil {
			return err
		}
		if t.finishing && t.drained() {
			return t.finish()
		}
		if t.full() {
			if err := t.waitForRoom(); err != nil {
				return err
			}
			continue
		}
		if err := t.timers.run(t.Now()); err != nil {
			return err
		}
		if err := t.paces.run(t.Uptime()); err != nil {
			return err
		}
		progress, err := t.input.step()
		if err != nil {
			return err
		}
		t.publish()
		if !progress && t.mail.pending.Load() == 0 {
			longest, err := t.flush.idle(t.parts)
			if err != nil {
				return err
			}
			t.wait(wake, longest)
		}
	}
}

// clockPatience is how long a task that waits for a time of the day sleeps before it looks at the clock again, which may have been set.
const clockPatience = time.Second

// wait sleeps until a mail, input, a timer or the end, and no longer than longest.
func (t *Task) wait(wake *time.Timer, longest time.Duration) {
	d := longest
	if at, ok := t.timers.next(); ok {
		d = min(d, clockPatience, time.Duration(at-t.Now())*time.Millisecond)
	}
	if at, ok := t.paces.next(); ok {
		d = min(d, time.Duration(at-t.Uptime())*time.Millisecond)
	}
	if d <= 0 {
		return
	}
	wake.Reset(d)
	start := t.metrics.idleBegin()
	select {
	case <-t.mail.wake:
	case <-t.input.available():
	case <-wake.C:
	case <-t.ctx.Done():
	}
	t.metrics.idleEnd(start)
}

func (t *Task) drained() bool {
	for _, o := range t.ops {
		if !o.Drained() {
			return false
		}
	}
	return t.snapshots.idle()
}

func (t *Task) finish() error {
	for _, p := range t.parts {
		if err := p.Finish(); err != nil && !isConnection(err) { // consumers may have finished already
			return err
		}
	}
	return nil
}

func isConnection(err error) bool {
	var c *network.ConnectionError
	return errors.As(err, &c)
}

func (t *Task) publish() {
	for _, o := range t.ops {
		o.Publish()
	}
	var out int64
	for _, w := range t.writers {
		out += w.Records()
	}
	t.metrics.recordsIn.Store(t.input.records())
	t.metrics.recordsOut.Store(out)
	t.metrics.watermark.Store(t.input.watermark())
}

// scheduleFlush flushes the outputs each execution.buffer-timeout, which is what bounds the wait of a record while the task is busy. When
// it has nothing to do it does not wait for that (idleFlush).
func (t *Task) scheduleFlush() {
	every := config.BufferTimeout.Value(t.env.Config).Milliseconds()
	if every <= 0 || len(t.parts) == 0 || t.d.Batch { // in BATCH nobody waits for a buffer
		return
	}
	t.flush = newIdleFlush(t.parts)
	var again func() error
	again = func() error {
		for _, p := range t.parts {
			if err := p.FlushAll(); err != nil {
				return err
			}
		}
		t.After(every, again)
		return nil
	}
	t.After(every, again)
}

func (t *Task) cleanup(err error) {
	t.snapshots.abortAll()
	t.unaligned.close()
	if err == nil {
		t.cancel(nil)
	} else {
		t.cancel(err)
	}
	if t.input != nil {
		t.input.close()
	}
	for _, p := range t.parts {
		p.Close()
	}
	for i, o := range t.ops {
		if o == nil {
			continue
		}
		t.ops[i] = nil
		if cerr := t.closeOperator(o); cerr != nil && !errors.Is(cerr, context.Canceled) {
			t.log.Warn().Err(cerr).Msg("operator did not close well")
		}
	}
	t.snapshots.wait()
	t.mail.close()
}

// closeOperator closes an operator; a panic in user code there must not take the worker down.
func (t *Task) closeOperator(o operator.Operator) error {
	if err := guard.Run(o.Close); err != nil {
		if guard.Stack(err) != "" {
			return fmt.Errorf("%s: while closing: %w\n%s", t.current(), err, guard.Stack(err))
		}
		return err
	}
	return nil
}

func (t *Task) describe(err error) *pb.Failure {
	f := &pb.Failure{Message: err.Error(), Kind: "error"}
	var p *operator.PanicError
	var u *operator.UserError
	var c *network.ConnectionError
	var fatal interface{ Fatal() bool }
	switch {
	case errors.As(err, &p):
		f.Kind, f.Detail, f.Operator = "panic", p.Stack, p.Operator
		if errors.As(err, &u) {
			f.Operator = u.Operator
		}
	case errors.As(err, &c):
		f.Kind = "connection"
		switch c.Kind {
		case network.PartitionLost:
			f.Kind, f.LostPartition = "partition", c.Partition.Producer.String()
		case network.PartitionNotFound:
			f.LostPartition = c.Partition.Producer.String()
		default:
		}
	case errors.As(err, &u):
		f.Operator = u.Operator
		if pos := t.position(); pos != "" {
			f.Detail = "while reading " + pos
		}
	}
	if errors.As(err, &fatal) {
		f.Fatal = fatal.Fatal()
	}
	var damaged interface{ Damaged() bool }
	if errors.As(err, &damaged) {
		f.Kind = rpc.KindDamaged
	}
	return f
}

// Services of operators.

// Post implements operator.Services.
func (t *Task) Post(fn func() error) { t.mail.post(fn) }

// Now implements operator.Services.
func (t *Task) Now() int64 { return t.env.Now().UnixMilli() }

// Uptime implements operator.Services.
func (t *Task) Uptime() int64 { return time.Since(t.born).Milliseconds() }

// Backpressured implements operator.Services.
func (t *Task) Backpressured() int64 {
	var n int64
	for _, p := range t.parts {
		n += p.BackpressuredNanos()
	}
	return n / 1e6
}

// At implements operator.Services; task's goroutine only.
func (t *Task) At(ms int64, fn func() error) { t.timers.add(ms, fn) }

// After implements operator.Services; task's goroutine only.
func (t *Task) After(ms int64, fn func() error) { t.paces.add(t.Uptime()+ms, fn) }

// Fail implements operator.Services.
func (t *Task) Fail(err error) {
	t.cancel(err)
	t.mail.notify()
}

// Wake implements operator.Services.
func (t *Task) Wake() { t.mail.notify() }

// Context implements operator.Services.
func (t *Task) Context() context.Context { return t.ctx }

// SendEvent implements operator.Services.
func (t *Task) SendEvent(op graph.OperatorID, payload []byte) {
	t.takeover.Sent(payload)
	t.env.Report.Event(op, t.d.Execution, payload)
}
