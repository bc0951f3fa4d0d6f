package faults

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"syscall"
	"time"

	"github.com/thalweg/thalweg/test/rig"
)

// dies is a kill -9 of one process of a kind.
func dies(k Kind) Fault {
	return Fault{Name: "kill " + string(k), Master: k == ApplicationMaster, Do: func(_ context.Context, r *run) error { return r.kill(k) }}
}

// standing stops all processes of some kinds in one container for d and lets them go on: what was replaced meanwhile is a zombie.
func standing(name string, d time.Duration, kinds ...Kind) Fault {
	return Fault{Name: fmt.Sprintf("%s stops for %v", name, d), Do: func(ctx context.Context, r *run) error {
		all, err := processes(r.job.app)
		if err != nil {
			return err
		}
		var pids []int
		container := ""
		for _, k := range kinds {
			for _, p := range all {
				if p.kind == k && (container == "" || p.container == container) {
					container = p.container
					pids = append(pids, p.pid)
					break
				}
			}
		}
		if len(pids) != len(kinds) {
			return fmt.Errorf("faults: %d of %v found", len(pids), kinds)
		}
		for _, pid := range pids {
			err = errors.Join(err, syscall.Kill(pid, syscall.SIGSTOP))
		}
		err = errors.Join(err, r.pause(ctx, d))
		for _, pid := range pids {
			if kerr := syscall.Kill(pid, syscall.SIGCONT); !errors.Is(kerr, syscall.ESRCH) { // killed for its silence
				err = errors.Join(err, kerr)
			}
		}
		return err
	}}
}

// frozen stops a process of the job for good: whoever started it must notice, and kill it.
func frozen(k Kind) Fault {
	return Fault{Name: string(k) + " stops for good", Do: func(ctx context.Context, r *run) error {
		p, err := r.one(k)
		if err != nil {
			return err
		}
		r.logf("signal %d to the %s, pid %d of %s", syscall.SIGSTOP, k, p.pid, p.container)
		if err := syscall.Kill(p.pid, syscall.SIGSTOP); err != nil {
			return fmt.Errorf("faults: stop the %s %d: %w", k, p.pid, err)
		}
		if err = r.gone(ctx, p); err != nil {
			err = errors.Join(err, syscall.Kill(p.pid, syscall.SIGCONT))
		}
		return err
	}}
}

// gone waits for the end of a process that others are to end.
func (r *run) gone(ctx context.Context, p process) error {
	return until(ctx, time.Minute, fmt.Sprintf("the end of the %s %d", p.kind, p.pid), func(context.Context) (bool, error) {
		all, err := processes(r.job.app)
		return err == nil && !slices.ContainsFunc(all, func(o process) bool { return o.pid == p.pid }), err
	})
}

// twice kills the application master, and the next one as soon as it is there.
func twice() Fault {
	return Fault{Name: "kill application master, and the next", Master: true, Alone: true, Do: func(ctx context.Context, r *run) error {
		old := map[int]bool{}
		masters := func() (pids []int, err error) {
			all, err := processes(r.job.app)
			for _, p := range all {
				if p.kind == ApplicationMaster {
					pids = append(pids, p.pid)
				}
			}
			return pids, err
		}
		pids, err := masters()
		if err != nil {
			return err
		}
		for _, p := range pids {
			old[p] = true
		}
		if err := r.kill(ApplicationMaster); err != nil {
			return err
		}
		return until(ctx, time.Minute, "the next application master", func(context.Context) (bool, error) {
			pids, err := masters()
			for _, p := range pids {
				if !old[p] {
					r.logf("kill -9 the next application master, pid %d", p)
					return true, syscall.Kill(p, syscall.SIGKILL)
				}
			}
			return false, err
		})
	}}
}

// away is a daemon that is killed, or ended in order, and comes back after d.
func away(daemon string, hard bool, d time.Duration) Fault {
	how := "restarts"
	if hard {
		how = "is killed"
	}
	return Fault{Name: fmt.Sprintf("%s %s, back after %v", daemon, how, d), Alone: true, Do: func(ctx context.Context, r *run) error {
		end := r.o.Cluster.StopDaemon
		if hard {
			end = r.o.Cluster.Kill9
		}
		if err := end(ctx, daemon); err != nil {
			return err
		}
		return errors.Join(r.pause(ctx, d), r.o.Cluster.StartDaemon(context.WithoutCancel(ctx), daemon))
	}}
}

