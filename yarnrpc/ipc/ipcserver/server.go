// Package ipcserver is the server half of Hadoop's IPC, as much of it as fakes of Hadoop services need: SIMPLE and TOKEN
// logins, others by Mechanism, protection of messages, concurrent calls, exceptions. It belongs to yarnrpc/ipc (layer L1) and imports yarnrpc/{ipc,proto}.
//
// Main flow: New, Serve on a listener, a Handler per call, Close. A connection has one reading goroutine, and each call
// runs in its own; answers are written under the connection's lock, whole frames at a time.
//
// Invariants: Close returns when no goroutine of the server is left; a handler's panic is not caught (it is a test's bug).
package ipcserver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/thalweg/thalweg/yarnrpc/ipc"
	commonpb "github.com/thalweg/thalweg/yarnrpc/proto/common"
)

// ErrDrop, returned by a handler, closes the connection without an answer: to the client the answer is lost.
var ErrDrop = errors.New("ipcserver: answer dropped")

// Call is one request.
type Call struct {
	Protocol string // Java name of the protocol that the caller declared
	Method   string
	User     string // who calls: of the connection context, else of the login
	Login    string // who logged in by a Mechanism, else empty
	// Identifier is the token's identifier for a TOKEN login, else nil.
	Identifier []byte
	ID, Retry  int32
	body       []byte
}

// Decode reads the request.
//
// Errors: ipc.ErrMalformed.
func (c *Call) Decode(m proto.Message) error {
	_, err := ipc.ConsumeMessage(c.body, m)
	return err
}

// Handler answers a call. An *ipc.RemoteError becomes that exception, ErrDrop no answer at all, any other error a
// java.io.IOException. ctx ends with the connection.
type Handler func(ctx context.Context, call *Call) (proto.Message, error)

// Config says what a server accepts.
type Config struct {
	Handler Handler
	// Simple accepts clients that do not authenticate.
	Simple bool
	// Password returns the password of a token; nil refuses tokens. An error that is an *ipc.RemoteError is sent as it is.
	Password func(identifier []byte) ([]byte, error)
	// Protections of connections that log in with a token, one of which the client has to take; authentication alone by default.
	Protections []ipc.Protection
	// Mechanisms are other ways to log in.
	Mechanisms []Mechanism
}

// Server serves one protocol or several on one port.
type Server struct {
	cfg    Config
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu        sync.Mutex
	closed    bool
	listeners []net.Listener
	conns     map[net.Conn]bool
}

// New makes a server.
func New(cfg Config) *Server {
	s := &Server{cfg: cfg, conns: make(map[net.Conn]bool)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Serve accepts connections in the background until Close. The server owns l.
func (s *Server) Serve(l net.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = l.Close()
		return
	}
	s.listeners = append(s.listeners, l)
	s.wg.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			if s.closed {
				s.mu.Unlock()
				_ = nc.Close()
				return
			}
			s.conns[nc] = true
			s.wg.Go(func() { s.serveConn(nc) })
			s.mu.Unlock()
		}
	})
}

// Close ends all connections and waits for the handlers.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	for _, l := range s.listeners {
		_ = l.Close()
	}
	for nc := range s.conns {
		_ = nc.Close()
	}
	s.mu.Unlock()
	s.cancel()
	s.wg.Wait()
}

type session struct {
	s    *Server
	nc   net.Conn
	sasl []offered // what was offered to this connection
	step Session   // what the client chose
	w    ipc.Wrapper
	rest []byte // of the unwrapped stream, no whole frame yet

	authenticated bool
	context       bool // the connection context has come
	user          string
	login         string
	protocol      string
	identifier    []byte

	wmu sync.Mutex
}

func (s *Server) serveConn(nc net.Conn) {
	ctx, cancel := context.WithCancel(s.ctx)
	c := &session{s: s, nc: nc}
	defer func() {
		cancel()
		_ = nc.Close()
		s.mu.Lock()
		delete(s.conns, nc)
		s.mu.Unlock()
	}()
	_ = nc.SetReadDeadline(time.Now().Add(time.Minute))
	var head [7]byte
	if _, err := io.ReadFull(nc, head[:]); err != nil {
		return
	}
	auth, err := ipc.ParseConnectionHeader(head[:])
	if err != nil {
		c.fatal(ipc.CallIDSASL, &ipc.RemoteError{Class: string(ipc.ErrVersionMismatch), Message: err.Error(),
			Code: commonpb.RpcResponseHeaderProto_FATAL_VERSION_MISMATCH})
		return
	}
	_ = nc.SetReadDeadline(time.Time{})
	r := bufio.NewReader(nc)
	if auth == ipc.AuthNone {
		if !s.cfg.Simple {
			_, _ = ipc.ReadFrame(r, 1<<20) // the connection context; a client learns of the refusal by its first call
			c.fatal(-1, &ipc.RemoteError{Class: string(ipc.ErrAccessControl), Message: "SIMPLE authentication is not enabled.  Available:[TOKEN]",
				Code: commonpb.RpcResponseHeaderProto_FATAL_UNAUTHORIZED})
			return
		}
		c.authenticated = true
	}
	for {
		frame, err := ipc.ReadFrame(r, 64<<20)
		if err != nil {
			return
		}
		if err := c.frame(ctx, frame, false); err != nil {
			var remote *ipc.RemoteError
			if errors.As(err, &remote) {
				c.fatal(-1, remote)
			}
			return
		}
	}
}

