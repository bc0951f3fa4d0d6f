package am

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/thalweg/thalweg/am/allocator"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/runtime/resourcemanager"
	rmclient "github.com/thalweg/thalweg/yarnrpc/am"
	"github.com/thalweg/thalweg/yarnrpc/nm"
	yarnpb "github.com/thalweg/thalweg/yarnrpc/proto/yarn"
	"github.com/thalweg/thalweg/yarnrpc/yarn"
)

// loop calls allocate until ctx ends: the first time at once, with whatever is asked by then.
func (d *Driver) loop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.wake:
		case <-timer.C:
		}
		if !d.call(ctx) {
			return
		}
		d.mu.Lock()
		timer.Reset(d.pace(time.Now()))
		d.mu.Unlock()
	}
}

// pace is the pause before the next call. Called with the lock.
func (d *Driver) pace(now time.Time) time.Duration {
	idle := max(config.YarnHeartbeat.Value(d.o.Config), 10*time.Millisecond)
	quick := max(config.YarnContainerHeartbeat.Value(d.o.Config), 10*time.Millisecond)
	next := idle
	switch {
	case now.Before(d.fast):
		next = quick
	case !d.ledger.Busy():
		d.openSince = time.Time{}
	default:
		if d.openSince.IsZero() {
			d.openSince = now
		}
		// Containers that did not come in the first seconds wait for the queue; the ResourceManager is spared then.
		switch open := now.Sub(d.openSince); {
		case open < 3*time.Second:
			next = quick
		case open < 30*time.Second:
			next = max(quick, 250*time.Millisecond)
		default:
			next = max(quick, 500*time.Millisecond)
		}
	}
	if due := d.ledger.Deadline(); !due.IsZero() {
		next = min(next, max(due.Sub(now), time.Millisecond))
	}
	return min(next, idle)
}

