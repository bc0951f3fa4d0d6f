// Package am speaks ApplicationMasterProtocol with the ResourceManager's scheduler port: register, allocate (which is
// also the heartbeat), unregister. Layer L1; imports yarnrpc/{ipc,token,identity,conf,yarn,proto}.
//
// It is a protocol client and keeps no ledger: what to ask for is the caller's business. Asks are absolute counts per
// (priority, resource name, allocation request id): the caller sends the number that is still wanted, not the change.
//
// Main flow: New or FromCredentials, Register, Allocate again and again, Finish.
//
// Invariants:
//  1. One request is under way at a time; response ids rise by one per answered Allocate.
//  2. A request whose answer was lost is repeated with the same response id and the same bytes, so that the
//     ResourceManager either runs it or gives the answer it gave before. A different request with the same response id
//     would be swallowed, so Allocate never sends one (Answer.Deferred).
//  3. A token that the ResourceManager rolls is used from the next connection on, which is opened at once.
//
// Source: hadoop-yarn-api ApplicationMasterProtocol, hadoop-yarn-server-resourcemanager ApplicationMasterService, Hadoop 3.4.
package am

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/rs/zerolog"
	"google.golang.org/protobuf/proto"

	"github.com/thalweg/thalweg/yarnrpc/conf"
	"github.com/thalweg/thalweg/yarnrpc/identity"
	"github.com/thalweg/thalweg/yarnrpc/ipc"
	yarnpb "github.com/thalweg/thalweg/yarnrpc/proto/yarn"
	"github.com/thalweg/thalweg/yarnrpc/token"
	"github.com/thalweg/thalweg/yarnrpc/yarn"
)

var (
	// ErrResync says that the ResourceManager does not know this registration, because it was restarted: Register again,
	// then send all open asks and pending releases again. Containers keep running meanwhile.
	ErrResync = errors.New("the ResourceManager asks to register again")
	// ErrShutdown says that the ResourceManager does not know this attempt any more: it was killed, or it took too long
	// between two heartbeats and another attempt has its place. The process must end without unregistering.
	ErrShutdown = errors.New("the ResourceManager does not know this attempt any more")
	// ErrNoToken says that the credentials hold no AMRM token: the process was not started by YARN as an ApplicationMaster.
	ErrNoToken = errors.New("no YARN_AM_RM_TOKEN among the credentials: run as the ApplicationMaster of a YARN application (" + token.EnvFile + ")")
)

type options struct {
	ipc     []ipc.Option
	protect []ipc.Protection
	retry   ipc.Retry
	logger  zerolog.Logger
}

// Option changes a Client.
type Option func(*options)

// WithIPC passes options to the connection.
func WithIPC(o ...ipc.Option) Option {
	return func(c *options) { c.ipc = append(c.ipc, o...) }
}

// WithProtections sets the protections of messages that will do, in order of preference; FromCredentials takes hadoop.rpc.protection.
func WithProtections(p ...ipc.Protection) Option { return func(c *options) { c.protect = p } }

// WithRetry sets the pauses between attempts while the ResourceManager cannot be reached.
func WithRetry(r ipc.Retry) Option { return func(c *options) { c.retry = r } }

// WithLogger sets the logger, none by default.
func WithLogger(l zerolog.Logger) Option { return func(c *options) { c.logger = l } }

// Client is the scheduler's client of one application attempt. Safe for concurrent use; calls run one after another.
type Client struct {
	o       options
	rpc     *ipc.Client
	attempt yarn.AttemptID
	service string
	turn    chan struct{} // holds one element while no request is under way

	mu  sync.Mutex
	tok token.Token

	// Owned by who holds the turn.
	responseID int32
	lost       *yarnpb.AllocateRequestProto // sent, answer unknown
}

// New makes a client for the scheduler at one of addrs, with the attempt's AMRM token. Nothing is dialed yet. Close it.
//
// Errors: ErrNoToken for an empty token, yarn.ErrMalformed for one that is not of this kind.
func New(addrs []string, tok token.Token, opts ...Option) (*Client, error) {
	o := options{logger: zerolog.Nop()}
	for _, f := range opts {
		f(&o)
	}
	if tok.IsZero() {
		return nil, fmt.Errorf("am: %w", ErrNoToken)
	}
	id, err := yarn.DecodeAMRMIdentifier(tok.Identifier)
	if err != nil {
		return nil, fmt.Errorf("am: %w", err)
	}
	c := &Client{o: o, attempt: yarn.AttemptIDOf(id.GetAppAttemptId()), turn: make(chan struct{}, 1), tok: tok}
	c.turn <- struct{}{}
	auth := ipc.TokenAuth{Protections: o.protect, Credential: func() ([]byte, []byte, error) {
		t := c.Token()
		return t.Identifier, t.Password, nil
	}}
	c.rpc, err = ipc.NewClient(addrs, yarn.MasterProtocol,
		append([]ipc.Option{ipc.WithLogger(o.logger), ipc.WithMechanisms(auth)}, o.ipc...)...)
	if err != nil {
		return nil, fmt.Errorf("am: %w", err)
	}
	if c.tok.Service == "" { // YARN leaves it to us
		c.tok.Service = addrs[0]
	}
	c.service = c.tok.Service
	return c, nil
}

