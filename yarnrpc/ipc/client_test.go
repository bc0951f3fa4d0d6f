package ipc_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/thalweg/thalweg/yarnrpc/ipc"
	"github.com/thalweg/thalweg/yarnrpc/ipc/ipcserver"
	commonpb "github.com/thalweg/thalweg/yarnrpc/proto/common"
)

var testProtocol = ipc.Protocol{Name: "test.Protocol", Version: 1}

// The test service echoes UserInformationProto.
type echo = commonpb.UserInformationProto

func text(s string) *echo { return &echo{EffectiveUser: proto.String(s)} }

type service struct {
	srv  *ipcserver.Server
	addr string
}

func serve(t *testing.T, addr string, cfg ipcserver.Config) service {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	s := ipcserver.New(cfg)
	s.Serve(l)
	t.Cleanup(s.Close)
	return service{s, l.Addr().String()}
}

func simple(h ipcserver.Handler) ipcserver.Config { return ipcserver.Config{Simple: true, Handler: h} }

func echoHandler(_ context.Context, call *ipcserver.Call) (proto.Message, error) {
	m := &echo{}
	if err := call.Decode(m); err != nil {
		return nil, err
	}
	return m, nil
}

func newClient(t *testing.T, addrs []string, opts ...ipc.Option) *ipc.Client {
	t.Helper()
	c, err := ipc.NewClient(addrs, testProtocol, append([]ipc.Option{ipc.WithUser(ipc.User{Effective: "alice"})}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func call(t *testing.T, c *ipc.Client, s string) {
	t.Helper()
	out := &echo{}
	if err := c.Call(t.Context(), "echo", text(s), out); err != nil || out.GetEffectiveUser() != s {
		t.Fatalf("echo %q: %q, %v", s, out.GetEffectiveUser(), err)
	}
}

func within(t *testing.T, what string, f func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !f() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal(what + " did not happen")
		}
	}
}

// countingDial counts connections that are open and that were opened.
type countingDial struct{ opened, open atomic.Int32 }

type countedConn struct {
	net.Conn
	d    *countingDial
	once sync.Once
}

func (c *countedConn) Close() error {
	c.once.Do(func() { c.d.open.Add(-1) })
	return c.Conn.Close()
}

func (d *countingDial) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	nc, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	d.opened.Add(1)
	d.open.Add(1)
	return &countedConn{Conn: nc, d: d}, nil
}

// Calls that are answered in the reverse order, all on one connection.
func TestConcurrentCallsShareAConnection(t *testing.T) {
	const n = 50
	var mu sync.Mutex
	var waiting []chan struct{}
	s := serve(t, "127.0.0.1:0", simple(func(ctx context.Context, c *ipcserver.Call) (proto.Message, error) {
		ch := make(chan struct{})
		mu.Lock()
		waiting = append(waiting, ch)
		if len(waiting) == n {
			go func() {
				for i := len(waiting) - 1; i >= 0; i-- {
					close(waiting[i])
				}
			}()
		}
		mu.Unlock()
		<-ch
		return echoHandler(ctx, c)
	}))
	var d countingDial
	c := newClient(t, []string{s.addr}, ipc.WithDial(d.dial))
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			out, want := &echo{}, fmt.Sprint(i)
			if err := c.Call(t.Context(), "echo", text(want), out); err != nil || out.GetEffectiveUser() != want {
				t.Errorf("%s: %s %v", want, out.GetEffectiveUser(), err)
			}
		})
	}
	wg.Wait()
	if d.opened.Load() != 1 {
		t.Errorf("%d connections", d.opened.Load())
	}
}

func TestRemoteException(t *testing.T) {
	s := serve(t, "127.0.0.1:0", simple(func(context.Context, *ipcserver.Call) (proto.Message, error) {
		return nil, &ipc.RemoteError{Class: "org.example.BadException", Message: "no\nway", Stack: "\tat org.example.Main.main(Main.java:1)"}
	}))
	err := newClient(t, []string{s.addr}).Call(t.Context(), "m", text(""), &echo{})
	var r *ipc.RemoteError
	if !errors.As(err, &r) || r.Class != "org.example.BadException" || r.Message != "no\nway" || r.Method != "m" || r.Stack == "" ||
		r.Code != commonpb.RpcResponseHeaderProto_ERROR_APPLICATION || r.Fatal {
		t.Fatalf("%#v", err)
	}
	if !errors.Is(err, ipc.Class("org.example.BadException")) || errors.Is(err, ipc.ErrJavaIO) {
		t.Error("errors.Is by class")
	}
	if !strings.Contains(err.Error(), s.addr) || !strings.Contains(err.Error(), "BadException: no\nway") {
		t.Errorf("text: %v", err)
	}
}

