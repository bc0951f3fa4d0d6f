package yarnfake

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	commonpb "github.com/thalweg/thalweg/yarnrpc/proto/common"
	yarnpb "github.com/thalweg/thalweg/yarnrpc/proto/yarn"
	"github.com/thalweg/thalweg/yarnrpc/token"
	"github.com/thalweg/thalweg/yarnrpc/yarn"
)

type app struct {
	id         yarn.ApplicationID
	user       string
	sub        *yarnpb.ApplicationSubmissionContextProto
	state      yarnpb.YarnApplicationStateProto
	final      yarnpb.FinalApplicationStatusProto
	diag       string
	tracking   string
	host       string
	rpcPort    int32
	progress   float32
	started    int64
	finished   int64
	attempts   []*attempt
	containers map[yarn.ContainerID]*container
	stats      Stats
}

func (a *app) current() *attempt { return a.attempts[len(a.attempts)-1] }

func (a *app) ended() bool {
	switch a.state {
	case yarnpb.YarnApplicationStateProto_FINISHED, yarnpb.YarnApplicationStateProto_FAILED, yarnpb.YarnApplicationStateProto_KILLED:
		return true
	}
	return false
}

// askKey is what YARN counts asks by.
type askKey struct {
	priority  int32
	requestID int64
	resource  string
}

type ask struct {
	size  yarn.Resource
	count int32
	since time.Time
	relax bool
}

type attempt struct {
	app        *app
	id         yarn.AttemptID
	master     *container // nil for an unmanaged one
	registered bool
	ended      bool
	state      yarnpb.YarnApplicationAttemptStateProto
	diag       string
	start      int64
	finish     int64
	lastBeat   time.Time
	nextSeq    int64

	responseID int32
	last       *yarnpb.AllocateResponseProto
	asks       map[askKey]*ask
	granted    []*container // not handed out yet
	completed  []*yarnpb.ContainerStatusProto
	tokensFor  map[*node]bool
	updated    []*node
	preempt    []yarn.ContainerID
	excluded   map[string]bool // hosts
}

func (t *attempt) open() int {
	n := 0
	for k, a := range t.asks {
		if k.resource == yarn.AnyHost {
			n += int(a.count)
		}
	}
	return n
}

type containerState int

const (
	stateGranted containerState = iota // not handed to the master yet
	stateAcquired
	stateRunning
	stateDone
)

type container struct {
	id        yarn.ContainerID
	app       *app
	node      *node
	size      yarn.Resource
	priority  int32
	requestID int64
	master    bool
	state     containerState
	exit      int32
	diag      string
	started   int64
	finished  int64
	cancel    context.CancelFunc // ends its runner; nil before the start
	token     *commonpb.TokenProto
}

func (c *Cluster) attempt(id yarn.AttemptID) *attempt {
	a := c.apps[id.App]
	if a == nil || id.Attempt < 1 || int(id.Attempt) > len(a.attempts) {
		return nil
	}
	return a.attempts[id.Attempt-1]
}

// noRoom is why an application waits whose master fits nowhere. The fake never looks again.
const noRoom = "[Sun Nov 29 12:00:00 +0000 2026] Application is added to the scheduler and is not yet activated. Queue's AM resource limit exceeded.  Details : AM Partition = <DEFAULT_PARTITION>; "

// newAttempt starts the next attempt of an application.
func (c *Cluster) newAttempt(a *app) {
	t := &attempt{
		app: a, id: yarn.AttemptID{App: a.id, Attempt: int32(len(a.attempts) + 1)}, //nolint:gosec // small
		state: yarnpb.YarnApplicationAttemptStateProto_APP_ATTEMPT_LAUNCHED, start: time.Now().UnixMilli(), lastBeat: time.Now(),
		asks: make(map[askKey]*ask), tokensFor: make(map[*node]bool), excluded: make(map[string]bool),
	}
	if n := len(a.attempts); n > 0 { // what ended while no master looked
		t.completed = a.attempts[n-1].completed
		a.attempts[n-1].completed = nil
	}
	a.attempts = append(a.attempts, t)
	a.state = yarnpb.YarnApplicationStateProto_ACCEPTED
	if a.sub.GetUnmanagedAm() {
		return
	}
	size := c.normalise(yarn.ResourceOf(a.sub.GetResource()))
	if n := c.place(size, "", true, nil); n != nil {
		ct := c.newContainer(t, n, size, 0, -1)
		ct.master, ct.state = true, stateAcquired
		t.master = ct
		c.launch(ct, a.sub.GetAmContainerSpec(), c.amrmToken(t))
	} else {
		a.diag = noRoom
	}
}

