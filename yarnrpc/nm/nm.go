// Package nm speaks ContainerManagementProtocol with NodeManagers: start, stop and look at containers. Layer L1; imports
// yarnrpc/{ipc,token,yarn,proto}.
//
// Each NodeManager asks for its own NMToken, which the ResourceManager hands out in the answers to register and
// allocate: give those answers' tokens to PutTokens before the first call for the node. Connections are kept per node,
// close themselves when idle, and are opened anew when the node's token changes.
//
// Invariants:
//  1. Calls of different nodes never wait for each other.
//  2. A start whose answer was lost is repeated, and "already running" then counts as started.
//
// Source: hadoop-yarn-api ContainerManagementProtocol, hadoop-yarn-client NMClientImpl, Hadoop 3.4.
package nm

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/yarnrpc/ipc"
	commonpb "github.com/thalweg/thalweg/yarnrpc/proto/common"
	yarnpb "github.com/thalweg/thalweg/yarnrpc/proto/yarn"
	"github.com/thalweg/thalweg/yarnrpc/token"
	"github.com/thalweg/thalweg/yarnrpc/yarn"
)

var (
	// ErrNoToken says that no NMToken is known for the node.
	ErrNoToken = errors.New("no NMToken for the node: the ResourceManager's answers must be given to PutTokens first")
	// ErrClosed is returned by calls after Close.
	ErrClosed = errors.New("nm: client is closed")
)

// ContainerError says that a NodeManager refused something for one container.
type ContainerError struct {
	Container yarn.ContainerID
	Node      yarn.NodeID
	Op        string // "start", "stop", "status"
	Err       *ipc.RemoteError
}

// Error names operation, container and node.
func (e *ContainerError) Error() string {
	return fmt.Sprintf("nm: %s %s on %s: %v", e.Op, e.Container, e.Node, e.Err)
}

// Unwrap returns the exception.
func (e *ContainerError) Unwrap() error { return e.Err }

type options struct {
	ipc     []ipc.Option
	protect []ipc.Protection
	retry   ipc.Retry
	logger  zerolog.Logger
}

// Option changes a Client.
type Option func(*options)

// WithIPC passes options to the connections.
func WithIPC(o ...ipc.Option) Option {
	return func(c *options) { c.ipc = append(c.ipc, o...) }
}

// WithProtections sets the protections of messages that will do (hadoop.rpc.protection), in order of preference, authentication alone by default.
func WithProtections(p ...ipc.Protection) Option { return func(c *options) { c.protect = p } }

// WithRetry sets the pauses between attempts while a NodeManager cannot be reached.
func WithRetry(r ipc.Retry) Option { return func(c *options) { c.retry = r } }

// WithLogger sets the logger, none by default.
func WithLogger(l zerolog.Logger) Option { return func(c *options) { c.logger = l } }

// Client is the client of all NodeManagers of one application. Safe for concurrent use.
type Client struct {
	o options

	mu     sync.Mutex
	nodes  map[yarn.NodeID]*node
	closed bool
}

type node struct {
	mu  sync.Mutex
	tok token.Token
	rpc *ipc.Client // nil before the first call
	end bool        // closed with the client
}

// New makes a client. Close it.
func New(opts ...Option) *Client {
	o := options{logger: zerolog.Nop()}
	for _, f := range opts {
		f(&o)
	}
	return &Client{o: o, nodes: make(map[yarn.NodeID]*node)}
}

// PutTokens stores the tokens of an answer to register or allocate. A token that replaces another one is used from the
// next call on.
func (c *Client) PutTokens(tokens []*yarnpb.NMTokenProto) {
	for _, t := range tokens {
		c.PutToken(yarn.NodeIDOf(t.GetNodeId()), token.FromProto(t.GetToken()))
	}
}

// PutToken stores the token of one node.
func (c *Client) PutToken(id yarn.NodeID, t token.Token) {
	n := c.node(id)
	n.mu.Lock()
	changed := !n.tok.IsZero() && !n.tok.Equal(t)
	n.tok = t
	rpc := n.rpc
	n.mu.Unlock()
	if changed && rpc != nil {
		rpc.Reset()
	}
}

// HasToken reports whether the node's token is known.
func (c *Client) HasToken(id yarn.NodeID) bool {
	n := c.node(id)
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.tok.IsZero()
}

func (c *Client) node(id yarn.NodeID) *node {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.nodes[id]
	if n == nil {
		n = &node{}
		c.nodes[id] = n
	}
	return n
}

// Close ends all calls and connections.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	nodes := c.nodes
	c.nodes = make(map[yarn.NodeID]*node)
	c.mu.Unlock()
	var errs []error
	for _, n := range nodes {
		n.mu.Lock()
		n.end = true
		rpc := n.rpc
		n.mu.Unlock()
		if rpc != nil {
			errs = append(errs, rpc.Close())
		}
	}
	return errors.Join(errs...)
}