func TestCancelledCallFreesTheConnection(t *testing.T) {
	block := make(chan struct{})
	s := serve(t, "127.0.0.1:0", simple(func(ctx context.Context, c *ipcserver.Call) (proto.Message, error) {
		if c.Method == "block" {
			<-block
		}
		return echoHandler(ctx, c)
	}))
	defer close(block)
	var d countingDial
	c := newClient(t, []string{s.addr}, ipc.WithDial(d.dial))
	call(t, c, "before") // the time-out is that of the call, not of the connection
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := c.Call(ctx, "block", text(""), &echo{}); !errors.Is(err, context.DeadlineExceeded) || ipc.Classify(err) != ipc.Final {
		t.Fatalf("%v is %v", err, ipc.Classify(err))
	}
	call(t, c, "after")
	if d.opened.Load() != 1 {
		t.Errorf("%d connections", d.opened.Load())
	}
}

func TestCallTimeoutIsRetriable(t *testing.T) {
	var calls atomic.Int32
	s := serve(t, "127.0.0.1:0", simple(func(ctx context.Context, c *ipcserver.Call) (proto.Message, error) {
		if calls.Add(1) == 1 {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return echoHandler(ctx, c)
	}))
	c := newClient(t, []string{s.addr}, ipc.WithCallTimeout(30*time.Millisecond))
	err := c.Call(t.Context(), "echo", text("x"), &echo{})
	if !errors.Is(err, ipc.ErrTimeout) || ipc.Classify(err) != ipc.Retriable {
		t.Fatalf("%v is %v", err, ipc.Classify(err))
	}
	if err := c.CallRetry(t.Context(), ipc.Retry{}, "echo", text("x"), &echo{}); err != nil {
		t.Fatal(err)
	}
}

func TestConnectTimeout(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts, says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // end of the test
	token := ipc.TokenAuth{Credential: func() ([]byte, []byte, error) { return []byte("i"), []byte("p"), nil }}
	c := newClient(t, []string{l.Addr().String()}, ipc.WithConnectTimeout(30*time.Millisecond), ipc.WithMechanisms(token))
	if err := c.Call(t.Context(), "echo", text(""), &echo{}); !errors.Is(err, ipc.ErrTimeout) || ipc.Classify(err) != ipc.Retriable {
		t.Errorf("%v", err)
	}
}

func TestIdleConnectionClosesAndIsReplaced(t *testing.T) {
	s := serve(t, "127.0.0.1:0", simple(echoHandler))
	var d countingDial
	c := newClient(t, []string{s.addr}, ipc.WithDial(d.dial), ipc.WithIdleTimeout(10*time.Millisecond))
	call(t, c, "a")
	within(t, "closing when idle", func() bool { return d.open.Load() == 0 })
	call(t, c, "b")
	if d.opened.Load() != 2 {
		t.Errorf("%d connections", d.opened.Load())
	}
}

// A server that closes kept connections between calls is not noticed by the caller.
func TestServerClosesIdleConnection(t *testing.T) {
	s := serve(t, "127.0.0.1:0", simple(echoHandler))
	c := newClient(t, []string{s.addr})
	call(t, c, "a")
	s.srv.Close()
	serve(t, s.addr, simple(echoHandler))
	if err := c.CallRetry(t.Context(), ipc.Retry{Initial: time.Millisecond}, "echo", text("b"), &echo{}); err != nil {
		t.Fatal(err)
	}
}

func TestPingKeepsSlowCallsAlive(t *testing.T) {
	release := make(chan struct{})
	s := serve(t, "127.0.0.1:0", simple(func(ctx context.Context, c *ipcserver.Call) (proto.Message, error) {
		<-release
		return echoHandler(ctx, c)
	}))
	var written atomic.Int32
	c := newClient(t, []string{s.addr}, ipc.WithPingInterval(2*time.Millisecond), ipc.WithIdleTimeout(4*time.Millisecond),
		ipc.WithDial(func(ctx context.Context, network, addr string) (net.Conn, error) {
			nc, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			return &writes{nc, &written}, err
		}))
	done := make(chan error, 1)
	go func() { done <- c.Call(t.Context(), "echo", text("slow"), &echo{}) }()
	within(t, "pings", func() bool { return written.Load() > 8 }) // header, context, call, and then pings
	close(release)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

type writes struct {
	net.Conn
	n *atomic.Int32
}

func (w *writes) Write(b []byte) (int, error) {
	w.n.Add(1)
	return w.Conn.Write(b)
}

func TestLostAnswerIsReported(t *testing.T) {
	var seen []int32
	var mu sync.Mutex
	s := serve(t, "127.0.0.1:0", simple(func(ctx context.Context, c *ipcserver.Call) (proto.Message, error) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, c.ID, c.Retry)
		if len(seen) <= 2 {
			return nil, ipcserver.ErrDrop
		}
		return echoHandler(ctx, c)
	}))
	c := newClient(t, []string{s.addr})
	err := c.Call(t.Context(), "echo", text(""), &echo{})
	var ce *ipc.ConnError
	if !errors.As(err, &ce) || !ce.Sent || ipc.Classify(err) != ipc.Retriable {
		t.Fatalf("%v", err)
	}
	mu.Lock()
	seen = nil
	mu.Unlock()
	if err := c.CallRetry(t.Context(), ipc.Retry{Initial: time.Millisecond}, "echo", text(""), &echo{}); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(seen) != 4 || seen[0] != seen[2] || seen[1] != 0 || seen[3] != 1 {
		t.Errorf("call ids and retry counts %v, want the same id with 0 and 1", seen)
	}
}

