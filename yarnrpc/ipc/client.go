package ipc

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/protobuf/proto"
)

// Protocol names a Java protocol interface and its version.
type Protocol struct {
	Name    string // "org.apache.hadoop.yarn.api.ApplicationClientProtocolPB"
	Version uint64
}

// User is who the server shall believe that calls come from, when the method of authentication does not say it (SIMPLE)
// or allows another (Kerberos with a proxy user).
type User struct {
	Effective string
	Real      string // set when Effective is impersonated by Real
}

// CurrentUser is HADOOP_USER_NAME, else the name of the operating system's user. Use it under SIMPLE authentication only.
func CurrentUser() (User, error) {
	if n := os.Getenv("HADOOP_USER_NAME"); n != "" {
		return User{Effective: n}, nil
	}
	u, err := user.Current()
	if err != nil || u.Username == "" {
		return User{}, fmt.Errorf("ipc: no user name, set HADOOP_USER_NAME: %w", err)
	}
	return User{Effective: u.Username}, nil
}

// DialFunc opens a connection; net.Dialer.DialContext by default.
type DialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

type options struct {
	protocol       Protocol
	user           User
	mechanisms     []Mechanism
	allowSimple    bool
	dial           DialFunc
	connectTimeout time.Duration
	callTimeout    time.Duration
	pingInterval   time.Duration
	idleTimeout    time.Duration
	maxMessage     int
	clientID       []byte
	logger         zerolog.Logger
}

// Option changes a client.
type Option func(*options)

// WithUser sets the user for SIMPLE authentication, CurrentUser by default.
func WithUser(u User) Option { return func(o *options) { o.user = u } }

// WithMechanisms makes the client authenticate by SASL with the first offer of the server that one of ms accepts.
func WithMechanisms(ms ...Mechanism) Option { return func(o *options) { o.mechanisms = ms } }

// WithSimpleFallback lets a client with mechanisms go on without authentication when the server is not secure. Off by
// default: an impostor could ask for it. As ipc.client.fallback-to-simple-auth-allowed.
func WithSimpleFallback() Option { return func(o *options) { o.allowSimple = true } }

// WithDial replaces how connections are opened.
func WithDial(d DialFunc) Option { return func(o *options) { o.dial = d } }

// WithConnectTimeout bounds opening and authenticating one connection, 20 s by default (ipc.client.connect.timeout).
func WithConnectTimeout(d time.Duration) Option { return func(o *options) { o.connectTimeout = d } }

// WithCallTimeout bounds one attempt of a call, 60 s by default; the caller's context may be shorter or longer.
func WithCallTimeout(d time.Duration) Option { return func(o *options) { o.callTimeout = d } }

// WithPingInterval sets how often a connection with calls in flight sends a keep-alive, 60 s by default (ipc.ping.interval).
func WithPingInterval(d time.Duration) Option { return func(o *options) { o.pingInterval = d } }

// WithIdleTimeout sets when an unused connection closes itself, 10 s by default (ipc.client.connection.maxidletime).
func WithIdleTimeout(d time.Duration) Option { return func(o *options) { o.idleTimeout = d } }

// WithMaxMessage bounds an answer, in bytes, DefaultMaxMessage by default.
func WithMaxMessage(n int) Option { return func(o *options) { o.maxMessage = n } }

// WithLogger sets the logger, none by default. Connections are logged at debug level.
func WithLogger(l zerolog.Logger) Option { return func(o *options) { o.logger = l } }

// Client calls one protocol on one service, which may have several addresses (a pair of ResourceManagers). Safe for
// concurrent use; concurrent calls share one connection.
type Client struct {
	o      options
	nextID atomic.Int32

	ctx    context.Context // ends at Close; dials outlive the call that started them
	cancel context.CancelFunc
	wg     sync.WaitGroup // dials

	mu      sync.Mutex
	addrs   []string
	cur     int // index of the address in use
	conn    *conn
	dialing *dialing
	closed  bool
}

type dialing struct {
	done chan struct{}
	conn *conn
	err  error
}

// NewClient makes a client for the service at one of addrs ("host:port", at least one, tried in order). Nothing is
// dialed before the first call. Close it.
func NewClient(addrs []string, protocol Protocol, opts ...Option) (*Client, error) {
	o := options{
		protocol: protocol, dial: (&net.Dialer{}).DialContext, connectTimeout: 20 * time.Second, callTimeout: 60 * time.Second,
		pingInterval: 60 * time.Second, idleTimeout: 10 * time.Second, maxMessage: DefaultMaxMessage, logger: zerolog.Nop(),
	}
	for _, f := range opts {
		f(&o)
	}
	var errs []error
	if len(addrs) == 0 {
		errs = append(errs, errors.New("no address"))
	}
	for _, a := range addrs {
		if _, port, err := net.SplitHostPort(a); err != nil || port == "" || port == "0" {
			errs = append(errs, fmt.Errorf("address %q is not host:port", a))
		}
	}
	if o.connectTimeout <= 0 || o.callTimeout <= 0 || o.pingInterval <= 0 || o.idleTimeout <= 0 || o.maxMessage <= 0 {
		errs = append(errs, errors.New("time-outs and sizes must be positive"))
	}
	if o.user == (User{}) && len(o.mechanisms) == 0 {
		u, err := CurrentUser()
		if err != nil {
			errs = append(errs, err)
		}
		o.user = u
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("ipc: client of %s: %w", protocol.Name, errors.Join(errs...))
	}
	o.clientID = make([]byte, 16)
	_, _ = rand.Read(o.clientID) // never fails, by its contract
	c := &Client{o: o, addrs: append([]string(nil), addrs...)}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c, nil
}

