package faults

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/thalweg/thalweg/internal/failpoint"
)

// provoke makes processes come to points that they do not come to by themselves.
type provoke func(ctx context.Context, r *run) error

// at is a fault at a failpoint (docs/failpoints.md).
func at(point string, a failpoint.Action, by provoke) Fault {
	f := Fault{Name: string(a.Kind) + " at " + point}
	f.Do = func(ctx context.Context, r *run) error {
		if err := r.armoury.Arm(point, a); err != nil {
			return err
		}
		pctx, enough := context.WithCancel(ctx)
		provoked := make(chan error, 1)
		go func() {
			if by == nil {
				provoked <- nil
				return
			}
			provoked <- by(pctx, r)
		}()
		wctx, cancel := context.WithTimeout(ctx, reachWithin)
		defer cancel()
		pid, rerr := r.armoury.Await(wctx, point)
		enough() // a client may wait for an answer that nobody gives any more
		err := <-provoked
		if rerr != nil {
			return errors.Join(fmt.Errorf("%w (%w)", errNotReached, rerr), err, r.armoury.Disarm(point))
		}
		if err != nil {
			return err
		}
		switch a.Kind {
		case failpoint.Stop:
			return r.wake(ctx, pid, stopFor)
		case failpoint.Sleep:
			return r.pause(ctx, a.For)
		}
		return nil
	}
	return f
}

// meanwhile is a fault that strikes while a process stands at a failpoint, where it stays for d.
func meanwhile(point string, d time.Duration, f Fault) Fault {
	do := f.Do
	f.Name += ", while somebody is at " + point
	f.Alone = true
	f.Do = func(ctx context.Context, r *run) error {
		if err := r.armoury.Arm(point, failpoint.Action{Kind: failpoint.Sleep, For: d, Hit: 1}); err != nil {
			return err
		}
		wctx, cancel := context.WithTimeout(ctx, reachWithin)
		defer cancel()
		if _, err := r.armoury.Await(wctx, point); err != nil {
			return errors.Join(fmt.Errorf("%w (%w)", errNotReached, err), r.armoury.Disarm(point))
		}
		return do(ctx, r)
	}
	return f
}

// stopFor is how long a stopped process stands: longer than heartbeat.timeout, so that whoever listens to it takes it for dead.
const stopFor = 12 * time.Second

// wake lets a stopped process go on after d. It may have been killed meanwhile, for its silence.
func (r *run) wake(ctx context.Context, pid int, d time.Duration) error {
	perr := r.pause(ctx, d)
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil && !errors.Is(err, syscall.ESRCH) {
		return errors.Join(perr, fmt.Errorf("faults: SIGCONT %d: %w", pid, err))
	}
	return perr
}

func killing(k Kind) provoke {
	return func(_ context.Context, r *run) error { return r.kill(k) }
}

// Commands of the client, whose outcome is open: the application master may die under them.
func command(args ...string) provoke {
	return func(ctx context.Context, r *run) error {
		ctx, cancel := context.WithTimeout(ctx, reachWithin)
		defer cancel()
		all := append([]string{args[0], "-Dyarn.application.id=" + r.job.app}, args[1:]...)
		if out, err := thalweg(ctx, r.o.Cluster, r.o.Bin, all...); err != nil && context.Cause(ctx) == nil {
			r.logf("%s ended with: %v %s", args[0], err, out)
		}
		return nil
	}
}

func savepoint(ctx context.Context, r *run) error { return command("savepoint", r.savepoints)(ctx, r) }
func stop(ctx context.Context, r *run) error      { return command("stop", "-p", r.savepoints)(ctx, r) }

// rescale asks for the other of two parallelisms.
func rescale(ctx context.Context, r *run) error {
	s, err := answered(ctx, "the job's state", r.job.state)
	if err != nil {
		return err
	}
	return command("rescale", "-p", fmt.Sprint(parallelism+1-s.Vertices[0].Parallelism))(ctx, r)
}

// level gives the job back the parallelism that it began with, when a rescaling has changed it.
func (r *run) level(ctx context.Context) error {
	s, err := answered(ctx, "the job's state", r.job.state)
	if err != nil || len(s.Vertices) > 0 && s.Vertices[0].Parallelism == parallelism {
		return err
	}
	asked := time.Now()
	if err := rescale(ctx, r); err != nil {
		return err
	}
	if err := until(ctx, recoverWithin, "the parallelism of before", func(ctx context.Context) (bool, error) {
		s, err := r.job.state(ctx)
		return err == nil && s.running() && s.Vertices[0].Parallelism == parallelism, err
	}); err != nil {
		return err
	}
	return r.recovered(ctx, asked)
}