func TestStandbyFailsOver(t *testing.T) {
	standby := serve(t, "127.0.0.1:0", simple(func(context.Context, *ipcserver.Call) (proto.Message, error) {
		return nil, &ipc.RemoteError{Class: string(ipc.ErrStandby), Message: "Operation category READ is not supported in state standby"}
	}))
	active := serve(t, "127.0.0.1:0", simple(echoHandler))
	c := newClient(t, []string{standby.addr, active.addr})
	if err := c.Call(t.Context(), "echo", text(""), &echo{}); !errors.Is(err, ipc.ErrStandby) || ipc.Classify(err) != ipc.Standby {
		t.Fatal(err)
	}
	if c.Addr() != active.addr {
		t.Fatalf("next call goes to %s", c.Addr())
	}
	call(t, c, "x")
	active.srv.Close()
	serve(t, active.addr, simple(func(context.Context, *ipcserver.Call) (proto.Message, error) {
		return nil, &ipc.RemoteError{Class: string(ipc.ErrStandby)}
	}))
	standby.srv.Close()
	serve(t, standby.addr, simple(echoHandler))
	if err := c.CallRetry(t.Context(), ipc.Retry{Initial: time.Millisecond}, "echo", text(""), &echo{}); err != nil {
		t.Fatal(err)
	}
}

func TestDeadAddressFailsOver(t *testing.T) {
	const dead = "127.0.0.1:1" // nobody listens there; a port that was free a moment ago may be another test's now
	s := serve(t, "127.0.0.1:0", simple(echoHandler))
	c := newClient(t, []string{dead, s.addr})
	if err := c.CallRetry(t.Context(), ipc.Retry{Initial: time.Millisecond, Attempts: 2}, "echo", text(""), &echo{}); err != nil {
		t.Fatal(err)
	}
	one := newClient(t, []string{dead})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err := one.CallRetry(ctx, ipc.Retry{Initial: time.Millisecond}, "echo", text(""), &echo{})
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "connection refused") || !strings.Contains(err.Error(), dead) {
		t.Errorf("bounded wait: %v", err)
	}
}

func tokenServer(t *testing.T, passwords map[string]string) service {
	return serve(t, "127.0.0.1:0", ipcserver.Config{
		Handler: func(_ context.Context, c *ipcserver.Call) (proto.Message, error) {
			return text(string(c.Identifier)), nil
		},
		Password: func(id []byte) ([]byte, error) {
			p, ok := passwords[string(id)]
			if !ok {
				return nil, &ipc.RemoteError{Class: string(ipc.ErrInvalidToken), Message: "unknown", Code: commonpb.RpcResponseHeaderProto_FATAL_UNAUTHORIZED}
			}
			return []byte(p), nil
		},
	})
}

