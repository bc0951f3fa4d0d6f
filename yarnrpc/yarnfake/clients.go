package yarnfake

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/thalweg/thalweg/yarnrpc/ipc/ipcserver"
	commonpb "github.com/thalweg/thalweg/yarnrpc/proto/common"
	yarnpb "github.com/thalweg/thalweg/yarnrpc/proto/yarn"
	"github.com/thalweg/thalweg/yarnrpc/token"
	"github.com/thalweg/thalweg/yarnrpc/yarn"
)

// answer decodes a call's request and runs f under the lock.
func answer[Q any, P interface {
	*Q
	protoMessage
}](c *Cluster, call *ipcserver.Call, f func(req P) (protoMessage, error)) (protoMessage, error) {
	req := P(new(Q))
	if err := call.Decode(req); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return f(req)
}

// handleClient is ApplicationClientProtocol.
func (c *Cluster) handleClient(_ context.Context, call *ipcserver.Call) (protoMessage, error) {
	user := call.User
	if call.Identifier != nil {
		if id, err := yarn.DecodeRMDelegationIdentifier(call.Identifier); err == nil {
			user = id.GetOwner()
		}
	}
	switch call.Method {
	case "getNewApplication":
		return answer(c, call, func(*yarnpb.GetNewApplicationRequestProto) (protoMessage, error) {
			c.nextApp++
			id := yarn.ApplicationID{ClusterTimestamp: c.timestamp, ID: c.nextApp}
			return &yarnpb.GetNewApplicationResponseProto{ApplicationId: id.Proto(), MaximumCapability: c.o.largest.Proto()}, nil
		})
	case "submitApplication":
		return answer(c, call, func(req *yarnpb.SubmitApplicationRequestProto) (protoMessage, error) {
			return c.submit(req.GetApplicationSubmissionContext(), user)
		})
	case "getApplicationReport":
		return answer(c, call, func(req *yarnpb.GetApplicationReportRequestProto) (protoMessage, error) {
			a, err := c.app(req.GetApplicationId())
			if err != nil {
				return nil, err
			}
			return &yarnpb.GetApplicationReportResponseProto{ApplicationReport: c.report(a, user)}, nil
		})
	case "getApplications":
		return answer(c, call, func(req *yarnpb.GetApplicationsRequestProto) (protoMessage, error) {
			return c.list(req, user), nil
		})
	case "forceKillApplication":
		return answer(c, call, c.kill)
	case "failApplicationAttempt":
		return answer(c, call, func(req *yarnpb.FailApplicationAttemptRequestProto) (protoMessage, error) {
			t := c.attempt(yarn.AttemptIDOf(req.GetApplicationAttemptId()))
			if t == nil {
				return nil, exception(yarn.ErrAttemptNotFound, "Application attempt doesn't exist")
			}
			if !t.ended {
				c.failAttempt(t, "Attempt failed by user.")
			}
			return &yarnpb.FailApplicationAttemptResponseProto{}, nil
		})
	}
	return c.handleCluster(call, user)
}

