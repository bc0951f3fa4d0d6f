// Package worker is what the user's binary does in the roles worker and coordinator (or inside of the embedded cluster): it speaks to
// its TaskManager, or to the JobMaster, over a Link and runs tasks, or enumerators. It is layer L3.
//
// Run owns everything it starts: when its link or its context ends, every task is cancelled and waited for before it returns. A worker
// serves one job. Its tasks exchange data through one network.Environment. Files: worker.go (tasks), coordinator.go (enumerators).
package worker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/checkpoint/storage/backup"
	"github.com/thalweg/thalweg/checkpoint/storage/merge"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/config/memory"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/internal/failpoint"
	"github.com/thalweg/thalweg/internal/version"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/network"
	"github.com/thalweg/thalweg/runtime/rpc"
	"github.com/thalweg/thalweg/runtime/rpc/pb"
	"github.com/thalweg/thalweg/runtime/task"
	"github.com/thalweg/thalweg/state"
)

// metricsInterval is how often task metrics are sent.
const metricsInterval = time.Second

// Run serves as worker until the link or ctx ends. It returns nil after an orderly end of the link.
func Run(ctx context.Context, link rpc.WorkerUplink, cfg rpc.ProcessConfig, p *graph.Program, reg *fs.Registry, log zerolog.Logger) error {
	failpoint.At("worker/start")
	return newWorker(link, cfg, p, reg, log).run(ctx, cfg)
}

// run is the life of a worker.
func (w *worker) run(ctx context.Context, cfg rpc.ProcessConfig) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	host := cfg.Host
	if host == "" {
		host = "localhost"
	}
	addr, err := w.env.Network.Listen(ctx, host+":0")
	if err != nil {
		return errors.Join(fmt.Errorf("worker: listen for data: %w", err), w.env.Network.Close())
	}
	err = w.serve(ctx, cfg, addr)
	cancel()
	w.cancelAll()
	w.env.Backup.Close()
	return errors.Join(err, w.env.Network.Close())
}

// newWorker makes a worker whose exchange does not listen yet. Its run closes the exchange.
func newWorker(link rpc.WorkerUplink, cfg rpc.ProcessConfig, p *graph.Program, reg *fs.Registry, log zerolog.Logger) *worker {
	conf := config.Configuration(cfg.Config)
	floating := config.FloatingBuffers.Value(conf)
	if floating == 0 {
		floating = -1 // none; zero is network's default
	}
	net := network.New(network.Config{
		BufferSize:        int(config.NetworkBufferSize.Value(conf)),
		BuffersPerChannel: config.BuffersPerChannel.Value(conf),
		FloatingPerGate:   floating,
		PeerTimeout:       config.HeartbeatTimeout.Value(conf),
		Token:             secret(cfg),
	}, log)
	w := &worker{link: link, program: p, log: log, tasks: map[graph.ExecutionID]*task.Task{}}
	w.env = task.Environment{
		JobID: cfg.JobID, Embedded: cfg.Embedded, Config: conf, Network: net, FS: reg, Dirs: cfg.Dirs, Logger: log, Now: time.Now, Report: w,
		StateMemory: stateMemory(conf, cfg),
	}
	if config.LocalBackup.Value(conf) {
		w.env.Backup = backup.New(cfg.BackupDirs, log)
		if config.FromLocal.Value(conf) {
			w.env.Recover = w.env.Backup
		}
	}
	if config.FileMerging.Value(conf) {
		w.env.Merge = merge.New(merge.Config{MaxFileSize: int64(config.FileMergingMaxSize.Value(conf)), MaxSubtasks: config.FileMergingMaxSubtasks.Value(conf),
			MaxAmplification: config.FileMergingMaxAmplification.Value(conf)})
	}
	w.env.StatePool = (&pools{bytes: w.env.StateMemory, graph: p.Graph, made: map[poolKey]*state.Pool{}}).get
	return w
}

// secret is what this worker and the others of the job authenticate each other with. A worker that was given none keeps to itself.
func secret(cfg rpc.ProcessConfig) []byte {
	if len(cfg.DataSecret) > 0 {
		return cfg.DataSecret
	}
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails, crypto/rand's contract
	return b
}

// stateMemory is a slot's share of the managed memory.
func stateMemory(conf config.Configuration, cfg rpc.ProcessConfig) int64 {
	return int64(memory.Managed(config.Bytes(cfg.MemoryBytes), conf)) / int64(max(1, cfg.Slots))
}

// pools are the memory of slots for state. A slot runs at most one subtask of each vertex of its sharing group, those of one number, and
// each keyed operator among them has a backend.
type pools struct {
	bytes int64
	graph *graph.JobGraph

	mu   sync.Mutex
	made map[poolKey]*state.Pool
}