func TestTokenLogin(t *testing.T) {
	s := tokenServer(t, map[string]string{"one": "p1", "two": "p2\x00\xff"})
	cred := [2]string{"one", "p1"}
	var mu sync.Mutex
	c := newClient(t, []string{s.addr}, ipc.WithMechanisms(ipc.TokenAuth{Credential: func() ([]byte, []byte, error) {
		mu.Lock()
		defer mu.Unlock()
		return []byte(cred[0]), []byte(cred[1]), nil
	}}))
	who := func() string {
		out := &echo{}
		if err := c.Call(t.Context(), "who", text(""), out); err != nil {
			t.Fatal(err)
		}
		return out.GetEffectiveUser()
	}
	if w := who(); w != "one" {
		t.Errorf("logged in as %s", w)
	}
	mu.Lock()
	cred = [2]string{"two", "p2\x00\xff"}
	mu.Unlock()
	if w := who(); w != "one" {
		t.Errorf("kept connection is %s", w)
	}
	c.Reset()
	if w := who(); w != "two" {
		t.Errorf("after Reset %s", w)
	}
}

func TestRefusedLogins(t *testing.T) {
	s := tokenServer(t, map[string]string{"one": "p1"})
	auth := func(id, p string) ipc.Option {
		return ipc.WithMechanisms(ipc.TokenAuth{Credential: func() ([]byte, []byte, error) { return []byte(id), []byte(p), nil }})
	}
	for name, tc := range map[string]struct {
		opt  ipc.Option
		want error
	}{
		"wrong password": {auth("one", "secret-password"), ipc.Class("javax.security.sasl.SaslException")},
		"unknown token":  {auth("three", "p1"), ipc.ErrInvalidToken},
		"no token":       {ipc.WithUser(ipc.User{Effective: "alice"}), ipc.ErrAccessControl},
	} {
		c := newClient(t, []string{s.addr}, tc.opt)
		err := c.CallRetry(t.Context(), ipc.Retry{}, "who", text(""), &echo{})
		if !errors.Is(err, tc.want) || ipc.Classify(err) != ipc.Final {
			t.Errorf("%s: %v is %v", name, err, ipc.Classify(err))
		}
		if strings.Contains(err.Error(), "secret-password") {
			t.Errorf("%s: password in %v", name, err)
		}
	}
	open := serve(t, "127.0.0.1:0", simple(echoHandler))
	c := newClient(t, []string{open.addr}, auth("one", "p1"))
	if err := c.Call(t.Context(), "echo", text(""), &echo{}); !errors.Is(err, ipc.ErrNoMechanism) || ipc.Classify(err) != ipc.Final {
		t.Errorf("insecure server without permission to fall back: %v", err)
	}
	c = newClient(t, []string{open.addr}, auth("one", "p1"), ipc.WithSimpleFallback())
	call(t, c, "fallback")
}

func TestAnswerAboveTheLimit(t *testing.T) {
	s := serve(t, "127.0.0.1:0", simple(echoHandler))
	c := newClient(t, []string{s.addr}, ipc.WithMaxMessage(1000))
	err := c.Call(t.Context(), "echo", text(strings.Repeat("x", 2000)), &echo{})
	if !errors.Is(err, ipc.ErrTooLarge) || ipc.Classify(err) != ipc.Final {
		t.Errorf("%v is %v", err, ipc.Classify(err))
	}
	call(t, c, "small again")
}

func TestNotAHadoopServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer l.Close() //nolint:errcheck // end of the test
	wg.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.CopyN(io.Discard, nc, 7)
			_, _ = nc.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
			_, _ = io.Copy(io.Discard, nc)
			_ = nc.Close()
		}
	})
	err = newClient(t, []string{l.Addr().String()}).Call(t.Context(), "echo", text(""), &echo{})
	if ipc.Classify(err) != ipc.Final {
		t.Errorf("%v is %v", err, ipc.Classify(err))
	}
}

func TestCloseEndsCalls(t *testing.T) {
	entered := make(chan struct{})
	s := serve(t, "127.0.0.1:0", simple(func(ctx context.Context, _ *ipcserver.Call) (proto.Message, error) {
		close(entered)
		<-ctx.Done()
		return nil, ctx.Err()
	}))
	c := newClient(t, []string{s.addr})
	done := make(chan error, 1)
	go func() { done <- c.CallRetry(t.Context(), ipc.Retry{}, "block", text(""), &echo{}) }()
	<-entered
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, ipc.ErrClosed) {
		t.Errorf("call in flight: %v", err)
	}
	if err := c.Call(t.Context(), "x", text(""), &echo{}); !errors.Is(err, ipc.ErrClosed) {
		t.Errorf("call after Close: %v", err)
	}
}