// pointFaults strike at each step of the protocols, as the life of a checkpoint and of an attempt goes.
func pointFaults(backend string) (all []Fault) {
	kill, parent := failpoint.Action{Kind: failpoint.Kill, Hit: 1}, failpoint.Action{Kind: failpoint.KillParent, Hit: 1}
	fail, still := failpoint.Action{Kind: failpoint.Fail, Hit: 1}, failpoint.Action{Kind: failpoint.Stop, Hit: 1}
	late := failpoint.Action{Kind: failpoint.Sleep, For: 3 * time.Second, Hit: 1}
	add := func(a failpoint.Action, master bool, by provoke, points ...string) {
		for _, p := range points {
			f := at(p, a, by)
			f.Master, f.Alone = master, by != nil
			all = append(all, f)
		}
	}
	// Workers, and the TaskManager above one.
	add(kill, false, nil, "task/trigger", "task/barrier-in", "task/snapshot-sync", "kafka/flush", "task/barrier-out", "kafka/prepare",
		"task/snapshot-async", "upload/create", "upload/before-close", "task/before-ack", "task/notified",
		"kafka/commit/before-end", "kafka/commit/after-end", "kafka/commit/noted", "kafka/begin")
	add(parent, false, nil, "task/barrier-in", "upload/before-close", "task/before-ack", "kafka/commit/before-end", "kafka/commit/after-end")
	// The second of the acknowledgements, so that some are in and some are not.
	add(failpoint.Action{Kind: failpoint.Kill, Hit: 2}, true, nil, "checkpoint/ack")
	add(kill, true, nil, "checkpoint/enumerators", "checkpoint/trigger", "checkpoint/metadata/before-create",
		"checkpoint/metadata/before-write", "checkpoint/metadata/before-close", "checkpoint/metadata/before-rename", "checkpoint/metadata/after-rename",
		"checkpoint/pointer/before", "checkpoint/pointer/after", "checkpoint/notify", "checkpoint/remove")
	add(fail, false, nil, "task/snapshot-sync", "kafka/flush", "task/snapshot-async", "upload/create", "kafka/commit/before-end",
		"checkpoint/metadata/before-create", "checkpoint/metadata/before-write", "checkpoint/metadata/before-close")
	add(late, false, nil, "task/before-ack", "checkpoint/metadata/before-rename", "checkpoint/pointer/before", "kafka/commit/before-end", "kafka/begin")
	add(still, false, nil, "task/before-ack", "kafka/commit/before-end", "checkpoint/metadata/before-rename", "checkpoint/pointer/before")
	// The way between two workers: one that is silent for longer than anybody waits, one that breaks, and a worker that dies on it.
	silent := failpoint.Action{Kind: failpoint.Sleep, For: 15 * time.Second, Hit: 20}
	add(silent, false, nil, "network/send")
	add(failpoint.Action{Kind: failpoint.Fail, Hit: 20}, false, nil, "network/send")
	add(failpoint.Action{Kind: failpoint.Kill, Hit: 20}, false, nil, "network/send")
	if backend == "pebble" { // the other one uses no disk
		add(failpoint.Action{Kind: failpoint.NoSpace, Hit: 1}, false, nil, "disk/create-table")
		add(failpoint.Action{Kind: failpoint.IOError, Hit: 1}, false, nil, "disk/create-table")
		add(kill, false, nil, "disk/create-table")
	}
	// While the job restarts, or another attempt comes up.
	add(kill, false, killing(Worker), "worker/start", "worker/deploy", "restore/task", "task/running", "kafka/clean-up", "taskmanager/start-worker")
	add(fail, false, killing(Worker), "restore/task")
	add(kill, true, killing(Worker), "restore/prepared", "deploy/send")
	add(kill, false, killing(TaskManager), "taskmanager/register/before", "taskmanager/register/after")
	add(kill, true, killing(ApplicationMaster), "master/start", "master/epoch/before", "master/epoch/after", "master/register/before",
		"master/register/after", "master/recover", "restore/load")
	add(kill, false, killing(ApplicationMaster), "coordinator/start", "worker/adopt")
	add(kill, true, killing(ApplicationMaster), "adopt/chosen", "adopt/before", "adopt/after")
	// What a user asks for.
	add(kill, true, savepoint, "savepoint/trigger")
	add(kill, true, stop, "stop/request", "stop/trigger", "stop/savepoint-complete", "stop/finish-tasks")
	add(kill, true, rescale, "rescale/store", "rescale/stored", "rescale/checkpoint", "rescale/switch")
	for i := range all {
		if all[i].Name == "kill at coordinator/start" {
			all[i].Master = true
		}
	}
	return all
}