// connect returns the node's connection, which is not dialed before its first call.
func (c *Client) connect(id yarn.NodeID) (*ipc.Client, error) {
	n := c.node(id)
	c.mu.Lock()
	closed := c.closed
	c.mu.Unlock()
	if closed {
		return nil, ErrClosed
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.end {
		return nil, ErrClosed
	}
	if n.tok.IsZero() {
		return nil, fmt.Errorf("nm: %s: %w", id, ErrNoToken)
	}
	if n.rpc == nil {
		auth := ipc.TokenAuth{Protections: c.o.protect, Credential: func() ([]byte, []byte, error) {
			n.mu.Lock()
			defer n.mu.Unlock()
			return n.tok.Identifier, n.tok.Password, nil
		}}
		rpc, err := ipc.NewClient([]string{id.String()}, yarn.ManagementProtocol,
			append([]ipc.Option{ipc.WithLogger(c.o.logger), ipc.WithMechanisms(auth)}, c.o.ipc...)...)
		if err != nil {
			return nil, fmt.Errorf("nm: %w", err)
		}
		n.rpc = rpc
	}
	return n.rpc, nil
}

// retry waits for a NodeManager that has started but has not found its ResourceManager yet, too.
func (c *Client) retry() ipc.Retry {
	r := c.o.retry
	if r.Classify == nil {
		r.Classify = func(err error) ipc.Kind {
			if errors.Is(err, yarn.ErrNMNotYetReady) {
				return ipc.Retriable
			}
			return ipc.Classify(err)
		}
	}
	return r
}

// Launch is a container to start.
type Launch struct {
	Container *yarnpb.ContainerProto // as granted by the ResourceManager, with its container token
	Context   *yarnpb.ContainerLaunchContextProto
}

// Start starts one granted container on its node, repeating until ctx ends while the node cannot be reached.
//
// Errors: *ContainerError (refused), ErrNoToken, the context's.
func (c *Client) Start(ctx context.Context, l Launch) error {
	id, node := yarn.ContainerIDOf(l.Container.GetId()), yarn.NodeIDOf(l.Container.GetNodeId())
	failed, err := c.StartAll(ctx, node, []Launch{l})
	if err != nil {
		return err
	}
	if e, ok := failed[id]; ok {
		return e
	}
	return nil
}

// StartAll starts several containers of one node in one call. failed holds those that the node refused; err is set when
// the call as a whole failed.
func (c *Client) StartAll(ctx context.Context, id yarn.NodeID, launches []Launch) (failed map[yarn.ContainerID]*ContainerError, err error) {
	rpc, err := c.connect(id)
	if err != nil {
		return nil, err
	}
	req := &yarnpb.StartContainersRequestProto{}
	for _, l := range launches {
		req.StartContainerRequest = append(req.StartContainerRequest, &yarnpb.StartContainerRequestProto{
			ContainerLaunchContext: l.Context, ContainerToken: l.Container.GetContainerToken(),
		})
	}
	resp := &yarnpb.StartContainersResponseProto{}
	lost := false // an earlier attempt may have reached the node
	err = c.retry().Do(ctx, func(ctx context.Context, _ int) error {
		resp.Reset()
		err := rpc.Call(ctx, "startContainers", req, resp)
		var conn *ipc.ConnError
		if errors.Is(err, ipc.ErrTimeout) || (errors.As(err, &conn) && conn.Sent) {
			lost = true
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("nm: start on %s: %w", id, err)
	}
	failed = failures("start", id, resp.GetFailedRequests())
	if lost {
		for cid, e := range failed {
			if strings.Contains(e.Err.Message, "already is running on this node") { // by the attempt whose answer was lost
				delete(failed, cid)
			}
		}
	}
	return failed, nil
}

// Stop stops containers of one node. Those that it does not know any more are not failures.
//
// Errors: ErrNoToken, the context's; failed holds containers that the node refused to stop.
func (c *Client) Stop(ctx context.Context, id yarn.NodeID, containers ...yarn.ContainerID) (failed map[yarn.ContainerID]*ContainerError, err error) {
	rpc, err := c.connect(id)
	if err != nil {
		return nil, err
	}
	req := &yarnpb.StopContainersRequestProto{}
	for _, cid := range containers {
		req.ContainerId = append(req.ContainerId, cid.Proto())
	}
	resp := &yarnpb.StopContainersResponseProto{}
	if err := rpc.CallRetry(ctx, c.retry(), "stopContainers", req, resp); err != nil {
		return nil, fmt.Errorf("nm: stop on %s: %w", id, err)
	}
	return failures("stop", id, resp.GetFailedRequests()), nil
}

// Statuses asks one node for containers' states. What it does not know is in failed.
func (c *Client) Statuses(ctx context.Context, id yarn.NodeID, containers ...yarn.ContainerID) (statuses []*yarnpb.ContainerStatusProto, failed map[yarn.ContainerID]*ContainerError, err error) {
	rpc, err := c.connect(id)
	if err != nil {
		return nil, nil, err
	}
	req := &yarnpb.GetContainerStatusesRequestProto{}
	for _, cid := range containers {
		req.ContainerId = append(req.ContainerId, cid.Proto())
	}
	resp := &yarnpb.GetContainerStatusesResponseProto{}
	if err := rpc.CallRetry(ctx, c.retry(), "getContainerStatuses", req, resp); err != nil {
		return nil, nil, fmt.Errorf("nm: status on %s: %w", id, err)
	}
	return resp.GetStatus(), failures("status", id, resp.GetFailedRequests()), nil
}

func failures(op string, node yarn.NodeID, list []*yarnpb.ContainerExceptionMapProto) map[yarn.ContainerID]*ContainerError {
	out := make(map[yarn.ContainerID]*ContainerError, len(list))
	for _, f := range list {
		cid := yarn.ContainerIDOf(f.GetContainerId())
		x := f.GetException()
		out[cid] = &ContainerError{Container: cid, Node: node, Op: op, Err: &ipc.RemoteError{
			Class: x.GetClassName(), Message: x.GetMessage(), Stack: x.GetTrace(), Method: op,
			Code: commonpb.RpcResponseHeaderProto_ERROR_APPLICATION,
		}}
	}
	return out
}