// frame handles one frame; inside says that it was in a protected message.
func (c *session) frame(ctx context.Context, frame []byte, inside bool) error {
	head := &commonpb.RpcRequestHeaderProto{}
	rest, err := ipc.ConsumeMessage(frame, head)
	if err != nil {
		return &ipc.RemoteError{Class: string(ipc.ErrJavaIO), Message: err.Error(), Code: commonpb.RpcResponseHeaderProto_FATAL_INVALID_RPC_HEADER}
	}
	switch id := head.GetCallId(); {
	case id == ipc.CallIDSASL && c.w != nil && !inside:
		return c.unwrap(ctx, rest)
	case c.w != nil && !inside:
		return &ipc.RemoteError{Class: string(ipc.ErrAccessControl), Message: "unprotected request", Code: commonpb.RpcResponseHeaderProto_FATAL_UNAUTHORIZED}
	case id == ipc.CallIDSASL:
		return c.negotiate(rest)
	case !c.authenticated:
		return &ipc.RemoteError{Class: string(ipc.ErrAccessControl), Message: "call before authentication", Code: commonpb.RpcResponseHeaderProto_FATAL_UNAUTHORIZED}
	case id == ipc.CallIDContext:
		m := &commonpb.IpcConnectionContextProto{}
		if _, err := ipc.ConsumeMessage(rest, m); err != nil {
			return err
		}
		c.context, c.protocol = true, m.GetProtocol()
		if c.user = m.GetUserInfo().GetEffectiveUser(); c.user == "" {
			c.user = c.login
		}
		return nil
	case id == ipc.CallIDPing:
		return nil
	case id < 0 || !c.context:
		return &ipc.RemoteError{Class: string(ipc.ErrJavaIO), Message: fmt.Sprintf("unexpected call id %d", id), Code: commonpb.RpcResponseHeaderProto_FATAL_INVALID_RPC_HEADER}
	default:
		req := &commonpb.RequestHeaderProto{}
		if rest, err = ipc.ConsumeMessage(rest, req); err != nil {
			return err
		}
		call := &Call{Protocol: req.GetDeclaringClassProtocolName(), Method: req.GetMethodName(), User: c.user, Login: c.login, Identifier: c.identifier,
			ID: id, Retry: head.GetRetryCount(), body: rest}
		c.s.wg.Go(func() { c.run(ctx, call, head.GetClientId()) })
		return nil
	}
}

func (c *session) run(ctx context.Context, call *Call, clientID []byte) {
	resp, err := c.s.cfg.Handler(ctx, call)
	head := &commonpb.RpcResponseHeaderProto{
		CallId: proto.Uint32(uint32(call.ID)), Status: commonpb.RpcResponseHeaderProto_SUCCESS.Enum(), //nolint:gosec // as Hadoop sends it
		ServerIpcVersionNum: proto.Uint32(ipc.Version), ClientId: clientID, RetryCount: proto.Int32(call.Retry),
	}
	if errors.Is(err, ErrDrop) {
		_ = c.nc.Close()
		return
	}
	if err != nil {
		head.Status = commonpb.RpcResponseHeaderProto_ERROR.Enum()
		describe(head, err)
		c.write(head)
		return
	}
	c.write(head, resp)
}

func describe(head *commonpb.RpcResponseHeaderProto, err error) {
	var remote *ipc.RemoteError
	if !errors.As(err, &remote) {
		remote = &ipc.RemoteError{Class: string(ipc.ErrJavaIO), Message: err.Error()}
	}
	code := remote.Code
	if code == 0 {
		code = commonpb.RpcResponseHeaderProto_ERROR_APPLICATION
	}
	text := remote.Message
	if remote.Stack != "" {
		text = remote.Class + ": " + text + "\n" + remote.Stack
	}
	head.ExceptionClassName, head.ErrorMsg, head.ErrorDetail = proto.String(remote.Class), proto.String(text), code.Enum()
}

func (c *session) fatal(id int32, err error) {
	head := &commonpb.RpcResponseHeaderProto{
		CallId: proto.Uint32(uint32(id)), Status: commonpb.RpcResponseHeaderProto_FATAL.Enum(), //nolint:gosec // as Hadoop sends it
		ServerIpcVersionNum: proto.Uint32(ipc.Version), ClientId: []byte{},
	}
	describe(head, err)
	c.write(head)
}

func (c *session) write(msgs ...proto.Message) {
	frame, err := ipc.EncodeFrame(msgs...)
	if err != nil {
		_ = c.nc.Close()
		return
	}
	c.wmu.Lock()
	defer c.wmu.Unlock()
	if c.w != nil {
		if frame, err = c.wrap(frame); err != nil {
			_ = c.nc.Close()
			return
		}
	}
	_ = c.nc.SetWriteDeadline(time.Now().Add(time.Minute))
	if _, err := c.nc.Write(frame); err != nil {
		_ = c.nc.Close()
	}
}
