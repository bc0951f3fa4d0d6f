package ipc_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/thalweg/thalweg/yarnrpc/ipc"
	commonpb "github.com/thalweg/thalweg/yarnrpc/proto/common"
)

func FuzzReadFrame(f *testing.F) {
	f.Add([]byte{0, 0, 0, 2, 1, 2})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{0x07, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		frame, err := ipc.ReadFrame(bytes.NewReader(b), 1<<20)
		if err != nil {
			return
		}
		if n := int(binary.BigEndian.Uint32(b)); len(frame) != n || !bytes.Equal(frame, b[4:4+n]) {
			t.Fatalf("frame of %d bytes, announced %d", len(frame), n)
		}
	})
}

func FuzzParseResponse(f *testing.F) {
	frame, err := ipc.EncodeFrame(&commonpb.RpcResponseHeaderProto{CallId: proto.Uint32(1), Status: commonpb.RpcResponseHeaderProto_SUCCESS.Enum()},
		&commonpb.RpcSaslProto{State: commonpb.RpcSaslProto_NEGOTIATE.Enum()})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(frame[4:])
	f.Fuzz(func(_ *testing.T, b []byte) {
		_, rest, err := ipc.ParseResponse(b)
		if err == nil {
			_, _ = ipc.ConsumeMessage(rest, &commonpb.RpcSaslProto{})
		}
	})
}

func FuzzParseConnectionHeader(f *testing.F) {
	f.Add(ipc.ConnectionHeader(ipc.AuthSASL))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := ipc.ParseConnectionHeader(b)
		if err == nil && !bytes.Equal(append(b[:5:5], 0, b[6]), ipc.ConnectionHeader(a)) {
			t.Fatalf("%x accepted", b)
		}
	})
}

// serverBytes is a connection whose peer sends fixed bytes and takes everything.
type serverBytes struct {
	net.Conn
	r io.Reader
}

func (s *serverBytes) Read(b []byte) (int, error)     { return s.r.Read(b) }
func (*serverBytes) Write(b []byte) (int, error)      { return len(b), nil }
func (*serverBytes) Close() error                     { return nil }
func (*serverBytes) SetDeadline(time.Time) error      { return nil }
func (*serverBytes) SetWriteDeadline(time.Time) error { return nil }

// FuzzAuthenticate: no server's bytes crash the login, and none log us in without knowing the token's password.
func FuzzAuthenticate(f *testing.F) {
	id := ipc.CallIDSASL
	head := &commonpb.RpcResponseHeaderProto{CallId: proto.Uint32(uint32(id)), Status: commonpb.RpcResponseHeaderProto_SUCCESS.Enum()}
	offer := &commonpb.RpcSaslProto{State: commonpb.RpcSaslProto_NEGOTIATE.Enum(), Auths: []*commonpb.RpcSaslProto_SaslAuth{{
		Method: proto.String("TOKEN"), Mechanism: proto.String("DIGEST-MD5"), Protocol: proto.String(""), ServerId: proto.String("default"),
		Challenge: []byte(`realm="default",nonce="n",qop="auth",charset=utf-8,algorithm=md5-sess`),
	}}}
	a, err := ipc.EncodeFrame(head, offer)
	if err != nil {
		f.Fatal(err)
	}
	b, err := ipc.EncodeFrame(head, &commonpb.RpcSaslProto{State: commonpb.RpcSaslProto_SUCCESS.Enum(), Token: []byte("rspauth=00")})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(append(a, b...))
	f.Add(b)
	auth := ipc.TokenAuth{Credential: func() ([]byte, []byte, error) { return []byte("id"), []byte("password"), nil }}
	f.Fuzz(func(t *testing.T, in []byte) {
		if _, _, err := ipc.Authenticate(t.Context(), &serverBytes{r: bytes.NewReader(in)}, "nn:8020", []ipc.Mechanism{auth}, false); err == nil {
			t.Fatal("logged in at a server that does not know the password")
		}
	})
}
