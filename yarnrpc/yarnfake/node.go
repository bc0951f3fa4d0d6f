package yarnfake

import (
	"context"
	"crypto/hmac"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/thalweg/thalweg/yarnrpc/ipc"
	"github.com/thalweg/thalweg/yarnrpc/ipc/ipcserver"
	commonpb "github.com/thalweg/thalweg/yarnrpc/proto/common"
	yarnpb "github.com/thalweg/thalweg/yarnrpc/proto/yarn"
	"github.com/thalweg/thalweg/yarnrpc/token"
	"github.com/thalweg/thalweg/yarnrpc/yarn"
)

type node struct {
	index int
	id    yarn.NodeID
	size  yarn.Resource
	used  yarn.Resource
	state yarnpb.NodeStateProto
	limit time.Duration // of its decommissioning
	srv   *ipcserver.Server
}

func (c *Cluster) startNode(i int) (*node, error) {
	host := "127.0.0.1"
	if c.o.hosts {
		host = fmt.Sprintf("127.0.0.%d", i+1)
	}
	l, err := listen(host + ":0")
	if err != nil {
		return nil, err
	}
	id, err := yarn.ParseNodeID(l.Addr().String())
	if err != nil {
		return nil, err
	}
	n := &node{index: i, id: id, size: c.o.nodeSize, state: yarnpb.NodeStateProto_NS_RUNNING}
	n.srv = c.nodeServer(n)
	n.srv.Serve(l)
	return n, nil
}

func (c *Cluster) nodeServer(n *node) *ipcserver.Server {
	return ipcserver.New(ipcserver.Config{
		Handler:  c.faulty(func(_ context.Context, call *ipcserver.Call) (protoMessage, error) { return c.handleNode(n, call) }),
		Password: c.nmPassword,
	})
}

func (n *node) report() *yarnpb.NodeReportProto {
	r := &yarnpb.NodeReportProto{
		NodeId: n.id.Proto(), HttpAddress: proto.String(n.id.Host + ":8042"), RackName: proto.String("/default-rack"), Used: n.used.Proto(),
		Capability: n.size.Proto(), NodeState: n.state.Enum(), HealthReport: proto.String(""),
	}
	if n.state == yarnpb.NodeStateProto_NS_DECOMMISSIONING && n.limit > 0 {
		r.DecommissioningTimeout = proto.Uint32(uint32(n.limit.Seconds()))
	}
	return r
}

// handleNode is ContainerManagementProtocol.
func (c *Cluster) handleNode(n *node, call *ipcserver.Call) (protoMessage, error) {
	id, err := yarn.DecodeNMIdentifier(call.Identifier)
	if err != nil {
		return nil, err
	}
	caller := yarn.AttemptIDOf(id.GetAppAttemptId())
	if yarn.NodeIDOf(id.GetNodeId()) != n.id {
		return nil, invalidToken("NMToken is for " + yarn.NodeIDOf(id.GetNodeId()).String())
	}
	switch call.Method {
	case "startContainers":
		return answer(c, call, func(req *yarnpb.StartContainersRequestProto) (protoMessage, error) {
			resp := &yarnpb.StartContainersResponseProto{}
			for _, r := range req.GetStartContainerRequest() {
				cid, err := c.startContainer(n, caller, r)
				if err != nil {
					resp.FailedRequests = append(resp.FailedRequests, failed(cid, err))
				} else {
					resp.SucceededRequests = append(resp.SucceededRequests, cid.Proto())
				}
			}
			return resp, nil
		})
	case "stopContainers":
		return answer(c, call, func(req *yarnpb.StopContainersRequestProto) (protoMessage, error) {
			resp := &yarnpb.StopContainersResponseProto{}
			for _, p := range req.GetContainerId() {
				cid := yarn.ContainerIDOf(p)
				if cid.Attempt.App != caller.App {
					resp.FailedRequests = append(resp.FailedRequests, failed(cid, exception(yarn.ErrYarn, "Container %s is not of the caller's application", cid)))
					continue
				}
				if ct := c.running(n, cid); ct != nil {
					c.complete(ct, yarn.ExitKilledByAppMaster, "Container killed by the ApplicationMaster.")
				}
				resp.SucceededRequests = append(resp.SucceededRequests, p)
			}
			return resp, nil
		})
	case "getContainerStatuses":
		return answer(c, call, func(req *yarnpb.GetContainerStatusesRequestProto) (protoMessage, error) {
			resp := &yarnpb.GetContainerStatusesResponseProto{}
			for _, p := range req.GetContainerId() {
				cid := yarn.ContainerIDOf(p)
				a := c.apps[cid.Attempt.App]
				if a == nil || cid.Attempt.App != caller.App || a.containers[cid] == nil || a.containers[cid].node != n || a.containers[cid].started == 0 {
					resp.FailedRequests = append(resp.FailedRequests, failed(cid, exception(yarn.ErrYarn, "Container %s is not handled by this NodeManager", cid)))
					continue
				}
				resp.Status = append(resp.Status, a.containers[cid].status())
			}
			return resp, nil
		})
	}
	return nil, noSuchMethod(call)
}

