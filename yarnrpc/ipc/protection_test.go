package ipc_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/thalweg/thalweg/yarnrpc/ipc"
	"github.com/thalweg/thalweg/yarnrpc/ipc/ipcserver"
	commonpb "github.com/thalweg/thalweg/yarnrpc/proto/common"
)

func protectedServer(t *testing.T, offer ...ipc.Protection) service {
	return serve(t, "127.0.0.1:0", ipcserver.Config{Handler: echoHandler, Protections: offer, Password: func([]byte) ([]byte, error) {
		return []byte("secret"), nil
	}})
}

func tokenAuth(accept ...ipc.Protection) ipc.Option {
	return ipc.WithMechanisms(ipc.TokenAuth{Protections: accept, Credential: func() ([]byte, []byte, error) {
		return []byte("id"), []byte("secret"), nil
	}})
}

// tap keeps what goes over a connection in each direction, and may change what comes.
type tap struct {
	mu     sync.Mutex
	out    bytes.Buffer
	change func([]byte)
}

func (p *tap) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	nc, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &tapped{nc, p}, nil
}

type tapped struct {
	net.Conn
	*tap
}

func (c *tapped) Write(b []byte) (int, error) {
	c.mu.Lock()
	c.out.Write(b)
	c.mu.Unlock()
	return c.Conn.Write(b)
}

func (c *tapped) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.change != nil {
		c.change(b[:n])
	}
	return n, err
}

// The client's list says what it takes and what it likes best; what the server offers first does not matter.
func TestProtectionIsNegotiated(t *testing.T) {
	all := []ipc.Protection{ipc.ProtectAuthentication, ipc.ProtectIntegrity, ipc.ProtectPrivacy}
	for _, tc := range []struct {
		offer, accept []ipc.Protection
		want          string // "", "clear" or "hidden"
	}{
		{nil, nil, "clear"},
		{all, nil, "clear"},
		{all, all, "clear"},
		{all, []ipc.Protection{ipc.ProtectPrivacy, ipc.ProtectIntegrity}, "hidden"},
		{[]ipc.Protection{ipc.ProtectIntegrity}, all, "clear"},
		{[]ipc.Protection{ipc.ProtectPrivacy}, all, "hidden"},
		{[]ipc.Protection{ipc.ProtectPrivacy}, nil, ""},
		{nil, []ipc.Protection{ipc.ProtectPrivacy}, ""},
	} {
		s := protectedServer(t, tc.offer...)
		var p tap
		c := newClient(t, []string{s.addr}, tokenAuth(tc.accept...), ipc.WithDial(p.dial))
		const secret = "/user/alice/a path that nobody else shall see"
		out := &echo{}
		err := c.Call(t.Context(), "echo", text(secret), out)
		if tc.want == "" {
			if !errors.Is(err, ipc.ErrNoMechanism) || !strings.Contains(err.Error(), "hadoop.rpc.protection") || ipc.Classify(err) != ipc.Final {
				t.Errorf("server %v, client %v: %v", tc.offer, tc.accept, err)
			}
			continue
		}
		if err != nil || out.GetEffectiveUser() != secret {
			t.Errorf("server %v, client %v: %q, %v", tc.offer, tc.accept, out.GetEffectiveUser(), err)
		}
		p.mu.Lock()
		if seen := bytes.Contains(p.out.Bytes(), []byte(secret)); seen != (tc.want == "clear") {
			t.Errorf("server %v, client %v: request readable: %v", tc.offer, tc.accept, seen)
		}
		p.mu.Unlock()
	}
}

// Requests are longer than what the server takes in one message, answers are as long.
func TestProtectedMessagesOfAnyLength(t *testing.T) {
	for _, p := range []ipc.Protection{ipc.ProtectIntegrity, ipc.ProtectPrivacy} {
		s := protectedServer(t, p)
		c := newClient(t, []string{s.addr}, tokenAuth(p))
		for _, n := range []int{0, 1, 65000, 65536, 200_000, 3 << 20} {
			call(t, c, strings.Repeat("x", n))
		}
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() { call(t, c, strings.Repeat("y", i*10_000)) })
		}
		wg.Wait()
	}
}

