package ipc

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	commonpb "github.com/thalweg/thalweg/yarnrpc/proto/common"
)

// errIdle is the reason of a connection that closed itself because nobody used it.
var errIdle = errors.New("closed when idle")

// conn is one authenticated connection with any number of calls in flight.
//
// Two goroutines belong to it: the writer owns sending (requests, pings, closing when idle), the reader owns receiving.
// Both end when the socket is closed, and count in the client's WaitGroup. mu guards the table of calls and is never held over I/O.
type conn struct {
	o     *options
	addr  string
	nc    net.Conn
	login Login
	out   chan outgoing
	gone  chan struct{} // closed by fail

	mu       sync.Mutex
	calls    map[int32]*pending
	retiring bool  // takes no new calls and ends with the last one
	err      error // why gone is closed
	unwatch  func() bool
}

type outgoing struct {
	frame []byte
	call  *pending
}

type pending struct {
	method string
	sent   bool          // guarded by conn.mu: the request was handed to the system
	done   chan struct{} // closed when body or err is set
	body   []byte
	err    error
}

// dialConn connects, authenticates and sends the connection context. It returns when the connection can take calls.
// The connection ends with ctx; its goroutines count in wg.
func dialConn(ctx context.Context, wg *sync.WaitGroup, o *options, addr string) (*conn, error) {
	dctx, cancel := context.WithTimeoutCause(ctx, o.connectTimeout, ErrTimeout)
	defer cancel()
	nc, err := o.dial(dctx, "tcp", addr)
	if err != nil {
		return nil, &ConnError{Op: "dial", Addr: addr, Err: ctxCause(dctx, ctx, err, o.connectTimeout)}
	}
	stop := context.AfterFunc(dctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) })
	sec, login, err := Authenticate(dctx, nc, addr, o.mechanisms, o.allowSimple)
	if err == nil {
		err = writeContext(sec, o, login)
	}
	interrupted := !stop()
	if err == nil && interrupted {
		err = dctx.Err()
	}
	if err != nil {
		_ = nc.Close()
		return nil, &ConnError{Op: "authenticate", Addr: addr, Err: ctxCause(dctx, ctx, err, o.connectTimeout)}
	}
	c := &conn{
		o: o, addr: addr, nc: sec, login: login,
		out: make(chan outgoing), gone: make(chan struct{}), calls: make(map[int32]*pending),
	}
	wg.Go(c.readLoop)
	wg.Go(c.writeLoop)
	unwatch := context.AfterFunc(ctx, func() { c.fail(ErrClosed) })
	c.mu.Lock()
	c.unwatch = unwatch
	ended := c.err != nil
	c.mu.Unlock()
	if ended {
		unwatch()
	}
	return c, nil
}

// ctxCause replaces the error of an interrupted operation by its reason: the caller's context, or ErrTimeout.
func ctxCause(inner, caller context.Context, err error, after time.Duration) error {
	if caller.Err() != nil {
		return caller.Err()
	}
	if inner.Err() != nil || errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("%w (%s)", ErrTimeout, after)
	}
	return err
}

// writeContext tells the server who calls which protocol, as far as the login did not: with a token the user is in the
// token and must not be named, with Kerberos it is the principal, unless that one acts for another.
// Source: hadoop-common ProtoUtil.makeIpcConnectionContext.
func writeContext(nc net.Conn, o *options, login Login) error {
	m := &commonpb.IpcConnectionContextProto{Protocol: proto.String(o.protocol.Name)}
	switch login.Method {
	case MethodToken:
	case MethodKerberos:
		if o.user.Real != "" {
			m.UserInfo = &commonpb.UserInformationProto{EffectiveUser: proto.String(o.user.Effective)}
		}
	default:
		m.UserInfo = &commonpb.UserInformationProto{}
		if o.user.Effective != "" {
			m.UserInfo.EffectiveUser = proto.String(o.user.Effective)
		}
		if o.user.Real != "" {
			m.UserInfo.RealUser = proto.String(o.user.Real)
		}
	}
	frame, err := EncodeFrame(requestHeader(CallIDContext, o.clientID, -1), m)
	if err != nil {
		return err
	}
	_, err = nc.Write(frame)
	return err
}

// call sends one request and waits for its answer.
func (c *conn) call(ctx context.Context, id, retry int32, method string, req, resp proto.Message) error {
	frame, err := EncodeFrame(requestHeader(id, c.o.clientID, retry), &commonpb.RequestHeaderProto{
		MethodName: proto.String(method), DeclaringClassProtocolName: proto.String(c.o.protocol.Name),
		ClientProtocolVersion: proto.Uint64(c.o.protocol.Version),
	}, req)
	if err != nil {
		return err
	}
	p := &pending{method: method, done: make(chan struct{})}
	if err := c.add(id, p); err != nil {
		return err
	}
	defer c.remove(id)
	actx, cancel := context.WithTimeoutCause(ctx, c.o.callTimeout, ErrTimeout)
	defer cancel()
	select {
	case c.out <- outgoing{frame, p}:
	case <-c.gone:
	case <-actx.Done():
		return ctxCause(actx, ctx, actx.Err(), c.o.callTimeout)
	}
	select {
	case <-p.done:
	case <-actx.Done():
		return ctxCause(actx, ctx, actx.Err(), c.o.callTimeout)
	}
	if p.err != nil {
		return p.err
	}
	_, err = ConsumeMessage(p.body, resp)
	return err
}