type poolKey struct {
	group   string
	subtask int
}

func (p *pools) get(group string, subtask int) *state.Pool {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := poolKey{group, subtask}
	if p.made[k] == nil {
		keyed := 0
		for _, v := range p.graph.Vertices {
			for _, o := range v.Operators {
				if v.SlotSharingGroup == group && o.Keyed {
					keyed++
				}
			}
		}
		p.made[k] = state.NewPool(max(p.bytes, leastState), keyed)
	}
	return p.made[k]
}

// leastState is what a slot's state gets when the configuration leaves less: backends do not start with nothing.
const leastState = 8 << 20

type worker struct {
	link    rpc.WorkerUplink
	program *graph.Program
	env     task.Environment
	log     zerolog.Logger

	mu    sync.Mutex
	tasks map[graph.ExecutionID]*task.Task
	wg    sync.WaitGroup
}

func (w *worker) serve(ctx context.Context, cfg rpc.ProcessConfig, addr string) error {
	hello := &pb.WorkerHello{Protocol: version.Protocol, Sdk: version.Version, Pid: int32(os.Getpid()), DataAddress: addr,
		Fingerprint: w.program.Graph.Fingerprint, JobId: cfg.JobID}
	if err := w.link.Send(&pb.WorkerUp{Msg: &pb.WorkerUp_Hello{Hello: hello}}); err != nil {
		return fmt.Errorf("worker: greet: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { w.link.Close(context.Cause(ctx)) })
	defer stop()
	bctx, end := context.WithCancel(ctx)
	var beside sync.WaitGroup
	beside.Go(func() { w.reportMetrics(bctx) })
	beside.Go(func() { rpc.Beat(bctx, config.HeartbeatInterval.Value(cfg.Config), func() { w.send(&pb.WorkerUp{}) }) })
	defer func() { end(); beside.Wait() }()
	for {
		m, err := w.link.Recv()
		if err != nil {
			if errors.Is(err, rpc.ErrPeerClosed) || errors.Is(err, rpc.ErrClosed) || ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("worker: connection to the TaskManager: %w", err)
		}
		w.handle(ctx, m)
	}
}

func (w *worker) send(m *pb.WorkerUp) {
	// A link that is over ends the worker through Recv; what could not be sent is void then.
	_ = w.link.Send(m)
}

func (w *worker) handle(ctx context.Context, m *pb.WorkerDown) {
	switch m := m.GetMsg().(type) {
	case *pb.WorkerDown_Deploy:
		failpoint.At("worker/deploy")
		w.deploy(ctx, m.Deploy.GetTasks(), int(m.Deploy.GetOldestAttempt()), executions(m.Deploy.GetKept()))
	case *pb.WorkerDown_Cancel:
		if m.Cancel.GetAll() {
			w.each(func(t *task.Task) { t.Cancel() })
		}
		for _, id := range m.Cancel.GetExecutionIds() {
			if t := w.task(id); t != nil {
				t.Cancel()
			} else if e, err := graph.ParseExecutionID(id); err == nil {
				w.State(e, pb.TaskState_CANCELED, nil)
			}
		}
	case *pb.WorkerDown_Trigger:
		for _, id := range m.Trigger.GetExecutionIds() {
			if t := w.task(id); t != nil {
				t.Trigger(m.Trigger)
			} else if e, err := graph.ParseExecutionID(id); err == nil {
				w.Decline(e, m.Trigger.GetCheckpointId(), &pb.Failure{Message: "the task is not running", Kind: rpc.KindNotRunning})
			}
		}
	case *pb.WorkerDown_Completed:
		w.completed(m.Completed)
		w.env.Backup.Completed(m.Completed.GetCheckpointId())
	case *pb.WorkerDown_Aborted:
		w.env.Backup.Aborted(m.Aborted.GetCheckpointId())
		w.each(func(t *task.Task) { t.CheckpointAborted(m.Aborted.GetCheckpointId(), m.Aborted.GetResume()) })
	case *pb.WorkerDown_OperatorEvent:
		w.operatorEvent(m.OperatorEvent)
	case *pb.WorkerDown_Finish:
		for _, id := range m.Finish.GetExecutionIds() {
			if t := w.task(id); t != nil {
				t.Finish()
			}
		}
	case *pb.WorkerDown_Proceed:
		for _, id := range m.Proceed.GetExecutionIds() {
			if t := w.task(id); t != nil {
				t.Proceed()
			}
		}
	case *pb.WorkerDown_Report:
		r := &pb.TasksReport{}
		w.each(func(t *task.Task) { r.Tasks = append(r.Tasks, t.Survives()) })
		w.send(&pb.WorkerUp{Msg: &pb.WorkerUp_Report{Report: r}})
	case *pb.WorkerDown_Adopt:
		failpoint.At("worker/adopt")
		w.adopt(m.Adopt.GetExecutionIds())
	case *pb.WorkerDown_Release:
		w.env.Network.Release(executions(m.Release.GetExecutionIds())...)
	}
}

// adopt tells tasks that another JobMaster goes on with them, and cancels the others.
func (w *worker) adopt(ids []string) {
	adopted := map[graph.ExecutionID]bool{}
	for _, id := range executions(ids) {
		adopted[id] = true
	}
	w.each(func(t *task.Task) {
		if adopted[t.ID()] {
			t.Adopted()
			return
		}
		t.Cancel()
	})
}

func executions(texts []string) (ids []graph.ExecutionID) {
	for _, id := range texts {
		if e, err := graph.ParseExecutionID(id); err == nil {
			ids = append(ids, e)
		}
	}
	return ids
}

func (w *worker) completed(m *pb.CheckpointNotice) {
	if len(m.GetExecutionIds()) == 0 {
		w.each(func(t *task.Task) { t.CheckpointComplete(m.GetCheckpointId()) })
	}
	for _, id := range m.GetExecutionIds() {
		if t := w.task(id); t != nil {
			t.CheckpointComplete(m.GetCheckpointId())
		}
	}
}

func (w *worker) task(id string) *task.Task {
	e, err := graph.ParseExecutionID(id)
	if err != nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tasks[e]
}

func (w *worker) each(fn func(*task.Task)) {
	w.mu.Lock()
	all := make([]*task.Task, 0, len(w.tasks))
	for _, t := range w.tasks {
		all = append(all, t)
	}
	w.mu.Unlock()
	for _, t := range all {
		fn(t)
	}
}

func (w *worker) operatorEvent(e *pb.OperatorEvent) {
	id, err := graph.ParseID(e.GetOperatorId())
	if err != nil {
		return
	}
	w.each(func(t *task.Task) {
		if x := t.ID(); x.Subtask == int(e.GetSubtask()) && x.Attempt == int(e.GetAttempt()) {
			t.OperatorEvent(graph.OperatorID{ID: id}, e.GetPayload())
		}
	})
}

// deploy starts tasks. Tasks of attempts that are void, or before these of their vertex, are cancelled first, and waited for: they may hold
// the resources of the new ones (a JobMaster that took over knows nothing of them). What void attempts left in the exchange goes with them.
// Stages that go on, or, in BATCH, are finished, have older attempts; the partitions kept are of an earlier JobMaster.
func (w *worker) deploy(ctx context.Context, ds []*pb.TaskDeployment, oldest int, kept []graph.ExecutionID) {
	attempt := map[graph.VertexID]int{}
	for _, d := range ds {
		if e, err := graph.ParseExecutionID(d.GetExecutionId()); err == nil {
			attempt[e.Vertex] = max(attempt[e.Vertex], e.Attempt)
		}
	}
	var old []*task.Task
	w.each(func(t *task.Task) {
		if id := t.ID(); id.Attempt < max(oldest, attempt[id.Vertex]) {
			t.Cancel()
			old = append(old, t)
		}
	})
	release := sync.OnceFunc(func() {
		for _, o := range old {
			<-o.Done()
		}
		w.env.Network.ReleaseBefore(oldest, kept...) // what finished and was not read to its end; nobody will
	})
	for _, d := range ds {
		t, err := w.make(ctx, d)
		if err != nil {
			if e, perr := graph.ParseExecutionID(d.GetExecutionId()); perr == nil {
				w.State(e, pb.TaskState_FAILED, &pb.Failure{Message: err.Error(), Kind: "deploy"})
			}
			continue
		}
		w.mu.Lock()
		w.tasks[t.ID()] = t
		w.mu.Unlock()
		w.wg.Go(func() {
			release()
			t.Run()
			w.mu.Lock()
			delete(w.tasks, t.ID())
			w.mu.Unlock()
		})
	}
}

func (w *worker) make(ctx context.Context, d *pb.TaskDeployment) (*task.Task, error) {
	e, err := graph.ParseExecutionID(d.GetExecutionId())
	if err != nil {
		return nil, fmt.Errorf("worker: deploy: %w", err)
	}
	v, head := w.program.Graph.Vertex(e.Vertex), w.program.Heads[e.Vertex]
	if v == nil || head == nil {
		return nil, fmt.Errorf("worker: deploy %s: this binary's graph has no such vertex", d.GetExecutionId())
	}
	td := task.Deployment{
		Execution: e, JobName: w.program.Graph.Name, Vertex: v, Head: head, Subtask: int(d.GetSubtask()),
		Parallelism: int(d.GetParallelism()), MaxParallelism: int(d.GetMaxParallelism()),
		RestoredCheckpoint: d.GetRestoredCheckpointId(), Slot: int(d.GetSlot()), ConsumerMax: map[int]int{},
		Batch: w.program.Graph.Mode == graph.Batch, CommitOnly: d.GetCommitOnly(), Hold: d.GetHold(),
	}
	for _, g := range d.GetInputs() {
		var in []network.Source
		for _, c := range g.GetChannels() {
			p, err := graph.ParseExecutionID(c.GetProducer())
			if err != nil {
				return nil, fmt.Errorf("worker: deploy %s: input: %w", d.GetExecutionId(), err)
			}
			in = append(in, network.Source{Partition: network.PartitionID{Producer: p, Output: int(c.GetOutput())}, Subpartition: int(c.GetSubpartition()), Address: c.GetAddress()})
		}
		td.Inputs = append(td.Inputs, in)
	}
	for i, o := range d.GetOutputs() {
		td.Subpartitions = append(td.Subpartitions, int(o.GetSubpartitions()))
		if i < len(v.Outputs) { // the task checks it
			td.Overtakes = append(td.Overtakes, w.program.Graph.Vertex(v.Outputs[i].To).Overtakes())
		}
		td.ConsumerMax[i] = int(o.GetConsumerMaxParallelism()) // not the graph's: restored state may have set another
	}
	if b := d.GetRestore(); len(b) > 0 {
		if td.Restore, err = metadata.DecodeTask(b); err != nil {
			return nil, fmt.Errorf("worker: deploy %s: restore: %w", d.GetExecutionId(), err)
		}
	}
	return task.New(ctx, w.env, td), nil
}

func (w *worker) cancelAll() {
	w.each(func(t *task.Task) { t.Cancel() })
	w.wg.Wait()
}

func (w *worker) reportMetrics(ctx context.Context) {
	tick := time.NewTicker(metricsInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			m := &pb.WorkerMetrics{TimeMs: now.UnixMilli()}
			w.each(func(t *task.Task) { m.Tasks = append(m.Tasks, t.Metrics()) })
			if len(m.Tasks) > 0 {
				w.send(&pb.WorkerUp{Msg: &pb.WorkerUp_Metrics{Metrics: m}})
			}
		}
	}
}

// State implements task.Reporter. Metrics of a task that ends are sent first, so that its totals are right.
func (w *worker) State(id graph.ExecutionID, s pb.TaskState, f *pb.Failure) {
	if s == pb.TaskState_FINISHED || s == pb.TaskState_END_OF_DATA {
		if t := w.task(id.String()); t != nil {
			w.send(&pb.WorkerUp{Msg: &pb.WorkerUp_Metrics{Metrics: &pb.WorkerMetrics{TimeMs: time.Now().UnixMilli(), Tasks: []*pb.TaskMetrics{t.Metrics()}}}})
		}
	}
	w.send(&pb.WorkerUp{Msg: &pb.WorkerUp_TaskState{TaskState: &pb.TaskStateChanged{ExecutionId: id.String(), State: s, Failure: f}}})
}

// Ack implements task.Reporter.
func (w *worker) Ack(a *pb.CheckpointAck) {
	w.send(&pb.WorkerUp{Msg: &pb.WorkerUp_Ack{Ack: a}})
}

// Decline implements task.Reporter.
func (w *worker) Decline(id graph.ExecutionID, checkpoint int64, f *pb.Failure) {
	w.send(&pb.WorkerUp{Msg: &pb.WorkerUp_Declined{Declined: &pb.CheckpointDeclined{ExecutionId: id.String(), CheckpointId: checkpoint, Failure: f}}})
}

// Opened implements task.Reporter.
func (w *worker) Opened(id graph.ExecutionID, misfits []string) {
	w.send(&pb.WorkerUp{Msg: &pb.WorkerUp_Opened{Opened: &pb.TaskOpened{ExecutionId: id.String(), Misfits: misfits}}})
}

// Event implements task.Reporter.
func (w *worker) Event(op graph.OperatorID, id graph.ExecutionID, payload []byte) {
	w.send(&pb.WorkerUp{Msg: &pb.WorkerUp_OperatorEvent{OperatorEvent: &pb.OperatorEvent{OperatorId: op.String(), Subtask: int32(id.Subtask), Attempt: int32(id.Attempt), Payload: payload}}})
}
