package ipc_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/thalweg/thalweg/yarnrpc/ipc"
	commonpb "github.com/thalweg/thalweg/yarnrpc/proto/common"
	yarnpb "github.com/thalweg/thalweg/yarnrpc/proto/yarn"
)

// The files in testdata are what a ResourceManager of Hadoop 3.4.2 sent on its scheduler port.
func recorded(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestRecordedRefusals(t *testing.T) {
	auth := ipc.TokenAuth{Credential: func() ([]byte, []byte, error) { return []byte("i"), []byte("p"), nil }}
	for name, want := range map[string]error{
		"server-wrong-password.bin": ipc.Class("javax.security.sasl.SaslException"),
		"server-unknown-token.bin":  ipc.ErrInvalidToken,
	} {
		_, _, err := ipc.Authenticate(t.Context(), &serverBytes{r: bytes.NewReader(recorded(t, name))}, "nn:8020", []ipc.Mechanism{auth}, false)
		var r *ipc.RemoteError
		if !errors.Is(err, want) || ipc.Classify(err) != ipc.Final || !errors.As(err, &r) || !r.Fatal || r.Message == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	frame, err := ipc.ReadFrame(bytes.NewReader(recorded(t, "server-simple-refused.bin")), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	head, _, err := ipc.ParseResponse(frame)
	if err != nil || head.GetStatus() != commonpb.RpcResponseHeaderProto_FATAL || head.GetExceptionClassName() != string(ipc.ErrAccessControl) ||
		head.GetErrorDetail() != commonpb.RpcResponseHeaderProto_FATAL_UNAUTHORIZED {
		t.Errorf("%v %v", head, err)
	}
}

// Login, a refused allocate, register, allocate: every byte is understood.
func TestRecordedSession(t *testing.T) {
	r := bytes.NewReader(recorded(t, "server-token-login.bin"))
	next := func(m proto.Message) *commonpb.RpcResponseHeaderProto {
		t.Helper()
		frame, err := ipc.ReadFrame(r, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		head, rest, err := ipc.ParseResponse(frame)
		if err != nil {
			t.Fatal(err)
		}
		if head.GetStatus() == commonpb.RpcResponseHeaderProto_SUCCESS {
			if rest, err = ipc.ConsumeMessage(rest, m); err != nil || len(rest) != 0 {
				t.Fatalf("%v, %d bytes left", err, len(rest))
			}
			if u := m.ProtoReflect().GetUnknown(); len(u) > 0 {
				t.Errorf("%s has %d bytes of unknown fields", m.ProtoReflect().Descriptor().Name(), len(u))
			}
		}
		return head
	}
	sasl := &commonpb.RpcSaslProto{}
	next(sasl)
	if a := sasl.GetAuths(); len(a) != 1 || a[0].GetMethod() != "TOKEN" || a[0].GetServerId() != "default" || len(a[0].GetChallenge()) == 0 {
		t.Errorf("offers: %v", sasl)
	}
	next(sasl)
	if sasl.GetState() != commonpb.RpcSaslProto_SUCCESS || !bytes.HasPrefix(sasl.GetToken(), []byte("rspauth=")) {
		t.Errorf("end of login: %v", sasl.GetState())
	}
	if h := next(nil); h.GetExceptionClassName() != "org.apache.hadoop.yarn.exceptions.ApplicationMasterNotRegisteredException" {
		t.Errorf("unregistered allocate: %v", h)
	} else {
		e := ipc.NewRemoteError(h.GetExceptionClassName(), h.GetErrorMsg(), "allocate", h.GetErrorDetail(), false)
		if e.Stack == "" || e.Message[:6] != "AM is " {
			t.Errorf("message %q, stack of %d bytes", e.Message, len(e.Stack))
		}
	}
	reg := &yarnpb.RegisterApplicationMasterResponseProto{}
	if next(reg); reg.GetMaximumCapability().GetMemory() == 0 || reg.GetQueue() == "" {
		t.Errorf("registration: %v", reg.GetMaximumCapability())
	}
	granted := 0
	for r.Len() > 0 {
		a := &yarnpb.AllocateResponseProto{}
		if h := next(a); h.GetStatus() != commonpb.RpcResponseHeaderProto_SUCCESS {
			t.Fatal(h)
		}
		granted += len(a.GetAllocatedContainers())
		if granted > 0 {
			break
		}
	}
	if granted != 1 {
		t.Errorf("%d grants", granted)
	}
	fin := &yarnpb.FinishApplicationMasterResponseProto{}
	for r.Len() > 0 {
		next(fin)
	}
	if _, err := r.ReadByte(); err != io.EOF {
		t.Error("bytes left")
	}
}
