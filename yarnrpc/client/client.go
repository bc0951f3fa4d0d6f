// Package client speaks ApplicationClientProtocol with the ResourceManager: submit, look at, list and kill applications,
// and ask for queues, nodes and delegation tokens. Layer L1; imports yarnrpc/{ipc,token,identity,conf,yarn,proto}.
//
// Every call repeats itself while the ResourceManager cannot be reached or is standby, over all addresses of an HA pair,
// but no longer than the caller's context and MaxWait; then it returns one *UnreachableError that names address and key.
// All calls here are idempotent for YARN, so that repeating one whose answer was lost does no harm.
//
// Main flow: New, NewApplication, Submit, Report until the state is what the caller waits for. Safe for concurrent use.
//
// Source: hadoop-yarn-api ApplicationClientProtocol and hadoop-yarn-client YarnClientImpl, Hadoop 3.4.
package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/protobuf/proto"

	"github.com/thalweg/thalweg/yarnrpc/conf"
	"github.com/thalweg/thalweg/yarnrpc/identity"
	"github.com/thalweg/thalweg/yarnrpc/ipc"
	commonpb "github.com/thalweg/thalweg/yarnrpc/proto/common"
	yarnpb "github.com/thalweg/thalweg/yarnrpc/proto/yarn"
	"github.com/thalweg/thalweg/yarnrpc/token"
	"github.com/thalweg/thalweg/yarnrpc/yarn"
)

// DefaultMaxWait is how long a call tries to reach a ResourceManager.
const DefaultMaxWait = 20 * time.Second

// Submit and Kill look at the application after firstPoll, then ever later up to each pollInterval.
const (
	firstPoll    = 5 * time.Millisecond
	pollInterval = 100 * time.Millisecond
)

// UnreachableError says that no ResourceManager answered in time.
type UnreachableError struct {
	Addrs []string // tried
	Key   string   // configuration key of the addresses
	File  string   // where the key is set, empty for a built-in default
	After time.Duration
	Err   error // the last failure
}

// Error is one line: what was tried, for how long, why it failed, where the address comes from.
func (e *UnreachableError) Error() string {
	from := "the default of " + e.Key
	if e.File != "" {
		from = e.Key + " in " + e.File
	}
	return fmt.Sprintf("client: ResourceManager at %s does not answer within %s: %v (address from %s: check it, and that the ResourceManager runs)",
		strings.Join(e.Addrs, ", "), e.After.Round(time.Millisecond), e.Err, from)
}

// Unwrap returns the last failure.
func (e *UnreachableError) Unwrap() error { return e.Err }

type options struct {
	ipc     []ipc.Option
	id      *identity.Identity
	maxWait time.Duration
	retry   ipc.Retry
	logger  zerolog.Logger
}

// Option changes a Client.
type Option func(*options)

// WithIPC passes options to the connection: user, dial function, mechanisms, time-outs.
func WithIPC(o ...ipc.Option) Option {
	return func(c *options) { c.ipc = append(c.ipc, o...) }
}

// WithIdentity says who calls: with the RM delegation token among its tokens, or by its login. By default a user under
// simple authentication.
func WithIdentity(id *identity.Identity) Option { return func(c *options) { c.id = id } }

// WithMaxWait bounds each call's attempts to reach a ResourceManager, DefaultMaxWait by default.
func WithMaxWait(d time.Duration) Option { return func(c *options) { c.maxWait = d } }

// WithRetry sets the pauses between attempts.
func WithRetry(r ipc.Retry) Option { return func(c *options) { c.retry = r } }

// WithLogger sets the logger, none by default.
func WithLogger(l zerolog.Logger) Option { return func(c *options) { c.logger = l } }

// Client is a client of the ResourceManager.
type Client struct {
	o     options
	rpc   *ipc.Client
	addrs []string
	file  string
}

// New makes a client for the ResourceManager that the configuration names. Nothing is dialed yet. Close it.
//
// Errors: *conf.KeyError for bad addresses.
func New(c *conf.Configuration, opts ...Option) (*Client, error) {
	o := options{maxWait: DefaultMaxWait, logger: zerolog.Nop()}
	for _, f := range opts {
		f(&o)
	}
	addrs, err := c.ResourceManagers()
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	ipcOpts := []ipc.Option{ipc.WithLogger(o.logger)}
	if o.id != nil {
		ipcOpts = append(ipcOpts, o.id.ResourceManager()...)
	}
	rpc, err := ipc.NewClient(addrs, yarn.ClientProtocol, append(ipcOpts, o.ipc...)...)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	file := c.Source(conf.KeyRMAddress)
	if file == "" {
		file = c.Source(conf.KeyRMHostname)
	}
	return &Client{o: o, rpc: rpc, addrs: addrs, file: file}, nil
}