// undisturbed is a fault under which the job does not restart.
func undisturbed(f Fault) Fault {
	do := f.Do
	f.Do = func(ctx context.Context, r *run) error {
		was, err := answered(ctx, "the job's state", r.job.state)
		if err != nil {
			return err
		}
		if err := do(ctx, r); err != nil {
			return err
		}
		is, err := answered(ctx, "the job's state", r.job.state)
		if err == nil && is.Restarts > was.Restarts {
			err = fmt.Errorf("faults: the job restarted (%d times before, %d after)", was.Restarts, is.Restarts)
		}
		return err
	}
	return f
}

// inHDFS is a state of HDFS that lasts for d.
func inHDFS(name string, d time.Duration, begin, end func(r *run) []string) Fault {
	return Fault{Name: fmt.Sprintf("%s for %v", name, d), Alone: true, Do: func(ctx context.Context, r *run) error {
		if _, err := r.o.Cluster.HdfsCLI(ctx, begin(r)...); err != nil {
			return err
		}
		err := r.pause(ctx, d)
		_, eerr := r.o.Cluster.HdfsCLI(context.WithoutCancel(ctx), end(r)...)
		return errors.Join(err, eerr)
	}}
}

func words(w ...string) func(*run) []string { return func(*run) []string { return w } }

// onCheckpoints is a command for the folder of the job's checkpoints.
func onCheckpoints(w ...string) func(*run) []string {
	return func(r *run) []string { return append(append([]string{}, w...), r.checkpoints.dir) }
}

// aroundFaults are those of the machine, the daemons and the network.
func aroundFaults() []Fault {
	return append(append(cutFaults(), memoryFaults()...),
		dies(Worker), dies(TaskManager), dies(ApplicationMaster), dies(Coordinator), twice(),
		frozen(Worker), frozen(Coordinator),
		standing("worker", 5*time.Second, Worker),
		standing("worker", 15*time.Second, Worker),
		standing("TaskManager and its worker", 20*time.Second, TaskManager, Worker),
		standing("TaskManager", 15*time.Second, TaskManager),
		standing("application master", 15*time.Second, ApplicationMaster),
		away(rig.Kafka, false, 0), away(rig.Kafka, true, 20*time.Second), away(rig.Kafka, true, time.Minute),
		undisturbed(away(rig.ResourceManager, true, 0)), undisturbed(away(rig.NodeManager1, false, 5*time.Second)), undisturbed(away(rig.NodeManager2, true, 30*time.Second)),
		away(rig.DataNode, true, 5*time.Second),
		undisturbed(meanwhile("checkpoint/metadata/before-rename", 6*time.Second, away(rig.ResourceManager, true, 0))),
		meanwhile("task/before-ack", 6*time.Second, away(rig.DataNode, true, 2*time.Second)),
		nodeGone(), decommissioned(0), decommissioned(8),
		inHDFS("NameNode in safe mode", 8*time.Second, words("dfsadmin", "-safemode", "enter"), words("dfsadmin", "-safemode", "leave")),
		inHDFS("no space for checkpoints (quota)", 6*time.Second, onCheckpoints("dfsadmin", "-setSpaceQuota", "1"), onCheckpoints("dfsadmin", "-clrSpaceQuota")),
		inHDFS("no new files in the checkpoint folder (quota)", 6*time.Second, onCheckpoints("dfsadmin", "-setQuota", "1"), onCheckpoints("dfsadmin", "-clrQuota")),
		goOn(), ended(), crashes(), fullDisk(8*time.Second),
		readOnly(6*time.Second), renamedAway(6*time.Second),
		cutOff(15*time.Second), silentBroker(15*time.Second), slowBroker(300*time.Millisecond, 8*time.Second), resets(4, time.Second),
		burst(40, 200*time.Millisecond, 6*time.Second),
		lateEndTxn(3*time.Second), lateEndTxn(12*time.Second),
	)
}