// handleCluster is the part of ApplicationClientProtocol that is not about one application.
func (c *Cluster) handleCluster(call *ipcserver.Call, user string) (protoMessage, error) {
	switch call.Method {
	case "getClusterMetrics":
		return answer(c, call, func(*yarnpb.GetClusterMetricsRequestProto) (protoMessage, error) {
			active := 0
			for _, n := range c.nodes {
				if n.state == yarnpb.NodeStateProto_NS_RUNNING {
					active++
				}
			}
			return &yarnpb.GetClusterMetricsResponseProto{ClusterMetrics: &yarnpb.YarnClusterMetricsProto{
				NumNodeManagers: proto.Int32(int32(len(c.nodes))), NumActiveNms: proto.Int32(int32(active)), //nolint:gosec // small
			}}, nil
		})
	case "getClusterNodes":
		return answer(c, call, func(req *yarnpb.GetClusterNodesRequestProto) (protoMessage, error) {
			resp := &yarnpb.GetClusterNodesResponseProto{}
			for _, n := range c.nodes {
				if len(req.GetNodeStates()) == 0 || slices.Contains(req.GetNodeStates(), n.state) {
					resp.NodeReports = append(resp.NodeReports, n.report())
				}
			}
			return resp, nil
		})
	case "getQueueInfo":
		return answer(c, call, func(req *yarnpb.GetQueueInfoRequestProto) (protoMessage, error) {
			name := strings.TrimPrefix(req.GetQueueName(), "root.")
			if !slices.Contains(c.o.queues, name) {
				return &yarnpb.GetQueueInfoResponseProto{}, nil
			}
			return &yarnpb.GetQueueInfoResponseProto{QueueInfo: &yarnpb.QueueInfoProto{
				QueueName: proto.String(name), Capacity: proto.Float32(1), MaximumCapacity: proto.Float32(1), State: yarnpb.QueueStateProto_Q_RUNNING.Enum(),
			}}, nil
		})
	case "getApplicationAttempts":
		return answer(c, call, func(req *yarnpb.GetApplicationAttemptsRequestProto) (protoMessage, error) {
			a, err := c.app(req.GetApplicationId())
			if err != nil {
				return nil, err
			}
			resp := &yarnpb.GetApplicationAttemptsResponseProto{}
			for _, t := range a.attempts {
				resp.ApplicationAttempts = append(resp.ApplicationAttempts, t.report())
			}
			return resp, nil
		})
	case "getContainers":
		return answer(c, call, func(req *yarnpb.GetContainersRequestProto) (protoMessage, error) {
			id := yarn.AttemptIDOf(req.GetApplicationAttemptId())
			a, err := c.app(id.App.Proto())
			if err != nil {
				return nil, err
			}
			resp := &yarnpb.GetContainersResponseProto{}
			for _, ct := range a.sorted() {
				if ct.state != stateDone && (a.current().id == id || ct.id.Attempt == id) {
					resp.Containers = append(resp.Containers, ct.report())
				}
			}
			return resp, nil
		})
	case "getDelegationToken":
		return answer(c, call, func(req *commonpb.GetDelegationTokenRequestProto) (protoMessage, error) {
			now := time.Now()
			return &commonpb.GetDelegationTokenResponseProto{Token: tokenProto(token.KindRMDelegation, "", c.keys.delegation,
				&yarnpb.YARNDelegationTokenIdentifierProto{
					Owner: proto.String(user), Renewer: proto.String(req.GetRenewer()), IssueDate: proto.Int64(now.UnixMilli()),
					MaxDate: proto.Int64(now.Add(7 * 24 * time.Hour).UnixMilli()), SequenceNumber: proto.Int32(1), MasterKeyId: proto.Int32(1),
				})}, nil
		})
	case "renewDelegationToken":
		return answer(c, call, func(*commonpb.RenewDelegationTokenRequestProto) (protoMessage, error) {
			end := time.Now().Add(24 * time.Hour).UnixMilli()
			return &commonpb.RenewDelegationTokenResponseProto{NewExpiryTime: proto.Uint64(uint64(end))}, nil //nolint:gosec // positive
		})
	case "cancelDelegationToken":
		return answer(c, call, func(*commonpb.CancelDelegationTokenRequestProto) (protoMessage, error) {
			return &commonpb.CancelDelegationTokenResponseProto{}, nil
		})
	}
	return nil, noSuchMethod(call)
}

func (c *Cluster) app(id *yarnpb.ApplicationIdProto) (*app, error) {
	i := yarn.ApplicationIDOf(id)
	if a := c.apps[i]; a != nil {
		return a, nil
	}
	return nil, exception(yarn.ErrApplicationNotFound, "Application with id '%s' doesn't exist in RM. Please check that the job submission was successful.", i)
}

func (c *Cluster) submit(sub *yarnpb.ApplicationSubmissionContextProto, user string) (protoMessage, error) {
	id := yarn.ApplicationIDOf(sub.GetApplicationId())
	if c.apps[id] != nil { // an earlier submission, sent again
		return &yarnpb.SubmitApplicationResponseProto{}, nil
	}
	if size := yarn.ResourceOf(sub.GetResource()); !sub.GetUnmanagedAm() && !size.Fits(c.o.largest) {
		return nil, exception(yarn.ErrInvalidResourceRequest,
			"Invalid resource request! Cannot allocate containers as requested resource is greater than maximum allowed allocation. Requested resource=<memory:%d, vCores:%d>, maximum allowed allocation=<memory:%d, vCores:%d>",
			size.MemoryMB, size.VCores, c.o.largest.MemoryMB, c.o.largest.VCores)
	}
	a := &app{
		id: id, user: user, sub: sub, state: yarnpb.YarnApplicationStateProto_ACCEPTED, started: time.Now().UnixMilli(),
		final: yarnpb.FinalApplicationStatusProto_APP_UNDEFINED, containers: make(map[yarn.ContainerID]*container),
	}
	c.apps[id] = a
	if !slices.Contains(c.o.queues, strings.TrimPrefix(sub.GetQueue(), "root.")) {
		a.attempts = []*attempt{{app: a, id: yarn.AttemptID{App: id, Attempt: 1}, ended: true}}
		a.state, a.final = yarnpb.YarnApplicationStateProto_FAILED, yarnpb.FinalApplicationStatusProto_APP_FAILED
		a.diag = fmt.Sprintf("Application %s submitted by user %s to unknown queue: %s", id, user, sub.GetQueue())
		return &yarnpb.SubmitApplicationResponseProto{}, nil
	}
	c.newAttempt(a)
	return &yarnpb.SubmitApplicationResponseProto{}, nil
}