func (c *Cluster) newContainer(t *attempt, n *node, size yarn.Resource, priority int32, requestID int64) *container {
	t.nextSeq++
	id := yarn.ContainerID{Attempt: t.id, ID: c.epoch<<40 | t.nextSeq}
	ct := &container{id: id, app: t.app, node: n, size: size, priority: priority, requestID: requestID}
	n.used.MemoryMB += size.MemoryMB
	n.used.VCores += size.VCores
	ct.token = tokenProto(token.KindContainer, n.id.String(), c.keys.container, &yarnpb.ContainerTokenIdentifierProto{
		ContainerId: id.Proto(), NmHostAddr: proto.String(n.id.String()), AppSubmitter: proto.String(t.app.user), Resource: size.Proto(),
		ExpiryTimeStamp: proto.Int64(time.Now().Add(10 * time.Minute).UnixMilli()), MasterKeyId: proto.Int32(1),
		RmIdentifier: proto.Int64(c.timestamp), Priority: &yarnpb.PriorityProto{Priority: proto.Int32(priority)},
		CreationTime: proto.Int64(time.Now().UnixMilli()), ContainerType: yarnpb.ContainerTypeProto_TASK.Enum(),
		AllocationRequestId: proto.Int64(requestID),
	})
	t.app.containers[id] = ct
	return ct
}

// complete ends a container and queues its status for the running attempt.
func (c *Cluster) complete(ct *container, exit int32, diag string) {
	if ct.state == stateDone {
		return
	}
	delivered := ct.state != stateGranted
	ct.state, ct.exit, ct.diag, ct.finished = stateDone, exit, diag, time.Now().UnixMilli()
	ct.node.used.MemoryMB -= ct.size.MemoryMB
	ct.node.used.VCores -= ct.size.VCores
	if ct.cancel != nil {
		ct.cancel()
	}
	t := ct.app.current()
	if ct.master {
		if t.master == ct && !t.ended {
			c.failAttempt(t, fmt.Sprintf("AM Container for %s exited with  exitCode: %d\n%s", t.id, exit, diag))
		}
		return
	}
	if delivered {
		ct.app.stats.Completed++
		t.completed = append(t.completed, ct.status())
	}
}

func (ct *container) status() *yarnpb.ContainerStatusProto {
	s := &yarnpb.ContainerStatusProto{
		ContainerId: ct.id.Proto(), State: yarnpb.ContainerStateProto_C_RUNNING.Enum(), Diagnostics: proto.String(ct.diag),
		ExitStatus: proto.Int32(yarn.ExitInvalid), Capability: ct.size.Proto(), ExecutionType: yarnpb.ExecutionTypeProto_GUARANTEED.Enum(),
	}
	switch ct.state {
	case stateGranted, stateAcquired:
		s.State = yarnpb.ContainerStateProto_C_NEW.Enum()
	case stateRunning:
		s.ContainerSubState = yarnpb.ContainerSubStateProto_CSS_RUNNING.Enum()
	case stateDone:
		s.State, s.ExitStatus = yarnpb.ContainerStateProto_C_COMPLETE.Enum(), proto.Int32(ct.exit)
		s.ContainerSubState = yarnpb.ContainerSubStateProto_CSS_DONE.Enum()
	}
	return s
}