// Close ends all calls and connections.
func (c *Client) Close() error { return c.rpc.Close() }

func (c *Client) call(ctx context.Context, method string, req, resp proto.Message) error {
	wctx, cancel := context.WithTimeout(ctx, c.o.maxWait)
	defer cancel()
	start := time.Now()
	// The wait for an answer of a server that was reached is bounded by the call time-out of ipc, inside wctx.
	err := c.rpc.CallRetry(wctx, c.o.retry, method, req, resp)
	switch {
	case err == nil:
		return nil
	case errors.Is(ctx.Err(), context.Canceled):
		return fmt.Errorf("client: %s: %w", method, err)
	}
	var remote *ipc.RemoteError
	if wctx.Err() != nil || ipc.Classify(err) != ipc.Final {
		return &UnreachableError{Addrs: c.addrs, Key: conf.KeyRMAddress, File: c.file, After: time.Since(start), Err: err}
	}
	if errors.As(err, &remote) && strings.Contains(remote.Message, "is not allowed to impersonate") {
		return fmt.Errorf("client: %w: allow it on the cluster (hadoop.proxyuser.NAME.hosts, and .users or .groups), or unset HADOOP_PROXY_USER", err)
	}
	if errors.As(err, &remote) || errors.Is(err, ipc.ErrNoMechanism) {
		return fmt.Errorf("client: %w", err)
	}
	return fmt.Errorf("client: %s: %w", method, err)
}

// NewApplication reserves an application id and tells the largest container that the cluster grants.
func (c *Client) NewApplication(ctx context.Context) (id yarn.ApplicationID, largest yarn.Resource, err error) {
	resp := &yarnpb.GetNewApplicationResponseProto{}
	if err := c.call(ctx, "getNewApplication", &yarnpb.GetNewApplicationRequestProto{}, resp); err != nil {
		return yarn.ApplicationID{}, yarn.Resource{}, err
	}
	return yarn.ApplicationIDOf(resp.GetApplicationId()), yarn.ResourceOf(resp.GetMaximumCapability()), nil
}

// SubmissionError says that the ResourceManager took the submission but refused the application, for example because its
// queue does not exist or the user may not use it.
type SubmissionError struct {
	ID          yarn.ApplicationID
	State       yarnpb.YarnApplicationStateProto
	Diagnostics string // the ResourceManager's words
}

// Error carries the diagnostics.
func (e *SubmissionError) Error() string {
	return fmt.Sprintf("client: submit %s: application is %s: %s", e.ID, e.State, strings.TrimSpace(e.Diagnostics))
}

// Submit submits an application and returns when the ResourceManager has stored it and its scheduler has accepted it
// (state ACCEPTED or later), so that it survives a restart of the ResourceManager from then on. When a restart loses it
// before, it is submitted again. A queue that does not exist shows only then: the application goes from SUBMITTED to FAILED.
//
// Errors: *SubmissionError, *ipc.RemoteError, *UnreachableError, the context's.
// Source: hadoop-yarn-client YarnClientImpl.submitApplication.
func (c *Client) Submit(ctx context.Context, app *yarnpb.ApplicationSubmissionContextProto) error {
	id := yarn.ApplicationIDOf(app.GetApplicationId())
	req := &yarnpb.SubmitApplicationRequestProto{ApplicationSubmissionContext: app}
	submit := func() error {
		return c.call(ctx, "submitApplication", req, &yarnpb.SubmitApplicationResponseProto{})
	}
	if err := submit(); err != nil {
		return err
	}
	for wait := firstPoll; ; wait = min(2*wait, pollInterval) {
		r, err := c.Report(ctx, id)
		switch {
		case errors.Is(err, yarn.ErrApplicationNotFound):
			if err := submit(); err != nil {
				return err
			}
			continue
		case err != nil:
			return err
		}
		switch s := r.GetYarnApplicationState(); s {
		case yarnpb.YarnApplicationStateProto_NEW, yarnpb.YarnApplicationStateProto_NEW_SAVING, yarnpb.YarnApplicationStateProto_SUBMITTED:
		case yarnpb.YarnApplicationStateProto_FAILED, yarnpb.YarnApplicationStateProto_KILLED:
			return &SubmissionError{ID: id, State: s, Diagnostics: r.GetDiagnostics()}
		default:
			return nil
		}
		if err := ipc.Sleep(ctx, wait); err != nil {
			return fmt.Errorf("client: submit %s: %w", id, err)
		}
	}
}

