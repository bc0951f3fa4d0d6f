package yarnfake

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/thalweg/thalweg/yarnrpc/ipc"
	"github.com/thalweg/thalweg/yarnrpc/ipc/ipcserver"
	commonpb "github.com/thalweg/thalweg/yarnrpc/proto/common"
	yarnpb "github.com/thalweg/thalweg/yarnrpc/proto/yarn"
	"github.com/thalweg/thalweg/yarnrpc/yarn"
)

func exception(class ipc.Class, format string, args ...any) error {
	return &ipc.RemoteError{Class: string(class), Message: fmt.Sprintf(format, args...)}
}

func noSuchMethod(call *ipcserver.Call) error {
	return &ipc.RemoteError{Class: string(ipc.ErrNoSuchMethod), Message: "Unknown method " + call.Method + " called on " + call.Protocol + " protocol.",
		Code: commonpb.RpcResponseHeaderProto_ERROR_NO_SUCH_METHOD}
}

// handleMaster is ApplicationMasterProtocol.
func (c *Cluster) handleMaster(_ context.Context, call *ipcserver.Call) (protoMessage, error) {
	id, err := yarn.DecodeAMRMIdentifier(call.Identifier)
	if err != nil {
		return nil, err
	}
	attID := yarn.AttemptIDOf(id.GetAppAttemptId())
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.attempt(attID)
	if t != nil && t == t.app.current() && t.app.state == yarnpb.YarnApplicationStateProto_FINISHED && call.Method == "finishApplicationMaster" {
		return &yarnpb.FinishApplicationMasterResponseProto{IsUnregistered: proto.Bool(true)}, nil // asked again
	}
	if t == nil || t.ended {
		return nil, exception(yarn.ErrAttemptNotFound, "Application attempt %s doesn't exist in ApplicationMasterService cache.", attID)
	}
	t.lastBeat = time.Now()
	switch call.Method {
	case "registerApplicationMaster":
		req := &yarnpb.RegisterApplicationMasterRequestProto{}
		if err := call.Decode(req); err != nil {
			return nil, err
		}
		return c.register(t, req)
	case "allocate":
		req := &yarnpb.AllocateRequestProto{}
		if err := call.Decode(req); err != nil {
			return nil, err
		}
		return c.allocate(t, req, id.GetKeyId())
	case "finishApplicationMaster":
		req := &yarnpb.FinishApplicationMasterRequestProto{}
		if err := call.Decode(req); err != nil {
			return nil, err
		}
		return c.finish(t, req)
	}
	return nil, noSuchMethod(call)
}

func (c *Cluster) register(t *attempt, req *yarnpb.RegisterApplicationMasterRequestProto) (protoMessage, error) {
	if t.registered {
		return nil, exception(yarn.ErrInvalidMasterRequest, "Application Master is already registered : %s", t.app.id)
	}
	a := t.app
	a.stats.Registers++
	t.registered, t.responseID, t.last = true, 0, nil
	t.state = yarnpb.YarnApplicationAttemptStateProto_APP_ATTEMPT_RUNNING
	a.state, a.host, a.rpcPort, a.tracking = yarnpb.YarnApplicationStateProto_RUNNING, req.GetHost(), req.GetRpcPort(), req.GetTrackingUrl()
	resp := &yarnpb.RegisterApplicationMasterResponseProto{
		MaximumCapability: c.o.largest.Proto(), Queue: proto.String(a.sub.GetQueue()), ClientToAmTokenMasterKey: newKey(),
		SchedulerResourceTypes: []yarnpb.SchedulerResourceTypes{yarnpb.SchedulerResourceTypes_MEMORY},
	}
	if !c.o.memoryOnly {
		resp.SchedulerResourceTypes = append(resp.SchedulerResourceTypes, yarnpb.SchedulerResourceTypes_CPU)
	}
	if a.sub.GetKeepContainersAcrossApplicationAttempts() {
		for _, ct := range a.sorted() {
			if ct.master || (ct.state != stateAcquired && ct.state != stateRunning) {
				continue
			}
			resp.ContainersFromPreviousAttempts = append(resp.ContainersFromPreviousAttempts, ct.proto())
			if !t.tokensFor[ct.node] {
				t.tokensFor[ct.node] = true
				resp.NmTokensFromPreviousAttempts = append(resp.NmTokensFromPreviousAttempts, c.nmToken(t, ct.node))
			}
		}
	}
	return resp, nil
}