func (ct *container) proto() *yarnpb.ContainerProto {
	return &yarnpb.ContainerProto{
		Id: ct.id.Proto(), NodeId: ct.node.id.Proto(), NodeHttpAddress: proto.String(ct.node.id.Host + ":8042"), Resource: ct.size.Proto(),
		Priority: &yarnpb.PriorityProto{Priority: proto.Int32(ct.priority)}, ContainerToken: ct.token,
		ExecutionType: yarnpb.ExecutionTypeProto_GUARANTEED.Enum(), AllocationRequestId: proto.Int64(ct.requestID),
	}
}

// failAttempt ends an attempt that did not unregister, and starts the next one or fails the application.
func (c *Cluster) failAttempt(t *attempt, diag string) {
	a := t.app
	t.ended, t.registered, t.diag, t.finish = true, false, diag, time.Now().UnixMilli()
	t.state = yarnpb.YarnApplicationAttemptStateProto_APP_ATTEMPT_FAILED
	for _, ct := range t.granted {
		c.complete(ct, yarn.ExitAborted, "attempt ended")
	}
	t.granted, t.asks = nil, nil
	if t.master != nil {
		c.complete(t.master, yarn.ExitKilledByResourceManager, diag)
	}
	limit := c.o.attempts
	if m := a.sub.GetMaxAppAttempts(); m > 0 {
		limit = min(limit, m)
	}
	last := int(limit) <= len(a.attempts) || a.sub.GetUnmanagedAm() || c.closed
	if last || !a.sub.GetKeepContainersAcrossApplicationAttempts() {
		for _, ct := range a.containers {
			if !ct.master {
				c.complete(ct, yarn.ExitAborted, "Container released by application")
			}
		}
		t.completed = nil
	}
	if last {
		c.endApp(a, yarnpb.YarnApplicationStateProto_FAILED, yarnpb.FinalApplicationStatusProto_APP_FAILED,
			fmt.Sprintf("Application %s failed %d times due to %s. Failing the application.", a.id, len(a.attempts), diag))
		return
	}
	c.newAttempt(a)
}

func (c *Cluster) endApp(a *app, state yarnpb.YarnApplicationStateProto, final yarnpb.FinalApplicationStatusProto, diag string) {
	a.state, a.final, a.finished = state, final, time.Now().UnixMilli()
	if diag != "" {
		a.diag = diag
	}
	t := a.current()
	if !t.ended {
		t.ended, t.finish = true, a.finished
		switch state {
		case yarnpb.YarnApplicationStateProto_FINISHED:
			t.state = yarnpb.YarnApplicationAttemptStateProto_APP_ATTEMPT_FINISHED
		default:
			t.state = yarnpb.YarnApplicationAttemptStateProto_APP_ATTEMPT_KILLED
		}
	}
	for _, ct := range a.containers {
		if ct.master && state == yarnpb.YarnApplicationStateProto_FINISHED {
			continue // it unregistered and ends by itself
		}
		c.complete(ct, yarn.ExitKilledAfterAppComplete, "Container killed by the ResourceManager")
	}
}

// recover is what a restarted ResourceManager knows of an application.
func (c *Cluster) recover(a *app) {
	t := a.current()
	if t.ended {
		return
	}
	for _, ct := range t.granted { // nobody was told of them
		c.complete(ct, yarn.ExitAborted, "lost with the ResourceManager")
	}
	t.granted, t.asks, t.registered, t.responseID, t.last = nil, make(map[askKey]*ask), false, 0, nil
	t.excluded = make(map[string]bool)
	t.tokensFor = make(map[*node]bool)
	t.lastBeat = time.Now()
	t.nextSeq = 0 // the epoch makes ids unique
}

func (c *Cluster) expireMasters() {
	tick := time.NewTicker(c.o.amExpiry / 4)
	defer tick.Stop()
	for {
		select {
		case <-c.ctx.Done():
			return
		case now := <-tick.C:
			c.mu.Lock()
			for _, a := range c.apps {
				if t := a.current(); !a.ended() && t.registered && now.Sub(t.lastBeat) > c.o.amExpiry && c.rmServers != nil {
					c.failAttempt(t, "ApplicationMaster for attempt "+t.id.String()+" timed out")
				}
			}
			c.mu.Unlock()
		}
	}
}