// FromCredentials is New with the scheduler addresses of the configuration and the AMRM token among creds.
//
// Errors: as New, and *conf.KeyError.
func FromCredentials(cfg *conf.Configuration, creds *token.Credentials, opts ...Option) (*Client, error) {
	addrs, err := cfg.Schedulers()
	if err != nil {
		return nil, fmt.Errorf("am: %w", err)
	}
	protect, err := identity.Protections(cfg)
	if err != nil {
		return nil, fmt.Errorf("am: %w", err)
	}
	t, _ := creds.ByKind(token.KindAMRM)
	return New(addrs, t, append([]Option{WithProtections(protect...)}, opts...)...)
}

// Attempt is the application attempt that the token was made for.
func (c *Client) Attempt() yarn.AttemptID { return c.attempt }

// Token is the token in use, which changes when the ResourceManager rolls its key.
func (c *Client) Token() token.Token {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tok
}

// Close ends calls and connections. It does not unregister.
func (c *Client) Close() error { return c.rpc.Close() }

// take waits for the turn to send.
func (c *Client) take(ctx context.Context) error {
	select {
	case <-c.turn:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *Client) call(ctx context.Context, method string, req, resp proto.Message) error {
	err := c.rpc.CallRetry(ctx, c.o.retry, method, req, resp)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, yarn.ErrMasterNotRegistered):
		return fmt.Errorf("am: %s of %s: %w (%w)", method, c.attempt, ErrResync, err)
	case errors.Is(err, yarn.ErrAttemptNotFound), errors.Is(err, yarn.ErrApplicationNotFound), errors.Is(err, ipc.ErrInvalidToken):
		return fmt.Errorf("am: %s of %s: %w (%w)", method, c.attempt, ErrShutdown, err)
	}
	return fmt.Errorf("am: %s of %s: %w", method, c.attempt, err)
}

// Registration is what an attempt tells about itself.
type Registration struct {
	Host        string // where the ApplicationMaster runs
	RPCPort     int32  // its own service port; -1 for none
	TrackingURL string // web address behind the ResourceManager's proxy; may be empty
}

// Register makes the attempt known. It repeats itself until ctx ends while the ResourceManager cannot be reached. After
// ErrResync it is called again; response ids start anew.
//
// The answer names the largest container, the queue, and, for an attempt that follows another with kept containers,
// those containers and the tokens of their nodes.
//
// Errors: ErrShutdown, yarn.ErrInvalidMasterRequest (registered already), the context's.
func (c *Client) Register(ctx context.Context, r Registration) (*yarnpb.RegisterApplicationMasterResponseProto, error) {
	if err := c.take(ctx); err != nil {
		return nil, fmt.Errorf("am: register %s: %w", c.attempt, err)
	}
	defer func() { c.turn <- struct{}{} }()
	resp := &yarnpb.RegisterApplicationMasterResponseProto{}
	err := c.call(ctx, "registerApplicationMaster", &yarnpb.RegisterApplicationMasterRequestProto{
		Host: proto.String(r.Host), RpcPort: proto.Int32(r.RPCPort), TrackingUrl: proto.String(r.TrackingURL),
	}, resp)
	if err != nil {
		return nil, err
	}
	c.responseID, c.lost = 0, nil
	return resp, nil
}

// Answer is the answer to an Allocate.
type Answer struct {
	*yarnpb.AllocateResponseProto
	// Deferred is true when this answers the previous request, whose answer had been lost, and the request given now was
	// NOT sent: apply the answer, work out the asks again, and call Allocate again.
	Deferred bool
}