// One changed bit in an answer ends the connection; no part of the answer is believed.
func TestChangedAnswerIsRefused(t *testing.T) {
	for _, p := range []ipc.Protection{ipc.ProtectIntegrity, ipc.ProtectPrivacy} {
		s := protectedServer(t, p)
		var wire tap
		c := newClient(t, []string{s.addr}, tokenAuth(p), ipc.WithDial(wire.dial))
		call(t, c, "first")
		wire.mu.Lock()
		wire.change = func(b []byte) {
			if len(b) > 100 {
				b[len(b)-20] ^= 1
			}
		}
		wire.mu.Unlock()
		out := &echo{}
		if err := c.Call(t.Context(), "echo", text(strings.Repeat("z", 200)), out); err == nil || out.EffectiveUser != nil {
			t.Errorf("%s: a changed answer was taken: %q, %v", p, out.GetEffectiveUser(), err)
		}
	}
}

// An answer, or an error, outside the protection could be anybody's.
func TestUnprotectedAnswerIsRefused(t *testing.T) {
	for _, status := range []commonpb.RpcResponseHeaderProto_RpcStatusProto{
		commonpb.RpcResponseHeaderProto_SUCCESS, commonpb.RpcResponseHeaderProto_ERROR, commonpb.RpcResponseHeaderProto_FATAL,
	} {
		client, server := net.Pipe()
		go func() {
			defer func() { _ = server.Close() }()
			_ = protectedPeerAnswers(server, status)
		}()
		nc, _, err := ipc.Authenticate(t.Context(), client, "nn:8020", []ipc.Mechanism{xorMechanism{}}, false)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(nc); !errors.Is(err, ipc.ErrMalformed) {
			t.Errorf("%s: %v", status, err)
		}
		_ = client.Close()
	}
}

// protectedPeerAnswers logs the client in and then answers a call in the clear.
func protectedPeerAnswers(nc net.Conn, status commonpb.RpcResponseHeaderProto_RpcStatusProto) error {
	if _, err := io.ReadFull(nc, make([]byte, 7)); err != nil {
		return err
	}
	id := ipc.CallIDSASL
	head := &commonpb.RpcResponseHeaderProto{CallId: proto.Uint32(uint32(id)), Status: commonpb.RpcResponseHeaderProto_SUCCESS.Enum()} //nolint:gosec // as Hadoop sends it
	for _, m := range []*commonpb.RpcSaslProto{
		{State: commonpb.RpcSaslProto_NEGOTIATE.Enum(), Auths: []*commonpb.RpcSaslProto_SaslAuth{{Method: proto.String("KERBEROS"), Mechanism: proto.String("GSSAPI")}}},
		{State: commonpb.RpcSaslProto_SUCCESS.Enum(), Token: []byte("done")},
	} {
		if _, err := ipc.ReadFrame(nc, 1<<20); err != nil {
			return err
		}
		frame, err := ipc.EncodeFrame(head, m)
		if err != nil {
			return err
		}
		if _, err := nc.Write(frame); err != nil {
			return err
		}
	}
	frame, err := ipc.EncodeFrame(&commonpb.RpcResponseHeaderProto{CallId: proto.Uint32(0), Status: status.Enum(),
		ExceptionClassName: proto.String(string(ipc.ErrStandby))}, text("forged"))
	if err == nil {
		_, err = nc.Write(frame)
	}
	return err
}

func TestParseProtections(t *testing.T) {
	for _, tc := range []struct {
		in   string
		want []ipc.Protection // nil for an error
	}{
		{"", []ipc.Protection{ipc.ProtectAuthentication}},
		{"privacy", []ipc.Protection{ipc.ProtectPrivacy}},
		{" Privacy , authentication,privacy ", []ipc.Protection{ipc.ProtectPrivacy, ipc.ProtectAuthentication}},
		{"auth-conf", nil},
	} {
		got, err := ipc.ParseProtections(tc.in)
		if (err == nil) != (tc.want != nil) || len(got) != len(tc.want) {
			t.Errorf("%q: %v, %v", tc.in, got, err)
			continue
		}
		for i := range got {
			if got[i] != tc.want[i] {
				t.Errorf("%q: %v", tc.in, got)
			}
		}
	}
}