// Addr is the address that the next call goes to.
func (c *Client) Addr() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.addrs[c.cur]
}

// Call runs method once on the current address. When that address cannot be reached or is standby, the next call goes
// to the next one; the caller decides about repeating (CallRetry does).
//
// Errors: *RemoteError, *ConnError, ErrTimeout, ErrClosed, the context's; Classify tells them apart.
func (c *Client) Call(ctx context.Context, method string, req, resp proto.Message) error {
	return c.attempt(ctx, c.callID(), 0, method, req, resp)
}

// CallRetry runs method until it is answered, repeating as r says. All attempts carry the same call id with a rising
// retry count, so that a server with a retry cache (the NameNode) runs the call once.
func (c *Client) CallRetry(ctx context.Context, r Retry, method string, req, resp proto.Message) error {
	id := c.callID()
	return r.Do(ctx, func(ctx context.Context, attempt int) error {
		return c.attempt(ctx, id, int32(attempt), method, req, resp) //nolint:gosec // small
	})
}

// callID is unique within the client's id, and never negative.
func (c *Client) callID() int32 { return c.nextID.Add(1) & (1<<31 - 1) }

func (c *Client) attempt(ctx context.Context, id, retry int32, method string, req, resp proto.Message) error {
	for {
		cn, fresh, err := c.acquire(ctx)
		if err != nil {
			return wrapCall(method, c.Addr(), err)
		}
		err = cn.call(ctx, id, retry, method, req, resp)
		var ce *ConnError
		if errors.As(err, &ce) {
			c.drop(cn)
			if !ce.Sent && !fresh && ctx.Err() == nil {
				continue // a kept connection had ended meanwhile; nothing was sent, so this is not an attempt
			}
		}
		if err == nil {
			return nil
		}
		if errors.Is(err, ErrTimeout) || Classify(err) == Standby {
			c.drop(cn)
		}
		if elsewhere(err) {
			c.failover(cn.addr)
		}
		return wrapCall(method, cn.addr, err)
	}
}

// acquire returns a usable connection; fresh is true when this call waited for it to be opened.
func (c *Client) acquire(ctx context.Context) (cn *conn, fresh bool, err error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, false, ErrClosed
	}
	if c.conn != nil && c.conn.usable() {
		cn = c.conn
		c.mu.Unlock()
		return cn, false, nil
	}
	d := c.dialing
	if d == nil {
		d = &dialing{done: make(chan struct{})}
		c.dialing = d
		c.conn = nil
		addr := c.addrs[c.cur]
		c.wg.Go(func() { c.dial(d, addr) })
	}
	c.mu.Unlock()
	select {
	case <-d.done:
		return d.conn, true, d.err
	case <-ctx.Done():
		return nil, true, ctx.Err()
	}
}

func (c *Client) dial(d *dialing, addr string) {
	cn, err := dialConn(c.ctx, &c.wg, &c.o, addr)
	if err != nil && c.ctx.Err() != nil {
		err = ErrClosed
	}
	c.mu.Lock()
	c.dialing = nil
	closed := c.closed
	if err == nil && !closed {
		c.conn = cn
		d.conn = cn
	}
	c.mu.Unlock()
	switch {
	case err != nil:
		d.err = err
		c.o.logger.Debug().Str("addr", addr).Err(err).Msg("ipc connection failed")
		if elsewhere(err) {
			c.failover(addr)
		}
	case closed:
		cn.fail(ErrClosed)
		d.err = ErrClosed
	default:
		c.o.logger.Debug().Str("addr", addr).Str("method", string(cn.login.Method)).Msg("ipc connected")
	}
	close(d.done)
}

// drop forgets a connection that is no longer good for new calls; others in flight on it go on until it breaks.
func (c *Client) drop(cn *conn) {
	c.mu.Lock()
	if c.conn == cn {
		c.conn = nil
	}
	c.mu.Unlock()
	cn.retire()
}

// elsewhere says that another server may do better. One that answers and asks for another try is the one to try again.
//
// Source: hadoop-common RetryPolicies.FailoverOnNetworkExceptionRetry.shouldRetry.
func elsewhere(err error) bool {
	kind := Classify(err)
	var remote *RemoteError
	return kind == Standby || kind == Retriable && !errors.As(err, &remote)
}

// failover moves to the next address unless somebody else did already.
func (c *Client) failover(from string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.addrs) > 1 && c.addrs[c.cur] == from {
		c.cur = (c.cur + 1) % len(c.addrs)
		c.o.logger.Debug().Str("from", from).Str("to", c.addrs[c.cur]).Msg("ipc fails over")
	}
}

// Reset makes the next call open a new connection, with the credential that the mechanism returns then. Calls in
// flight stay on the old connection, which closes when they are done.
func (c *Client) Reset() {
	c.mu.Lock()
	cn := c.conn
	c.conn = nil
	c.mu.Unlock()
	if cn != nil {
		cn.retire()
	}
}

// Close ends all calls with ErrClosed or a *ConnError and waits for the client's goroutines.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	c.conn = nil
	c.mu.Unlock()
	c.cancel() // ends dials and connections
	c.wg.Wait()
	return nil
}