// Allocate sends one heartbeat with asks, releases and progress, and returns what the ResourceManager grants and reports.
// The response id is set here; req is not changed and may be reused after the return. It repeats itself until ctx ends
// while the ResourceManager cannot be reached, and a few times when it fails on the request by a mistake of its own.
//
// When ctx ends before the answer came, the ResourceManager may have run the request. The next Allocate then asks for
// that answer first and returns it as Deferred.
//
// A token that the answer rolls is taken over; answer.AmRmToken is informational.
//
// Errors: ErrResync, ErrShutdown, yarn.ErrInvalidResourceRequest and other *ipc.RemoteError, the context's.
func (c *Client) Allocate(ctx context.Context, req *yarnpb.AllocateRequestProto) (Answer, error) {
	if err := c.take(ctx); err != nil {
		return Answer{}, fmt.Errorf("am: allocate %s: %w", c.attempt, err)
	}
	defer func() { c.turn <- struct{}{} }()
	deferred := c.lost != nil
	if !deferred {
		c.lost = proto.CloneOf(req)
		c.lost.ResponseId = proto.Int32(c.responseID)
	}
	resp := &yarnpb.AllocateResponseProto{}
	err := c.call(ctx, "allocate", c.lost, resp)
	for n := 0; n < slips && slipped(err) && ipc.Sleep(ctx, slipPause) == nil; n++ {
		c.o.logger.Warn().Err(err).Stringer("attempt_id", c.attempt).Msg("the ResourceManager failed on a heartbeat, which is sent again")
		err = c.call(ctx, "allocate", c.lost, resp)
	}
	if err != nil {
		if decided(err) { // refused as a whole: nothing of it happened
			c.lost = nil
		}
		return Answer{}, err
	}
	c.lost = nil
	if resp.AMCommand != nil { // the getter gives AM_RESYNC, the first of the enumeration, for an unset field
		switch resp.GetAMCommand() {
		case yarnpb.AMCommandProto_AM_RESYNC:
			return Answer{}, fmt.Errorf("am: allocate %s: %w", c.attempt, ErrResync)
		case yarnpb.AMCommandProto_AM_SHUTDOWN:
			return Answer{}, fmt.Errorf("am: allocate %s: %w", c.attempt, ErrShutdown)
		}
	}
	c.responseID = resp.GetResponseId()
	if t := resp.GetAmRmToken(); t != nil {
		c.roll(token.FromProto(t))
	}
	return Answer{AllocateResponseProto: resp, Deferred: deferred}, nil
}

// slipped reports whether the server failed by a mistake of its own and not by a decision: a Java runtime exception, as the
// NullPointerException of a ResourceManager that is just taking the attempt away. Asks are absolute and the response id
// is still the old one, so that the same request may be sent again.
func slipped(err error) bool {
	var remote *ipc.RemoteError
	return errors.As(err, &remote) &&
		(strings.HasPrefix(remote.Class, "java.lang.") || strings.HasPrefix(remote.Class, "java.util."))
}

// decided reports whether the server answered, so that nothing is left to ask for.
func decided(err error) bool {
	var remote *ipc.RemoteError
	return errors.As(err, &remote) && ipc.Classify(err) == ipc.Final
}

// roll takes over a new token and opens a new connection with it while the old token is still good.
func (c *Client) roll(t token.Token) {
	c.mu.Lock()
	if t.Service == "" {
		t.Service = c.service
	}
	same := t.Equal(c.tok)
	c.tok = t
	c.mu.Unlock()
	if !same {
		c.o.logger.Info().Stringer("attempt_id", c.attempt).Msg("AMRM token rolled")
		c.rpc.Reset()
	}
}

// Finish unregisters the attempt with its final status; YARN then ends the application and its containers. It returns
// when the ResourceManager has stored that, so that no further attempt is started.
//
// The caller uses a context that survives the end of the application's own.
//
// Errors: ErrResync (register again first), ErrShutdown, the context's.
func (c *Client) Finish(ctx context.Context, status yarnpb.FinalApplicationStatusProto, diagnostics, trackingURL string) error {
	if err := c.take(ctx); err != nil {
		return fmt.Errorf("am: finish %s: %w", c.attempt, err)
	}
	defer func() { c.turn <- struct{}{} }()
	req := &yarnpb.FinishApplicationMasterRequestProto{
		Diagnostics: proto.String(diagnostics), TrackingUrl: proto.String(trackingURL), FinalApplicationStatus: status.Enum(),
	}
	for pause := firstFinishPoll; ; pause = min(2*pause, finishPoll) {
		resp := &yarnpb.FinishApplicationMasterResponseProto{}
		if err := c.call(ctx, "finishApplicationMaster", req, resp); err != nil {
			return err
		}
		if resp.GetIsUnregistered() {
			return nil
		}
		if err := ipc.Sleep(ctx, pause); err != nil { // not stored yet
			return fmt.Errorf("am: finish %s: %w", c.attempt, err)
		}
	}
}
