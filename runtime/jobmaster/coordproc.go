package jobmaster

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/thalweg/thalweg/checkpoint/coordinator"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/internal/version"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/rpc"
	"github.com/thalweg/thalweg/runtime/rpc/pb"
	"github.com/thalweg/thalweg/runtime/scheduler"
)

// coordState is the coordinator process as the loop sees it. Launches are numbered: what an earlier process says is dropped.
type coordState struct {
	launch   int
	starting bool
	link     rpc.CoordinatorLink
	stop     func() string
	hello    bool
	started  *preparation // StartCoordinators was sent for it
	starts   int          // StartCoordinators that no Ready has answered
	// stopTimeout ends the wait for the process to be ready.
	stopTimeout func()
}

// startCoordinators (re)starts the enumerators for the present preparation, and the process if there is none.
func (j *JobMaster) startCoordinators() {
	p := j.prep
	if p == nil || !p.restored || p.coord || j.coord.started == p && j.coord.hello {
		return
	}
	operators := j.coordinated(p)
	if j.opts.LaunchCoordinator == nil || p.part && len(operators) == 0 {
		p.coord = true
		j.checkPrepared()
		return
	}
	if j.coord.link == nil {
		j.launchCoordinator()
		return
	}
	if !j.coord.hello {
		return // goes on with its hello
	}
	j.coord.started = p
	if p.attempts == nil {
		j.startAttempt(p, p.attempt, operators)
		return
	}
	by := map[int][]string{}
	for v, attempt := range p.attempts {
		by[attempt] = append(by[attempt], j.sources(v)...)
	}
	for attempt, operators := range by {
		if len(operators) > 0 {
			j.startAttempt(p, attempt, operators)
		}
	}
}

// startAttempt (re)starts the enumerators of sources, all when none is named, for readers of an attempt.
func (j *JobMaster) startAttempt(p *preparation, attempt int, operators []string) {
	j.coord.starts++
	start := &pb.StartCoordinators{States: map[string][]byte{}, Parallelism: map[string]int32{}, Restored: p.id != 0, Attempt: int32(attempt), Operators: operators}
	for id, b := range p.states {
		start.States[id.String()] = b
	}
	for i := range j.graph.Vertices {
		for _, op := range j.graph.Vertices[i].Operators {
			start.Parallelism[op.ID.String()] = int32(j.graph.Vertices[i].Parallelism)
		}
	}
	j.toCoordinator(&pb.CoordinatorDown{Msg: &pb.CoordinatorDown_Start{Start: start}})
}

// sources lists the sources of a vertex.
func (j *JobMaster) sources(v graph.VertexID) (ids []string) {
	for _, op := range j.vertex[v].Operators {
		if op.Source {
			ids = append(ids, op.ID.String())
		}
	}
	return ids
}

// coordinated lists the sources whose enumerators are to be started anew when that is only for a part of the job.
func (j *JobMaster) coordinated(p *preparation) (ids []string) {
	if !p.part {
		return nil
	}
	for _, v := range p.vertices {
		ids = append(ids, j.sources(v)...)
	}
	return ids
}

func (j *JobMaster) launchCoordinator() {
	if j.coord.starting {
		return
	}
	j.coord.launch++
	n := j.coord.launch
	j.coord.starting = true
	j.coord.stopTimeout()
	j.coord.stopTimeout = j.after(j.opts.ReadyTimeout, func() {
		if j.coord.launch == n && j.prep != nil && !j.prep.coord {
			j.fail(scheduler.Failure{Kind: "coordinator", Message: fmt.Sprintf("the coordinator process was not ready within %s", j.opts.ReadyTimeout)})
		}
	})
	process := rpc.ProcessConfig{JobID: j.id, JobName: j.graph.Name, Fingerprint: j.graph.Fingerprint, Config: j.opts.Config, Args: j.opts.Args, Graph: j.graphJSON}
	j.beside(func(ctx context.Context) {
		link, stop, err := j.opts.LaunchCoordinator(ctx, process)
		var taken atomic.Bool
		j.q.Post(func() {
			if taken.CompareAndSwap(false, true) {
				j.coordinatorLaunched(n, link, stop, err)
			}
		})
		if err != nil {
			return
		}
		<-ctx.Done() // the loop has ended: it took the process, or nobody did
		if taken.CompareAndSwap(false, true) {
			link.Close(nil)
			stop()
		}
	})
}

func (j *JobMaster) coordinatorLaunched(n int, link rpc.CoordinatorLink, stop func() string, err error) {
	if n != j.coord.launch {
		if err == nil {
			link.Close(nil)
			j.beside(func(context.Context) { stop() })
		}
		return
	}
	j.coord.starting = false
	if err != nil {
		text, tail := exitText(err.Error())
		f := scheduler.Failure{Kind: "coordinator", Death: true, Message: "the coordinator process could not be started: " + text, Detail: tail}
		var permanent interface{ Permanent() bool }
		if errors.As(err, &permanent) && permanent.Permanent() {
			f.Fatal = true
		}
		j.fail(f)
		return
	}
	j.coord.link, j.coord.stop, j.coord.hello, j.coord.started, j.coord.starts = link, stop, false, nil, 0
	j.wg.Go(func() { j.listenToCoordinator(n, link) })
}

// errSilent is the end of a coordinator process that is stopped or frozen.
var errSilent = errors.New("no word from it for heartbeat.timeout")