func (c *conn) add(id int32, p *pending) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return &ConnError{Op: "call", Addr: c.addr, Err: c.err}
	}
	if c.retiring {
		return &ConnError{Op: "call", Addr: c.addr, Err: net.ErrClosed}
	}
	c.calls[id] = p
	return nil
}

func (c *conn) remove(id int32) {
	c.mu.Lock()
	delete(c.calls, id)
	last := c.retiring && len(c.calls) == 0
	c.mu.Unlock()
	if last {
		c.fail(net.ErrClosed)
	}
}

// usable reports whether new calls may be put on the connection.
func (c *conn) usable() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err == nil && !c.retiring
}

// fail ends the connection once: all calls in flight get err.
func (c *conn) fail(err error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.failLocked(err)
	c.mu.Unlock()
	_ = c.nc.Close()
}

func (c *conn) failLocked(err error) {
	c.err = err
	for id, p := range c.calls {
		var remote *RemoteError
		if errors.As(err, &remote) {
			e := *remote
			e.Method = p.method
			p.err = &e
		} else {
			p.err = &ConnError{Op: "call", Addr: c.addr, Sent: p.sent, Err: err}
		}
		close(p.done)
		delete(c.calls, id)
	}
	close(c.gone)
	if c.unwatch != nil {
		c.unwatch()
	}
}

// failIfIdle ends the connection unless calls are in flight.
func (c *conn) failIfIdle(err error) bool {
	c.mu.Lock()
	if c.err != nil || len(c.calls) > 0 {
		c.mu.Unlock()
		return false
	}
	c.failLocked(err)
	c.mu.Unlock()
	_ = c.nc.Close()
	return true
}

// retire lets the calls in flight finish and then ends the connection.
func (c *conn) retire() {
	c.mu.Lock()
	c.retiring = true
	c.mu.Unlock()
	c.failIfIdle(net.ErrClosed)
}

func (c *conn) writeLoop() {
	tick := min(c.o.pingInterval, c.o.idleTimeout)
	timer := time.NewTicker(max(tick/4, time.Millisecond))
	defer timer.Stop()
	lastWrite, lastUse := time.Now(), time.Now()
	ping, err := EncodeFrame(requestHeader(CallIDPing, c.o.clientID, -1))
	if err != nil {
		c.fail(err)
		return
	}
	for {
		var frame []byte
		select {
		case <-c.gone:
			return
		case m := <-c.out:
			frame = m.frame
			lastUse = time.Now()
			c.mu.Lock()
			m.call.sent = true
			c.mu.Unlock()
		case now := <-timer.C:
			c.mu.Lock()
			busy := len(c.calls) > 0
			c.mu.Unlock()
			if busy {
				lastUse = now
				if now.Sub(lastWrite) < c.o.pingInterval {
					continue
				}
				frame = ping // finds a peer that is gone without a word while we wait for its answer
			} else {
				if now.Sub(lastUse) >= c.o.idleTimeout && c.failIfIdle(errIdle) {
					return
				}
				continue
			}
		}
		lastWrite = time.Now()
		_ = c.nc.SetWriteDeadline(lastWrite.Add(c.o.callTimeout))
		if _, err := c.nc.Write(frame); err != nil {
			c.fail(err)
			return
		}
	}
}

func (c *conn) readLoop() {
	r := bufio.NewReaderSize(c.nc, 16<<10)
	for {
		frame, err := ReadFrame(r, c.o.maxMessage)
		if err != nil {
			c.fail(err)
			return
		}
		head, body, err := ParseResponse(frame)
		if err != nil {
			c.fail(err)
			return
		}
		if head.GetStatus() == commonpb.RpcResponseHeaderProto_FATAL {
			c.fail(remoteError(head, "")) // the server closes after it; it is about the connection, not one call
			return
		}
		c.deliver(int32(head.GetCallId()), head, body) //nolint:gosec // call ids are int32 sent as uint32
	}
}

func (c *conn) deliver(id int32, head *commonpb.RpcResponseHeaderProto, body []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, ok := c.calls[id]
	if !ok {
		return // the caller gave up
	}
	delete(c.calls, id)
	if head.GetStatus() == commonpb.RpcResponseHeaderProto_SUCCESS {
		p.body = body
	} else {
		p.err = remoteError(head, p.method)
	}
	close(p.done)
}