// Report returns what the ResourceManager knows about an application.
//
// Errors: yarn.ErrApplicationNotFound among others.
func (c *Client) Report(ctx context.Context, id yarn.ApplicationID) (*yarnpb.ApplicationReportProto, error) {
	resp := &yarnpb.GetApplicationReportResponseProto{}
	if err := c.call(ctx, "getApplicationReport", &yarnpb.GetApplicationReportRequestProto{ApplicationId: id.Proto()}, resp); err != nil {
		return nil, err
	}
	return resp.GetApplicationReport(), nil
}

// Filter selects applications; empty fields select all.
type Filter struct {
	Types  []string // application types; YARN compares without case
	States []yarnpb.YarnApplicationStateProto
	Users  []string
	Queues []string
	Tags   []string // any of them
	Name   string   // exact; applied here too, since ResourceManagers before 3.3 ignore it
	Limit  int64    // 0 for no limit
}

// Applications lists applications, in no order.
func (c *Client) Applications(ctx context.Context, f Filter) ([]*yarnpb.ApplicationReportProto, error) {
	req := &yarnpb.GetApplicationsRequestProto{
		ApplicationTypes: f.Types, ApplicationStates: f.States, Users: f.Users, Queues: f.Queues,
		Scope: yarnpb.ApplicationsRequestScopeProto_ALL.Enum(),
	}
	for _, t := range f.Tags {
		req.ApplicationTags = append(req.ApplicationTags, strings.ToLower(t)) // YARN stores tags in lower case
	}
	if f.Name != "" {
		req.Name = proto.String(f.Name)
	}
	if f.Limit > 0 {
		req.Limit = proto.Int64(f.Limit)
	}
	resp := &yarnpb.GetApplicationsResponseProto{}
	if err := c.call(ctx, "getApplications", req, resp); err != nil {
		return nil, err
	}
	apps := resp.GetApplications()
	if f.Name != "" {
		apps = slices.DeleteFunc(apps, func(a *yarnpb.ApplicationReportProto) bool { return a.GetName() != f.Name })
	}
	return apps, nil
}

// Kill ends an application and returns when YARN has ended it. An application that has ended already is no error.
//
// Errors: yarn.ErrApplicationNotFound, ipc.ErrAccessControl among others.
func (c *Client) Kill(ctx context.Context, id yarn.ApplicationID, diagnostics string) error {
	req := &yarnpb.KillApplicationRequestProto{ApplicationId: id.Proto()}
	if diagnostics != "" {
		req.Diagnostics = proto.String(diagnostics)
	}
	for wait := firstPoll; ; wait = min(2*wait, pollInterval) {
		resp := &yarnpb.KillApplicationResponseProto{}
		if err := c.call(ctx, "forceKillApplication", req, resp); err != nil {
			return err
		}
		if resp.GetIsKillCompleted() {
			return nil
		}
		if err := ipc.Sleep(ctx, wait); err != nil {
			return fmt.Errorf("client: kill %s: %w", id, err)
		}
	}
}

// FailAttempt ends the running attempt of an application as failed, so that YARN starts the next one.
func (c *Client) FailAttempt(ctx context.Context, id yarn.AttemptID) error {
	return c.call(ctx, "failApplicationAttempt", &yarnpb.FailApplicationAttemptRequestProto{ApplicationAttemptId: id.Proto()},
		&yarnpb.FailApplicationAttemptResponseProto{})
}

// QueueNotFoundError says that there is no such queue.
type QueueNotFoundError struct{ Queue string }

// Error names the queue.
func (e *QueueNotFoundError) Error() string {
	return fmt.Sprintf("client: queue %q does not exist: choose one of those that 'yarn queue -list all' shows", e.Queue)
}

// Queue returns a queue, by name or by full path, with its children.
//
// Errors: *QueueNotFoundError.
func (c *Client) Queue(ctx context.Context, name string) (*yarnpb.QueueInfoProto, error) {
	resp := &yarnpb.GetQueueInfoResponseProto{}
	err := c.call(ctx, "getQueueInfo", &yarnpb.GetQueueInfoRequestProto{
		QueueName: proto.String(name), IncludeApplications: proto.Bool(false), IncludeChildQueues: proto.Bool(true), Recursive: proto.Bool(false),
	}, resp)
	if err != nil {
		return nil, err
	}
	if resp.QueueInfo == nil { // the ResourceManager's way to say that it does not exist
		return nil, &QueueNotFoundError{Queue: name}
	}
	return resp.GetQueueInfo(), nil
}