// listenToCoordinator hands over what the process sends until its link ends, which it does too when the process falls silent.
func (j *JobMaster) listenToCoordinator(n int, link rpc.CoordinatorLink) {
	timeout := config.HeartbeatTimeout.Value(j.opts.Config)
	var silent atomic.Bool
	watch := rpc.NewWatch(config.HeartbeatInterval.Value(j.opts.Config), timeout, func() {
		silent.Store(true)
		link.Close(errSilent)
	})
	defer watch.Stop()
	for {
		watch.Listen()
		up, err := link.Recv()
		if err != nil {
			if silent.Load() {
				err = fmt.Errorf("%w (%s), as when a process is stopped or frozen; it is killed", errSilent, timeout)
			}
			j.q.Post(func() { j.coordinatorGone(n, err) })
			return
		}
		beat := up.GetMsg() == nil
		if watch.Heard(beat); !beat {
			j.q.PostWait(j.ctx, func() { j.fromCoordinator(n, up) })
		}
	}
}

func (j *JobMaster) toCoordinator(down *pb.CoordinatorDown) {
	if j.coord.link != nil && j.coord.hello {
		_ = j.coord.link.Send(down) // a broken link shows as coordinatorGone
	}
}

func (j *JobMaster) fromCoordinator(n int, up *pb.CoordinatorUp) {
	if n != j.coord.launch || j.result != nil {
		return
	}
	switch m := up.GetMsg().(type) {
	case *pb.CoordinatorUp_Hello:
		switch h := m.Hello; {
		case h.GetProtocol() != version.Protocol:
			j.fail(scheduler.Failure{Kind: "protocol", Fatal: true, Message: fmt.Sprintf(
				"the job's binary was built with SDK %s (protocol %d), the cluster is %s (protocol %d): build the job with the cluster's version", h.GetSdk(), h.GetProtocol(), version.Version, version.Protocol)})
			return
		case h.GetFingerprint() != "" && h.GetFingerprint() != j.graph.Fingerprint:
			j.fail(scheduler.Failure{Kind: "graph", Fatal: true, Message: fmt.Sprintf(
				"the job's binary built another graph in the coordinator process (fingerprint %.12s, submitted %.12s): build must not depend on time, randomness, map order or the machine", h.GetFingerprint(), j.graph.Fingerprint)})
			return
		}
		j.coord.hello = true
		j.startCoordinators()
	case *pb.CoordinatorUp_Ready:
		if j.coord.starts--; j.prep != nil && j.coord.started == j.prep && j.coord.starts == 0 {
			j.coord.stopTimeout()
			j.prep.coord = true
			j.checkPrepared()
		}
	case *pb.CoordinatorUp_OperatorEvent:
		j.relayToTask(m.OperatorEvent)
	case *pb.CoordinatorUp_Snapshot:
		if j.ckpt == nil {
			return
		}
		// The trigger messages leave in this very step, ahead of any event that comes after the snapshot.
		ev := coordinator.CoordinatorSnapshot{ID: m.Snapshot.GetCheckpointId(), States: map[graph.OperatorID][]byte{}}
		for text, b := range m.Snapshot.GetStates() {
			id, err := graph.ParseID(text)
			if err != nil {
				ev.Err = fmt.Errorf("jobmaster: the coordinator process sent the state of %q: %w", text, err)
				break
			}
			ev.States[graph.OperatorID{ID: id}] = b
		}
		if e := m.Snapshot.GetError(); e != "" {
			ev.Err = fmt.Errorf("coordinator process: %s", e)
		}
		j.ckpt.step(ev)
	case *pb.CoordinatorUp_Failure:
		f := failureOf(m.Failure)
		j.fail(f)
	}
}

// relayToTask passes an event on to the subtask that it is meant for, if that attempt still runs.
func (j *JobMaster) relayToTask(e *pb.OperatorEvent) {
	v, ok := j.ops[e.GetOperatorId()]
	if !ok || j.sched == nil {
		return
	}
	x := j.sched.Execution(graph.ExecutionID{Vertex: v, Subtask: int(e.GetSubtask()), Attempt: int(e.GetAttempt())})
	if x == nil || x.State.Terminal() || x.Slot.TaskManager == "" {
		return
	}
	j.toWorker(x.Slot.TaskManager, &pb.WorkerDown{Msg: &pb.WorkerDown_OperatorEvent{OperatorEvent: e}})
}

// coordinatorGone: the process ended, or its link broke. The job restarts with another one.
func (j *JobMaster) coordinatorGone(n int, err error) {
	if n != j.coord.launch || j.coord.link == nil {
		return
	}
	stop := j.coord.stop
	j.coord.link.Close(nil)
	j.coord.link, j.coord.stop, j.coord.hello, j.coord.started = nil, nil, false, nil
	if j.prep != nil {
		j.prep.coord = false
	}
	j.beside(func(context.Context) {
		how := stop()
		if how == "" || errors.Is(err, errSilent) {
			how = err.Error()
		}
		reason, tail := exitText(how)
		j.q.Post(func() {
			if !j.enumerating() {
				j.log.Warn().Str("reason", reason).Msg("the coordinator process ended; no source needs it any more")
				return
			}
			j.fail(scheduler.Failure{Kind: "coordinator", Death: true, Detail: tail, Message: "the coordinator process ended: " + reason})
			j.startCoordinators() // while the job restarts for another reason
		})
	})
}

// endCoordinator ends the process in order.
func (j *JobMaster) endCoordinator() {
	j.coord.launch++
	if j.coord.link == nil {
		return
	}
	_ = j.coord.link.Send(&pb.CoordinatorDown{Msg: &pb.CoordinatorDown_Shutdown{Shutdown: &pb.Shutdown{Reason: "the job has ended"}}}) // the close below says the same
	j.coord.link.Close(nil)
	stop, log := j.coord.stop, j.log
	j.coord.link = nil
	j.wg.Go(func() {
		began := time.Now()
		if how := stop(); how != "" {
			log.Debug().Str("how", how).Dur("dur", time.Since(began)).Msg("the coordinator process ended")
		}
	})
}
