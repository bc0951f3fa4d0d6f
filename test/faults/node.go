package faults

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/thalweg/thalweg/test/rig"
)

// nodes are the NodeManagers by their ports, which containers have in their environment.
func (r *run) nodes() (map[int]string, error) {
	all := map[int]string{}
	for _, name := range []string{rig.NodeManager1, rig.NodeManager2} {
		ports, err := portsOf(r.o.Cluster.NodeManager(name))
		if err != nil {
			return nil, err
		}
		all[ports[0]] = name
	}
	return all, nil
}

// apart reports whether the NodeManagers are on two hosts.
func apart(c *rig.Cluster) bool {
	one, _, err := net.SplitHostPort(c.NodeManager(rig.NodeManager1))
	other, _, oerr := net.SplitHostPort(c.NodeManager(rig.NodeManager2))
	return err == nil && oerr == nil && one != other
}

// besideMaster names a node that has TaskManagers of the job and not its application master, with the job's processes there. When all
// are on one node, TaskManagers are made to leave it first: it gets no more containers for a while, and one of them is killed.
func (r *run) besideMaster(ctx context.Context) (node string, there []process, err error) {
	nodes, err := r.nodes()
	if err != nil {
		return "", nil, err
	}
	look := func() (master int, others map[int][]process, err error) {
		all, err := processes(r.job.app)
		others = map[int][]process{}
		for _, p := range all {
			if p.kind == ApplicationMaster {
				master = p.node
			}
		}
		for _, p := range all {
			if p.node != master {
				others[p.node] = append(others[p.node], p)
			}
		}
		if err == nil && master == 0 {
			err = errors.New("faults: there is no application master")
		}
		return master, others, err
	}
	found := func(others map[int][]process) bool {
		for port, all := range others {
			if slices.ContainsFunc(all, func(p process) bool { return p.kind == Worker }) {
				node, there = nodes[port], all
			}
		}
		return node != ""
	}
	master, others, err := look()
	if err != nil || found(others) {
		return node, there, err
	}
	id := r.o.Cluster.NodeManager(nodes[master])
	resize := func(ctx context.Context, mb int) error {
		_, err := r.o.Cluster.YarnCLI(ctx, "rmadmin", "-updateNodeResource", id, strconv.Itoa(mb), "8")
		return err
	}
	if err := resize(ctx, 64); err != nil {
		return "", nil, err
	}
	if err = r.kill(TaskManager); err == nil {
		err = until(ctx, recoverWithin, "a TaskManager on the other node", func(ctx context.Context) (bool, error) {
			s, err := r.job.state(ctx)
			if err != nil || !s.running() {
				return false, err
			}
			_, others, err := look()
			return err == nil && found(others), err
		})
	}
	return node, there, errors.Join(err, resize(context.WithoutCancel(ctx), r.o.Cluster.NodeMemoryMB()))
}

// moveWithin is how long a job may take to run elsewhere when a node is gone: heartbeat.timeout (10 s), a container, a restart, on a busy machine.
const moveWithin = 25 * time.Second

// elsewhere waits until the job runs in workers that are not among those.
func (r *run) elsewhere(ctx context.Context, those []process, within time.Duration) error {
	return until(ctx, within, "the job on the other node", func(ctx context.Context) (bool, error) {
		s, err := r.job.state(ctx)
		if err != nil || !s.running() {
			return false, errors.Join(err, fmt.Errorf("it is %s", s.State))
		}
		all, err := processes(r.job.app)
		live := 0
		for _, p := range all {
			if p.kind == Worker && !slices.ContainsFunc(those, func(o process) bool { return o.pid == p.pid }) {
				live++
			}
		}
		return err == nil && live == parallelism, errors.Join(err, fmt.Errorf("%d workers are elsewhere", live))
	})
}

// nodeGone is a node that falls silent with all that runs on it: the job moves to the other one by its own heartbeats, long before YARN takes the node for
// lost. Then it comes back, without what ran there.
func nodeGone() Fault {
	return Fault{Name: "a node is gone", Alone: true, Do: func(ctx context.Context, r *run) error {
		node, there, err := r.besideMaster(ctx)
		if err != nil {
			return err
		}
		r.logf("%s falls silent with %d processes of the job", node, len(there))
		began := time.Now()
		if err := r.o.Cluster.Kill9(ctx, node); err != nil {
			return err
		}
		for _, p := range there {
			err = errors.Join(err, syscall.Kill(p.pid, syscall.SIGSTOP))
		}
		if err == nil {
			err = r.elsewhere(ctx, there, moveWithin)
			r.logf("the job runs elsewhere after %v", time.Since(began).Round(time.Millisecond))
		}
		for _, p := range there {
			if kerr := syscall.Kill(p.pid, syscall.SIGKILL); !errors.Is(kerr, syscall.ESRCH) {
				err = errors.Join(err, kerr)
			}
		}
		return errors.Join(err, r.o.Cluster.StartDaemon(context.WithoutCancel(ctx), node))
	}}
}

// decommissioned is a node that the operator takes out of the cluster, by the exclude file: YARN ends what runs there, at once or when so many seconds of grace
// are over. The job moves to the other one. Then the node is taken in again.
func decommissioned(grace int) Fault {
	name, refresh := "a node is decommissioned", []string{"rmadmin", "-refreshNodes"}
	if grace > 0 {
		name += fmt.Sprintf(" with %d s of grace", grace)
		refresh = append(refresh, "-g", strconv.Itoa(grace), "-server")
	}
	return Fault{Name: name, Alone: true, Apart: true, Do: func(ctx context.Context, r *run) error {
		node, there, err := r.besideMaster(ctx)
		if err != nil {
			return err
		}
		host, _, err := net.SplitHostPort(r.o.Cluster.NodeManager(node))
		if err != nil {
			return err
		}
		r.logf("%s on %s is excluded, with %d processes of the job", node, host, len(there))
		if err := r.o.Cluster.Exclude(host); err != nil {
			return err
		}
		_, err = r.o.Cluster.YarnCLI(ctx, refresh...)
		if err == nil {
			err = until(ctx, 2*time.Minute, "the end of "+node, func(context.Context) (bool, error) { return r.o.Cluster.PID(node) == 0, nil })
		}
		if err == nil {
			err = r.elsewhere(ctx, there, recoverWithin)
		}
		ctx = context.WithoutCancel(ctx)
		err = errors.Join(err, r.o.Cluster.Exclude())
		_, rerr := r.o.Cluster.YarnCLI(ctx, "rmadmin", "-refreshNodes")
		return errors.Join(err, rerr, r.o.Cluster.StartDaemon(ctx, node))
	}}
}
