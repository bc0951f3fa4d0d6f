package yarnfake

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/thalweg/thalweg/yarnrpc/ipc/ipcserver"
	yarnpb "github.com/thalweg/thalweg/yarnrpc/proto/yarn"
	"github.com/thalweg/thalweg/yarnrpc/yarn"
)

// SetGrantsPerBeat bounds how many containers one answer grants to an application; 0 for no bound.
func (c *Cluster) SetGrantsPerBeat(n int) { c.with(func() { c.grantsPerBeat = n }) }

// SetGrantDelay sets how long an ask is open before it is served, at the earliest with the next beat.
func (c *Cluster) SetGrantDelay(d time.Duration) { c.with(func() { c.grantDelay = d }) }

// SetLaunchCheck makes NodeManagers refuse a start with the error that f returns; nil accepts all.
func (c *Cluster) SetLaunchCheck(f func(Launch) error) { c.with(func() { c.launchCheck = f }) }

// DropAnswers makes the answers of the next n calls of a method ("allocate", "startContainers") get lost: the call is
// run, then the connection breaks.
func (c *Cluster) DropAnswers(method string, n int) { c.with(func() { c.drops[method] = n }) }

// Refuse makes the next calls of a method fail with these errors, one each, without being run. An *ipc.RemoteError is the
// exception that the client sees.
func (c *Cluster) Refuse(method string, errs ...error) {
	c.with(func() { c.refuse[method] = append(c.refuse[method], errs...) })
}

func (c *Cluster) with(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// KillContainer ends a container as if its process had ended with the exit status: 137 for kill -9, yarn.ExitPreempted
// for preemption, and so on.
//
// Errors: unknown or ended container.
func (c *Cluster) KillContainer(id yarn.ContainerID, exit int32, diagnostics string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.apps[id.Attempt.App]
	if a == nil || a.containers[id] == nil || a.containers[id].state == stateDone {
		return fmt.Errorf("yarnfake: kill %s: not running", id)
	}
	c.complete(a.containers[id], exit, diagnostics)
	return nil
}

// Preempt announces in the next answer that the containers will be taken away. KillContainer with yarn.ExitPreempted
// takes them.
func (c *Cluster) Preempt(ids ...yarn.ContainerID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		if a := c.apps[id.Attempt.App]; a != nil {
			t := a.current()
			t.preempt = append(t.preempt, id)
		}
	}
}

// RollKeys makes a new key for AMRM tokens, which the answers to allocate carry until the attempt uses it. The key before
// stays good until the next roll.
func (c *Cluster) RollKeys() { c.with(func() { c.keys.roll() }) }

// Node is the id of the i-th NodeManager.
func (c *Cluster) Node(i int) yarn.NodeID { return c.nodes[i].id }

// StopNode loses a node: its containers end as aborted, and the masters are told.
func (c *Cluster) StopNode(i int) {
	c.mu.Lock()
	n := c.nodes[i]
	n.state = yarnpb.NodeStateProto_NS_LOST
	for _, a := range c.apps {
		for _, ct := range a.containers {
			if ct.node == n && ct.state != stateDone {
				c.complete(ct, yarn.ExitAborted, "Container released on a *lost* node")
			}
		}
		a.current().updated = append(a.current().updated, n)
	}
	srv := n.srv
	c.mu.Unlock()
	srv.Close()
}

// RestartNodeManager closes the i-th NodeManager's port and connections and opens the port again. Its containers live on.
func (c *Cluster) RestartNodeManager(i int) error {
	c.lifecycle.Lock()
	defer c.lifecycle.Unlock()
	c.mu.Lock()
	n := c.nodes[i]
	old, closed := n.srv, c.closed || n.state == yarnpb.NodeStateProto_NS_LOST
	c.mu.Unlock()
	if closed {
		return fmt.Errorf("yarnfake: restart %s: it is gone", n.id)
	}
	old.Close()
	l, err := listen(n.id.String())
	if err != nil {
		return fmt.Errorf("yarnfake: restart %s: %w", n.id, err)
	}
	srv := c.nodeServer(n)
	srv.Serve(l)
	c.with(func() { n.srv = srv })
	return nil
}

// Decommission marks a node as decommissioning with that limit: no new containers, running ones go on, masters are told. Nothing happens at
// the limit: StopNode takes the node away.
func (c *Cluster) Decommission(i int, limit time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes[i].limit = limit
	c.nodeBecomes(c.nodes[i], yarnpb.NodeStateProto_NS_DECOMMISSIONING)
}

// Recommission takes Decommission back.
func (c *Cluster) Recommission(i int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodeBecomes(c.nodes[i], yarnpb.NodeStateProto_NS_RUNNING)
}

func (c *Cluster) nodeBecomes(n *node, s yarnpb.NodeStateProto) {
	n.state = s
	for _, a := range c.apps {
		a.current().updated = append(a.current().updated, n)
	}
}

// StopResourceManager closes the ResourceManager's ports and connections. Containers and NodeManagers go on.
func (c *Cluster) StopResourceManager() {
	c.lifecycle.Lock()
	defer c.lifecycle.Unlock()
	c.stopRM()
}

func (c *Cluster) stopRM() {
	c.mu.Lock()
	servers := c.rmServers
	c.rmServers = nil
	c.mu.Unlock()
	for _, s := range servers {
		s.Close()
	}
}

// StartResourceManager starts a stopped ResourceManager again on the same ports, with applications and containers
// recovered, and registrations, asks and undelivered grants forgotten.
func (c *Cluster) StartResourceManager() error {
	c.lifecycle.Lock()
	defer c.lifecycle.Unlock()
	c.mu.Lock()
	if c.closed || c.rmServers != nil {
		c.mu.Unlock()
		return errors.New("yarnfake: start ResourceManager: runs already")
	}
	c.epoch++
	c.nextApp = 0
	c.timestamp = max(time.Now().UnixMilli(), c.timestamp+1)
	for _, a := range c.apps {
		c.recover(a)
	}
	c.mu.Unlock()
	if err := c.serveRM(); err != nil {
		return fmt.Errorf("yarnfake: start ResourceManager: %w", err)
	}
	return nil
}

// RestartResourceManager is stop and start.
func (c *Cluster) RestartResourceManager() error {
	c.StopResourceManager()
	return c.StartResourceManager()
}

// faulty runs a handler with the faults that the test ordered.
func (c *Cluster) faulty(h ipcserver.Handler) ipcserver.Handler {
	return func(ctx context.Context, call *ipcserver.Call) (resp protoMessage, err error) {
		c.mu.Lock()
		if q := c.refuse[call.Method]; len(q) > 0 {
			c.refuse[call.Method] = q[1:]
			c.mu.Unlock()
			return nil, q[0]
		}
		drop := c.drops[call.Method] > 0
		if drop {
			c.drops[call.Method]--
		}
		c.mu.Unlock()
		resp, err = h(ctx, call)
		if drop {
			return nil, ipcserver.ErrDrop
		}
		return resp, err
	}
}