func (a *app) sorted() []*container {
	list := slices.Collect(maps.Values(a.containers))
	slices.SortFunc(list, func(x, y *container) int {
		return cmp.Or(cmp.Compare(x.id.Attempt.Attempt, y.id.Attempt.Attempt), cmp.Compare(x.id.ID, y.id.ID))
	})
	return list
}

func (c *Cluster) allocate(t *attempt, req *yarnpb.AllocateRequestProto, keyID int32) (protoMessage, error) {
	if !t.registered {
		return nil, exception(yarn.ErrMasterNotRegistered, "AM is not registered for known application attempt: %s or RM had restarted after AM registered. AM should re-register.", t.id)
	}
	switch id := req.GetResponseId(); {
	case t.last != nil && (id+1)&0x7fffffff == t.responseID:
		return t.last, nil // a repeated request
	case id != t.responseID:
		return nil, exception(yarn.ErrInvalidMasterRequest, "Invalid responseId in AllocateRequest from application attempt: %s, expect responseId to be %d, but get %d",
			t.id, t.responseID, id)
	}
	for _, r := range req.GetAsk() {
		if err := c.validate(r); err != nil {
			return nil, err
		}
	}
	a := t.app
	a.stats.Beats++
	a.progress = req.GetProgress()
	if req.TrackingUrl != nil {
		a.tracking = req.GetTrackingUrl()
	}
	resp := &yarnpb.AllocateResponseProto{NumClusterNodes: proto.Int32(c.nodesLeft()), Limit: c.headroom().Proto()} //nolint:gosec // small
	resp.CompletedContainerStatuses, t.completed = t.completed, nil
	c.schedule(t)
	for _, ct := range t.granted {
		ct.state = stateAcquired
		a.stats.Granted++
		resp.AllocatedContainers = append(resp.AllocatedContainers, ct.proto())
		if !t.tokensFor[ct.node] {
			t.tokensFor[ct.node] = true
			resp.NmTokens = append(resp.NmTokens, c.nmToken(t, ct.node))
		}
	}
	t.granted = nil
	// What this request says takes effect behind its answer, as in YARN, where the scheduler works on its own.
	for _, r := range req.GetRelease() {
		if ct := a.containers[yarn.ContainerIDOf(r)]; ct != nil && ct.state != stateDone && !ct.master {
			a.stats.Released++
			c.complete(ct, yarn.ExitAborted, "Container released by application")
		}
	}
	for _, r := range req.GetAsk() {
		c.ask(t, r)
	}
	for _, h := range req.GetBlacklistRequest().GetBlacklistAdditions() {
		t.excluded[h] = true
	}
	for _, h := range req.GetBlacklistRequest().GetBlacklistRemovals() {
		delete(t.excluded, h)
	}
	for _, n := range t.updated {
		resp.UpdatedNodes = append(resp.UpdatedNodes, n.report())
	}
	t.updated = nil
	if len(t.preempt) > 0 {
		s := &yarnpb.StrictPreemptionContractProto{}
		for _, id := range t.preempt {
			s.Container = append(s.Container, &yarnpb.PreemptionContainerProto{Id: id.Proto()})
		}
		resp.Preempt = &yarnpb.PreemptionMessageProto{StrictContract: s}
		t.preempt = nil
	}
	if keyID != c.keys.current {
		resp.AmRmToken = c.amrmToken(t)
	}
	t.responseID = (t.responseID + 1) & 0x7fffffff
	resp.ResponseId = proto.Int32(t.responseID)
	t.last = resp
	return resp, nil
}

func (c *Cluster) validate(r *yarnpb.ResourceRequestProto) error {
	size := yarn.ResourceOf(r.GetCapability())
	if size.MemoryMB < 0 || size.VCores < 0 || !size.Fits(c.o.largest) || r.GetNumContainers() < 0 {
		return exception(yarn.ErrInvalidResourceRequest,
			"Invalid resource request! Cannot allocate containers as requested resource is less than 0 or greater than maximum allowed allocation. Requested resource=<memory:%d, vCores:%d>, maximum allowed allocation=<memory:%d, vCores:%d>",
			size.MemoryMB, size.VCores, c.o.largest.MemoryMB, c.o.largest.VCores)
	}
	return nil
}

// ask sets the count of one key: it replaces what was asked before and does not add to it.
func (c *Cluster) ask(t *attempt, r *yarnpb.ResourceRequestProto) {
	k := askKey{r.GetPriority().GetPriority(), r.GetAllocationRequestId(), r.GetResourceName()}
	if r.GetNumContainers() == 0 {
		delete(t.asks, k)
		return
	}
	t.asks[k] = &ask{size: c.normalise(yarn.ResourceOf(r.GetCapability())), count: r.GetNumContainers(), since: time.Now(), relax: r.GetRelaxLocality()}
}