// Nodes lists nodes in the given states, or in any state.
func (c *Client) Nodes(ctx context.Context, states ...yarnpb.NodeStateProto) ([]*yarnpb.NodeReportProto, error) {
	resp := &yarnpb.GetClusterNodesResponseProto{}
	if err := c.call(ctx, "getClusterNodes", &yarnpb.GetClusterNodesRequestProto{NodeStates: states}, resp); err != nil {
		return nil, err
	}
	return resp.GetNodeReports(), nil
}

// Metrics counts the cluster's nodes by state.
func (c *Client) Metrics(ctx context.Context) (*yarnpb.YarnClusterMetricsProto, error) {
	resp := &yarnpb.GetClusterMetricsResponseProto{}
	if err := c.call(ctx, "getClusterMetrics", &yarnpb.GetClusterMetricsRequestProto{}, resp); err != nil {
		return nil, err
	}
	return resp.GetClusterMetrics(), nil
}

// Attempts lists the attempts of an application.
func (c *Client) Attempts(ctx context.Context, id yarn.ApplicationID) ([]*yarnpb.ApplicationAttemptReportProto, error) {
	resp := &yarnpb.GetApplicationAttemptsResponseProto{}
	if err := c.call(ctx, "getApplicationAttempts", &yarnpb.GetApplicationAttemptsRequestProto{ApplicationId: id.Proto()}, resp); err != nil {
		return nil, err
	}
	return resp.GetApplicationAttempts(), nil
}

// Containers lists the containers of an attempt that the ResourceManager still knows.
func (c *Client) Containers(ctx context.Context, id yarn.AttemptID) ([]*yarnpb.ContainerReportProto, error) {
	resp := &yarnpb.GetContainersResponseProto{}
	if err := c.call(ctx, "getContainers", &yarnpb.GetContainersRequestProto{ApplicationAttemptId: id.Proto()}, resp); err != nil {
		return nil, err
	}
	return resp.GetContainers(), nil
}

// DelegationToken asks for an RM delegation token that renewer may renew; the ResourceManager gives one to those only who logged in by
// Kerberos. The result is the zero Token when it has none to give.
func (c *Client) DelegationToken(ctx context.Context, renewer string) (token.Token, error) {
	resp := &commonpb.GetDelegationTokenResponseProto{}
	err := c.call(ctx, "getDelegationToken", &commonpb.GetDelegationTokenRequestProto{Renewer: proto.String(renewer)}, resp)
	if err != nil {
		return token.Token{}, err
	}
	t := token.FromProto(resp.GetToken())
	if len(t.Identifier) == 0 {
		return token.Token{}, nil
	}
	if t.Service == "" || len(c.addrs) > 1 {
		t.Service = tokenService(ctx, c.addrs)
	}
	return t, nil
}

// tokenService is what a token for ResourceManagers carries: ip:port of each, with commas between. A name that does not resolve stays.
//
// Source: hadoop-yarn-common ClientRMProxy.getTokenService.
func tokenService(ctx context.Context, addrs []string) string {
	out := make([]string, len(addrs))
	for i, a := range addrs {
		out[i] = a
		host, port, err := net.SplitHostPort(a)
		if err != nil {
			continue
		}
		if ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip4", host); err == nil && len(ips) > 0 {
			out[i] = net.JoinHostPort(ips[0].Unmap().String(), port)
		}
	}
	return strings.Join(out, ",")
}

// RenewDelegationToken makes a token last longer and returns when it ends then.
func (c *Client) RenewDelegationToken(ctx context.Context, t token.Token) (time.Time, error) {
	resp := &commonpb.RenewDelegationTokenResponseProto{}
	if err := c.call(ctx, "renewDelegationToken", &commonpb.RenewDelegationTokenRequestProto{Token: t.Proto()}, resp); err != nil {
		return time.Time{}, err
	}
	return time.UnixMilli(int64(resp.GetNewExpiryTime())), nil //nolint:gosec // milliseconds
}

// CancelDelegationToken makes a token invalid.
func (c *Client) CancelDelegationToken(ctx context.Context, t token.Token) error {
	return c.call(ctx, "cancelDelegationToken", &commonpb.CancelDelegationTokenRequestProto{Token: t.Proto()},
		&commonpb.CancelDelegationTokenResponseProto{})
}