// crashes is a worker that ends as after a fault of its memory, with a core dump if the system makes them.
func crashes() Fault {
	return Fault{Name: "SIGSEGV in a worker", Do: func(_ context.Context, r *run) error { return r.signal(Worker, syscall.SIGSEGV) }}
}

// ended is a container of a TaskManager that YARN is told to kill.
func ended() Fault {
	return Fault{Name: "YARN kills the container of a TaskManager", Do: func(ctx context.Context, r *run) error {
		p, err := r.one(TaskManager)
		if err != nil {
			return err
		}
		if _, err = r.o.Cluster.YarnCLI(ctx, "container", "-signal", p.container, "FORCEFUL_SHUTDOWN"); err != nil {
			return err
		}
		return r.gone(ctx, p) // the NodeManager hears of it with its next heartbeat
	}}
}

// resets breaks all of the job's connections to the broker, n times.
func resets(n int, pause time.Duration) Fault {
	return Fault{Name: fmt.Sprintf("connections to the broker are reset %d times", n), Do: func(ctx context.Context, r *run) error {
		for range n {
			r.proxy.Reset()
			if err := r.pause(ctx, pause); err != nil {
				return err
			}
		}
		return nil
	}}
}

// goOn stops the job with a savepoint, and starts another application from there.
func goOn() Fault {
	return Fault{Name: "stop with savepoint, and go on from it", Alone: true, Do: func(ctx context.Context, r *run) error {
		out, err := thalweg(ctx, r.o.Cluster, r.o.Bin, "stop", "-Dyarn.application.id="+r.job.app, "-p", r.savepoints)
		if err != nil {
			return err
		}
		path := regexp.MustCompile(`hdfs://\S*/savepoint-[^\s"]+`).FindString(out)
		if path == "" {
			return fmt.Errorf("faults: thalweg stop names no savepoint: %s", out)
		}
		last := r.job
		if err := until(ctx, time.Minute, "the end of the stopped application", last.ended); err != nil {
			return err
		}
		if err := r.submit(ctx, "--fromSavepoint", path); err != nil {
			return err
		}
		dir, err := answered(ctx, "the folder of the checkpoints", r.job.checkpointDir)
		if err != nil {
			return err
		}
		return r.checkpoints.follow(dir)
	}}
}

// cutOff is a network that drops all between the job and the broker for d; connections stay open.
func cutOff(d time.Duration) Fault {
	return Fault{Name: fmt.Sprintf("network cut between job and broker for %v", d), Do: func(ctx context.Context, r *run) error {
		r.proxy.Cut()
		defer r.proxy.Heal()
		return r.pause(ctx, d)
	}}
}

// silentBroker breaks the connections between the job and the broker, and takes new ones without a word for d.
func silentBroker(d time.Duration) Fault {
	return Fault{Name: fmt.Sprintf("broker takes connections and says nothing for %v", d), Do: func(ctx context.Context, r *run) error {
		r.proxy.Cut()
		defer r.proxy.Heal()
		r.proxy.Reset()
		return r.pause(ctx, d)
	}}
}

// burst writes the records of so many seconds at once, nine of ten of each second thousand of one key, to a job whose sink is slow meanwhile.
func burst(seconds int64, delay, d time.Duration) Fault {
	return Fault{Name: fmt.Sprintf("records of %d s at once, and broker answers %v late for %v", seconds, delay, d), Do: func(ctx context.Context, r *run) error {
		r.burst.Add(seconds)
		r.proxy.Slow(delay)
		defer r.proxy.Slow(0)
		return r.pause(ctx, d)
	}}
}

// slowBroker delays each of the broker's answers, for d: a slow source and a slow sink.
func slowBroker(delay, d time.Duration) Fault {
	return Fault{Name: fmt.Sprintf("broker answers %v late for %v", delay, d), Do: func(ctx context.Context, r *run) error {
		r.proxy.Slow(delay)
		defer r.proxy.Slow(0)
		return r.pause(ctx, d)
	}}
}