// schedule grants what is open, in the order of priority and request id, and lowers the counts.
func (c *Cluster) schedule(t *attempt) {
	keys := slices.SortedFunc(maps.Keys(t.asks), func(a, b askKey) int {
		return cmp.Or(cmp.Compare(a.priority, b.priority), cmp.Compare(a.requestID, b.requestID), cmp.Compare(a.resource, b.resource))
	})
	now, granted := time.Now(), 0
	for _, k := range keys {
		if k.resource != yarn.AnyHost { // counts for any host decide, those for hosts say where
			continue
		}
		for any := t.asks[k]; any != nil && any.count > 0; any = t.asks[k] {
			if (c.grantsPerBeat > 0 && granted >= c.grantsPerBeat) || now.Sub(any.since) < c.grantDelay {
				break
			}
			n, host := c.choose(t, k, any)
			if n == nil {
				break
			}
			t.granted = append(t.granted, c.newContainer(t, n, any.size, k.priority, k.requestID))
			granted++
			t.lower(k)
			if host != "" {
				t.lower(askKey{k.priority, k.requestID, host})
			}
		}
	}
}

func (t *attempt) lower(k askKey) {
	if a := t.asks[k]; a != nil {
		if a.count--; a.count <= 0 {
			delete(t.asks, k)
		}
	}
}

// choose finds a node: one that is asked for by host, else any unless locality is strict.
func (c *Cluster) choose(t *attempt, k askKey, any *ask) (n *node, host string) {
	for _, cand := range c.nodes {
		if a := t.asks[askKey{k.priority, k.requestID, cand.id.Host}]; a != nil && a.count > 0 && c.fits(cand, any.size) {
			return cand, cand.id.Host
		}
	}
	if !any.relax {
		return nil, ""
	}
	return c.place(any.size, "", false, t.excluded), ""
}

// place finds the node with the most free memory that the size fits on, and that is not excluded.
func (c *Cluster) place(size yarn.Resource, host string, force bool, excluded map[string]bool) *node {
	var best *node
	for _, n := range c.nodes {
		if excluded[n.id.Host] || (host != "" && n.id.Host != host) || !(c.fits(n, size) || (force && n.state == yarnpb.NodeStateProto_NS_RUNNING)) {
			continue
		}
		if best == nil || n.size.MemoryMB-n.used.MemoryMB > best.size.MemoryMB-best.used.MemoryMB {
			best = n
		}
	}
	return best
}

func (c *Cluster) fits(n *node, size yarn.Resource) bool {
	if n.state != yarnpb.NodeStateProto_NS_RUNNING || n.used.MemoryMB+size.MemoryMB > n.size.MemoryMB {
		return false
	}
	return c.o.memoryOnly || n.used.VCores+size.VCores <= n.size.VCores
}

// normalise rounds a size up as the scheduler does; a calculator that counts memory only shows one vcore.
func (c *Cluster) normalise(r yarn.Resource) yarn.Resource {
	r.MemoryMB = max((r.MemoryMB+c.o.unitMB-1)/c.o.unitMB*c.o.unitMB, c.o.unitMB)
	if r.VCores = max(r.VCores, 1); c.o.memoryOnly {
		r.VCores = 1
	}
	return r
}

// nodesLeft counts the nodes that are not lost.
func (c *Cluster) nodesLeft() (n int32) {
	for _, x := range c.nodes {
		if x.state != yarnpb.NodeStateProto_NS_LOST {
			n++
		}
	}
	return n
}

func (c *Cluster) headroom() yarn.Resource {
	var r yarn.Resource
	for _, n := range c.nodes {
		if n.state == yarnpb.NodeStateProto_NS_RUNNING {
			r.MemoryMB += n.size.MemoryMB - n.used.MemoryMB
			r.VCores += max(n.size.VCores-n.used.VCores, 0)
		}
	}
	return r
}

func (c *Cluster) finish(t *attempt, req *yarnpb.FinishApplicationMasterRequestProto) (protoMessage, error) {
	if !t.registered {
		return nil, exception(yarn.ErrMasterNotRegistered, "Application Master is trying to unregister before registering for: %s", t.app.id)
	}
	if req.TrackingUrl != nil {
		t.app.tracking = req.GetTrackingUrl()
	}
	c.endApp(t.app, yarnpb.YarnApplicationStateProto_FINISHED, req.GetFinalApplicationStatus(), req.GetDiagnostics())
	return &yarnpb.FinishApplicationMasterResponseProto{IsUnregistered: proto.Bool(true)}, nil
}