func failed(cid yarn.ContainerID, err error) *yarnpb.ContainerExceptionMapProto {
	remote, ok := err.(*ipc.RemoteError) //nolint:errorlint // made here
	if !ok {
		remote = &ipc.RemoteError{Class: string(yarn.ErrYarn), Message: err.Error()}
	}
	return &yarnpb.ContainerExceptionMapProto{ContainerId: cid.Proto(), Exception: &yarnpb.SerializedExceptionProto{
		Message: proto.String(remote.Message), ClassName: proto.String(remote.Class),
	}}
}

func (c *Cluster) running(n *node, id yarn.ContainerID) *container {
	a := c.apps[id.Attempt.App]
	if a == nil {
		return nil
	}
	if ct := a.containers[id]; ct != nil && ct.node == n && ct.state != stateDone {
		return ct
	}
	return nil
}

// startContainer checks what a NodeManager checks and starts the container.
func (c *Cluster) startContainer(n *node, caller yarn.AttemptID, r *yarnpb.StartContainerRequestProto) (yarn.ContainerID, error) {
	ident, err := yarn.DecodeContainerIdentifier(r.GetContainerToken().GetIdentifier())
	if err != nil {
		return yarn.ContainerID{}, err
	}
	cid := yarn.ContainerIDOf(ident.GetContainerId())
	switch {
	case !hmac.Equal(sign(c.keys.container, r.GetContainerToken().GetIdentifier()), r.GetContainerToken().GetPassword()):
		return cid, invalidToken("Given Container " + cid.String() + " seems to have an illegally generated token.")
	case cid.Attempt.App != caller.App:
		return cid, exception(yarn.ErrYarn, "NMToken of %s was used for starting container of %s", caller, cid.Attempt)
	case ident.GetNmHostAddr() != n.id.String():
		return cid, exception(yarn.ErrYarn, "Container %s is for another node", cid)
	case ident.GetExpiryTimeStamp() < time.Now().UnixMilli():
		return cid, exception(yarn.ErrYarn, "Unauthorized request to start container. This token is expired.")
	case ident.GetRmIdentifier() != c.timestamp:
		return cid, exception(yarn.ErrInvalidContainer, "Container %s rejected as it is allocated by a previous RM", cid)
	}
	a := c.apps[cid.Attempt.App]
	if a == nil || a.containers[cid] == nil || a.containers[cid].state == stateDone {
		return cid, exception(yarn.ErrYarn, "Container %s was released or its application has ended", cid)
	}
	ct := a.containers[cid]
	if ct.started != 0 {
		return cid, exception(yarn.ErrYarn, "Container %s already is running on this node!!", cid)
	}
	if c.launchCheck != nil {
		if err := c.launchCheck(Launch{Container: cid, Node: n.id, Context: r.GetContainerLaunchContext()}); err != nil {
			return cid, err
		}
	}
	c.launch(ct, r.GetContainerLaunchContext(), nil)
	a.stats.Started++
	return cid, nil
}

// launch runs a container in a goroutine of its own. extra is a token that the ResourceManager adds for the master.
func (c *Cluster) launch(ct *container, spec *yarnpb.ContainerLaunchContextProto, extra *commonpb.TokenProto) {
	ctx, cancel := context.WithCancel(c.ctx)
	ct.cancel, ct.started, ct.state = cancel, time.Now().UnixMilli(), stateRunning
	l := Launch{
		Container: ct.id, Node: ct.node.id, Master: ct.master, User: ct.app.user, Size: ct.size, Context: spec,
		base: fmt.Sprintf("%s/node%d", c.o.dir, ct.node.index), submitted: ct.app.started, maxAttempts: ct.app.sub.GetMaxAppAttempts(), webAddr: c.webAddr,
	}
	creds, err := token.Decode(spec.GetTokens())
	if len(spec.GetTokens()) == 0 {
		creds, err = &token.Credentials{}, nil
	}
	if err == nil && extra != nil {
		creds.Put("", token.FromProto(extra))
	}
	l.Credentials = creds
	c.wg.Go(func() {
		exit, diag := int32(-1), ""
		if err != nil {
			diag = err.Error()
		} else {
			exit, diag = c.o.runner(ctx, l)
		}
		cancel()
		c.mu.Lock()
		defer c.mu.Unlock()
		if !c.closed {
			c.complete(ct, exit, diag)
		}
	})
}