func (c *Cluster) kill(req *yarnpb.KillApplicationRequestProto) (protoMessage, error) {
	a, err := c.app(req.GetApplicationId())
	if err != nil {
		return nil, exception(yarn.ErrApplicationNotFound, "Trying to kill an absent application %s", yarn.ApplicationIDOf(req.GetApplicationId()))
	}
	if a.ended() {
		return &yarnpb.KillApplicationResponseProto{IsKillCompleted: proto.Bool(true)}, nil
	}
	c.endApp(a, yarnpb.YarnApplicationStateProto_KILLED, yarnpb.FinalApplicationStatusProto_APP_KILLED,
		"Application "+a.id.String()+" was killed by user. "+req.GetDiagnostics())
	return &yarnpb.KillApplicationResponseProto{IsKillCompleted: proto.Bool(false)}, nil // the next call says that it is done
}

func (c *Cluster) report(a *app, user string) *yarnpb.ApplicationReportProto {
	t := a.current()
	r := &yarnpb.ApplicationReportProto{
		ApplicationId: a.id.Proto(), User: proto.String(a.user), Queue: proto.String(a.sub.GetQueue()), Name: proto.String(a.sub.GetApplicationName()),
		Host: proto.String(a.host), RpcPort: proto.Int32(a.rpcPort), YarnApplicationState: a.state.Enum(), Diagnostics: proto.String(a.diag),
		TrackingUrl: proto.String("http://" + c.webAddr + "/proxy/" + a.id.String() + "/"), OriginalTrackingUrl: proto.String(a.tracking),
		StartTime: proto.Int64(a.started), FinishTime: proto.Int64(a.finished), FinalApplicationStatus: a.final.Enum(),
		CurrentApplicationAttemptId: t.id.Proto(), Progress: proto.Float32(a.progress), ApplicationType: proto.String(a.sub.GetApplicationType()),
		UnmanagedApplication: proto.Bool(a.sub.GetUnmanagedAm()), Priority: &yarnpb.PriorityProto{Priority: proto.Int32(0)},
	}
	for _, tag := range a.sub.GetApplicationTags() {
		r.ApplicationTags = append(r.ApplicationTags, strings.ToLower(tag))
	}
	if a.sub.GetUnmanagedAm() && user == a.user && !t.ended { // only its owner may become the master
		r.AmRmToken = c.amrmToken(t)
	}
	return r
}

func (c *Cluster) list(req *yarnpb.GetApplicationsRequestProto, user string) *yarnpb.GetApplicationsResponseProto {
	resp := &yarnpb.GetApplicationsResponseProto{}
	has := func(want []string, got ...string) bool {
		if len(want) == 0 {
			return true
		}
		for _, w := range want {
			for _, g := range got {
				if strings.EqualFold(w, g) {
					return true
				}
			}
		}
		return false
	}
	for _, a := range c.apps {
		if !has(req.GetApplicationTypes(), a.sub.GetApplicationType()) || !has(req.GetUsers(), a.user) || !has(req.GetQueues(), a.sub.GetQueue()) ||
			!has(req.GetApplicationTags(), a.sub.GetApplicationTags()...) ||
			(len(req.GetApplicationStates()) > 0 && !slices.Contains(req.GetApplicationStates(), a.state)) ||
			(req.Name != nil && req.GetName() != a.sub.GetApplicationName()) {
			continue
		}
		if req.Limit == nil || int64(len(resp.GetApplications())) < req.GetLimit() {
			resp.Applications = append(resp.Applications, c.report(a, user))
		}
	}
	return resp
}

func (t *attempt) report() *yarnpb.ApplicationAttemptReportProto {
	r := &yarnpb.ApplicationAttemptReportProto{
		ApplicationAttemptId: t.id.Proto(), Host: proto.String(t.app.host), RpcPort: proto.Int32(t.app.rpcPort), Diagnostics: proto.String(t.diag),
		OriginalTrackingUrl: proto.String(t.app.tracking), StartTime: proto.Int64(t.start), FinishTime: proto.Int64(t.finish),
	}
	if t.state != 0 {
		r.YarnApplicationAttemptState = t.state.Enum()
	}
	if t.master != nil {
		r.AmContainerId = t.master.id.Proto()
	}
	return r
}

func (ct *container) report() *yarnpb.ContainerReportProto {
	return &yarnpb.ContainerReportProto{
		ContainerId: ct.id.Proto(), Resource: ct.size.Proto(), NodeId: ct.node.id.Proto(), Priority: &yarnpb.PriorityProto{Priority: proto.Int32(ct.priority)},
		CreationTime: proto.Int64(ct.started), FinishTime: proto.Int64(ct.finished), DiagnosticsInfo: proto.String(ct.diag),
		ContainerExitStatus: proto.Int32(ct.exit), ContainerState: ct.status().State,
	}
}