// call is one allocate call with all that follows. It reports whether the loop goes on.
func (d *Driver) call(ctx context.Context) bool {
	d.mu.Lock()
	d.step(allocator.Tick{At: time.Now()})
	var req *yarnpb.AllocateRequestProto
	for _, e := range d.ledger.Step(allocator.Beat{At: time.Now()}) {
		if a, ok := e.(allocator.Allocate); ok {
			req = request(a)
		}
	}
	d.mu.Unlock()
	ans, err := d.o.Scheduler.Allocate(ctx, req)
	switch {
	case ctx.Err() != nil:
		return false
	case errors.Is(err, rmclient.ErrResync):
		return d.resync(ctx)
	case err != nil: // a decision of the ResourceManager's, or our bug; whatever could be repeated was
		d.events.fatal(fmt.Errorf("am: allocate: %w", fencedIf(err)))
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.answer(ans)
	if ans.Deferred { // it was the answer to an earlier request; this one was not sent
		d.step(allocator.AnswerLost{})
	}
	d.problem(ans)
	return true
}

// fencedIf marks an error that says that this attempt is not the application's any more.
func fencedIf(err error) error {
	if errors.Is(err, rmclient.ErrShutdown) {
		return fmt.Errorf("%w: %w", resourcemanager.ErrFenced, err)
	}
	return err
}

func (d *Driver) resync(ctx context.Context) bool {
	d.log.Warn().Msg("the ResourceManager was restarted; the attempt registers again")
	resp, err := d.o.Scheduler.Register(ctx, d.o.Registration)
	if ctx.Err() != nil {
		return false
	}
	if err != nil {
		d.events.fatal(fmt.Errorf("am: register again: %w", fencedIf(err)))
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.registered(resp)
	d.step(allocator.Resync{})
	return true
}

// answer takes an answer over. Called with the lock.
func (d *Driver) answer(ans rmclient.Answer) {
	d.o.Nodes.PutTokens(ans.GetNmTokens())
	d.recovered(ans.GetContainersFromPreviousAttempts())
	ev := allocator.Answer{At: time.Now(), ClusterNodes: int(ans.GetNumClusterNodes()), Headroom: yarn.ResourceOf(ans.GetLimit())}
	for _, p := range ans.GetAllocatedContainers() {
		c := containerOf(p)
		d.containers[c.ID] = p
		ev.Granted = append(ev.Granted, c)
	}
	for _, s := range ans.GetCompletedContainerStatuses() {
		ev.Completed = append(ev.Completed, statusOf(s))
	}
	if m := ans.GetPreempt(); m != nil {
		for _, c := range append(m.GetStrictContract().GetContainer(), m.GetContract().GetContainer()...) {
			ev.Preempted = append(ev.Preempted, yarn.ContainerIDOf(c.GetId()))
		}
	}
	ev.Nodes = nodeChanges(ev.At, ans.GetUpdatedNodes())
	if !d.answered {
		d.answered = true
		d.log.Info().Int("nodes", int(ans.GetNumClusterNodes())).Msg("first answer of the scheduler")
	}
	d.step(ev)
}

// nodeChanges reads which nodes are decommissioned gracefully, and which are used again. A node that is lost takes its containers with it, of
// which the ResourceManager tells by itself. The limit is in seconds from the beginning, which is now but for a heartbeat; -1 is none.
//
// Source: hadoop-yarn-server-resourcemanager DefaultAMSProcessor.handleNodeUpdates, RMNodeImpl.getDecommissioningTimeout, Hadoop 3.4.
func nodeChanges(at time.Time, updated []*yarnpb.NodeReportProto) (out []allocator.NodeChange) {
	for _, n := range updated {
		c := allocator.NodeChange{Node: yarn.NodeIDOf(n.GetNodeId()), Leaving: n.GetNodeState() == yarnpb.NodeStateProto_NS_DECOMMISSIONING}
		if !c.Leaving && n.GetNodeState() != yarnpb.NodeStateProto_NS_RUNNING {
			continue
		}
		if limit := int32(n.GetDecommissioningTimeout()); c.Leaving && limit > 0 { //nolint:gosec // Java's int in an unsigned field
			c.Until = at.Add(time.Duration(limit) * time.Second)
		}
		out = append(out, c)
	}
	return out
}

// problem tells why asks stay open, or that they do not any more. Called with the lock.
func (d *Driver) problem(ans rmclient.Answer) {
	n := d.ledger.Counts()
	if n.Open == 0 || d.openSince.IsZero() || time.Since(d.openSince) < problemAfter {
		if n.Open == 0 {
			d.events.problem("")
		}
		return
	}
	text := fmt.Sprintf("%d containers of %d are not granted yet: queue %s has %s free on %d nodes",
		n.Open, n.Wanted, d.queue, yarn.ResourceOf(ans.GetLimit()), ans.GetNumClusterNodes())
	if out := d.ledger.ExcludedHosts(); len(out) > 0 {
		text += fmt.Sprintf("; %s left out after failed starts (%s)", strings.Join(out, ", "), config.ExcludeFailures.Key)
	}
	d.events.problem(text)
}

// step feeds the ledger and carries its effects out. Called with the lock; nothing here blocks.
func (d *Driver) step(ev allocator.Event) {
	launches := map[yarn.NodeID][]allocator.Start{}
	stops := map[yarn.NodeID][]yarn.ContainerID{}
	for _, e := range d.ledger.Step(ev) {
		switch e := e.(type) {
		case allocator.BeatNow:
			d.wakeUp()
		case allocator.Start:
			launches[e.Container.Node] = append(launches[e.Container.Node], e)
		case allocator.Stop:
			stops[e.Container.Node] = append(stops[e.Container.Node], e.Container.ID)
		case allocator.Ended:
			p := d.containers[e.Container.ID]
			delete(d.containers, e.Container.ID)
			d.events.ended(e, p)
		case allocator.Leaving:
			d.events.leaving(e)
		case allocator.Staying:
			d.events.staying(e)
		case allocator.Excluded:
			d.log.Warn().Str("host", e.Host).Int("failures", e.Failures).Time("until", e.Until).Str("key", config.ExcludeFailures.Key).Stringer("last", e.Last).
				Msg("TaskManagers do not start on a host; it is left out")
		case allocator.Included:
			d.log.Info().Str("host", e.Host).Str("reason", e.Why).Msg("a host that was left out is used again")
		case allocator.Paused:
			d.log.Warn().Int("failures", e.Failures).Time("until", e.Until).Str("key", config.StartFailureRate.Key).Msg("too many TaskManagers fail to start; asks pause")
		case allocator.Failed:
			d.events.failed(e)
		case allocator.Allocate:
		}
	}
	for node, list := range launches {
		d.wg.Go(func() { d.launch(node, list) })
	}
	for node, ids := range stops {
		d.wg.Go(func() {
			ctx, cancel := context.WithTimeout(d.ctx, stopTimeout)
			defer cancel()
			if _, err := d.o.Nodes.Stop(ctx, node, ids...); err != nil { // the release through the ResourceManager ends them too
				d.log.Debug().Err(err).Stringer("node", node).Msg("containers could not be stopped directly")
			}
		})
	}
}

// launch starts the containers of one node.
func (d *Driver) launch(node yarn.NodeID, list []allocator.Start) {
	ctx, cancel := context.WithTimeout(d.ctx, startTimeout)
	defer cancel()
	var launches []nm.Launch
	specs := map[yarn.ContainerID]resourcemanager.WorkerSpec{}
	failed := map[yarn.ContainerID]string{}
	d.mu.Lock()
	for _, s := range list {
		id := s.Container.ID
		p := d.containers[id]
		if p == nil {
			continue // ended meanwhile
		}
		specs[id] = d.specs[s.Spec]
		lc, err := d.o.Launch(p, specs[id])
		if err != nil {
			failed[id] = err.Error()
			continue
		}
		launches = append(launches, nm.Launch{Container: p, Context: lc})
	}
	d.mu.Unlock()
	if len(launches) > 0 {
		refused, err := d.o.Nodes.StartAll(ctx, node, launches)
		if d.ctx.Err() != nil {
			return
		}
		for _, l := range launches {
			id := yarn.ContainerIDOf(l.Container.GetId())
			switch r := refused[id]; {
			case err != nil:
				failed[id] = err.Error()
			case r != nil:
				failed[id] = r.Error()
			}
		}
	}
	for _, s := range list {
		id := s.Container.ID
		spec, known := specs[id]
		if reason, bad := failed[id]; bad {
			d.log.Warn().Stringer("container_id", id).Stringer("node", node).Str("reason", reason).Msg("container could not be started")
			d.apply(allocator.StartFailed{At: time.Now(), ID: id, Reason: reason})
		} else if known {
			d.mu.Lock()
			if d.containers[id] != nil { // else it ended already, and that was told
				d.log.Info().Stringer("container_id", id).Stringer("node", node).Msg("container started")
				d.events.started(workerID(id), spec, node.Host)
				d.step(allocator.Started{ID: id})
			}
			d.mu.Unlock()
		}
	}
}