func TestNewClientReportsAllFaults(t *testing.T) {
	_, err := ipc.NewClient([]string{"nohost", "h:0"}, testProtocol, ipc.WithCallTimeout(-1), ipc.WithUser(ipc.User{Effective: "a"}))
	for _, want := range []string{`"nohost"`, `"h:0"`, "positive"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
}

// A mechanism that protects messages: requests and answers are wrapped, both ways.
func TestProtectedConnection(t *testing.T) {
	client, server := net.Pipe()
	defer server.Close() //nolint:errcheck // end of the test
	done := make(chan error, 1)
	go func() { done <- protectedPeer(server) }()
	nc, login, err := ipc.Authenticate(t.Context(), client, "nn:8020", []ipc.Mechanism{xorMechanism{}}, false)
	if err != nil || !login.Protected || login.Method != ipc.MethodKerberos {
		t.Fatalf("%+v %v", login, err)
	}
	if _, err := nc.Write([]byte("request")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 6)
	if _, err := io.ReadFull(nc, got); err != nil || string(got) != "answer" {
		t.Errorf("%q %v", got, err)
	}
	_ = nc.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

type xorMechanism struct{}

func (xorMechanism) Accepts(o ipc.Offer) bool                              { return o.Method == ipc.MethodKerberos }
func (xorMechanism) Begin(context.Context, ipc.Offer) (ipc.Session, error) { return xorSession{}, nil }
func xor(b []byte) []byte                                                  { return bytes.Map(func(r rune) rune { return r ^ 1 }, b) }

type xorSession struct{}

func (xorSession) Step(in []byte) ([]byte, bool, error) { return []byte("hello"), true, nil }
func (xorSession) Wrapper() ipc.Wrapper                 { return xorSession{} }
func (xorSession) Wrap(b []byte) ([]byte, error)        { return xor(b), nil }
func (xorSession) Unwrap(b []byte) ([]byte, error)      { return xor(b), nil }
func (xorSession) Limit() int                           { return 1 << 16 }

func protectedPeer(nc net.Conn) error {
	var head [7]byte
	if _, err := io.ReadFull(nc, head[:]); err != nil {
		return err
	}
	read := func() (*commonpb.RpcSaslProto, error) {
		frame, err := ipc.ReadFrame(nc, 1<<20)
		if err != nil {
			return nil, err
		}
		rest, err := ipc.ConsumeMessage(frame, &commonpb.RpcRequestHeaderProto{})
		if err != nil {
			return nil, err
		}
		m := &commonpb.RpcSaslProto{}
		_, err = ipc.ConsumeMessage(rest, m)
		return m, err
	}
	write := func(m *commonpb.RpcSaslProto) error {
		id := ipc.CallIDSASL
		frame, err := ipc.EncodeFrame(&commonpb.RpcResponseHeaderProto{CallId: proto.Uint32(uint32(id)), Status: commonpb.RpcResponseHeaderProto_SUCCESS.Enum()}, m)
		if err != nil {
			return err
		}
		_, err = nc.Write(frame)
		return err
	}
	if _, err := read(); err != nil {
		return err
	}
	offer := &commonpb.RpcSaslProto_SaslAuth{Method: proto.String("KERBEROS"), Mechanism: proto.String("GSSAPI"), Protocol: proto.String("rm"), ServerId: proto.String("host")}
	if err := write(&commonpb.RpcSaslProto{State: commonpb.RpcSaslProto_NEGOTIATE.Enum(), Auths: []*commonpb.RpcSaslProto_SaslAuth{offer}}); err != nil {
		return err
	}
	if m, err := read(); err != nil || m.GetState() != commonpb.RpcSaslProto_INITIATE || string(m.GetToken()) != "hello" || m.GetAuths()[0].Challenge != nil {
		return fmt.Errorf("initiate %v: %w", m, err)
	}
	if err := write(&commonpb.RpcSaslProto{State: commonpb.RpcSaslProto_SUCCESS.Enum()}); err != nil {
		return err
	}
	if m, err := read(); err != nil || m.GetState() != commonpb.RpcSaslProto_WRAP || string(xor(m.GetToken())) != "request" {
		return fmt.Errorf("wrapped request %v: %w", m, err)
	}
	return write(&commonpb.RpcSaslProto{State: commonpb.RpcSaslProto_WRAP.Enum(), Token: xor([]byte("answer"))})
}
