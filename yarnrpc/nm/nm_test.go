package nm_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/thalweg/thalweg/yarnrpc/ipc"
	"github.com/thalweg/thalweg/yarnrpc/ipc/ipcserver"
	"github.com/thalweg/thalweg/yarnrpc/nm"
	yarnpb "github.com/thalweg/thalweg/yarnrpc/proto/yarn"
	"github.com/thalweg/thalweg/yarnrpc/token"
	"github.com/thalweg/thalweg/yarnrpc/yarn"
)

// The protocol itself is tested by yarntest, against yarnfake and against real daemons.

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func serve(t *testing.T, h ipcserver.Handler) yarn.NodeID {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := ipcserver.New(ipcserver.Config{Handler: h, Password: func(id []byte) ([]byte, error) { return append([]byte("p-"), id...), nil }})
	s.Serve(l)
	t.Cleanup(s.Close)
	id, err := yarn.ParseNodeID(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func tokenOf(id string) token.Token {
	return token.Token{Kind: token.KindNM, Identifier: []byte(id), Password: []byte("p-" + id)}
}

// A NodeManager that has not found its ResourceManager yet is waited for.
func TestNotYetReady(t *testing.T) {
	var calls atomic.Int32
	node := serve(t, func(context.Context, *ipcserver.Call) (proto.Message, error) {
		if calls.Add(1) < 3 {
			return nil, &ipc.RemoteError{Class: string(yarn.ErrNMNotYetReady), Message: "Rejecting new containers"}
		}
		return &yarnpb.StartContainersResponseProto{}, nil
	})
	c := nm.New(nm.WithRetry(ipc.Retry{Initial: time.Millisecond}))
	defer c.Close() //nolint:errcheck // end of the test
	c.PutToken(node, tokenOf("a"))
	err := c.Start(t.Context(), nm.Launch{Container: &yarnpb.ContainerProto{NodeId: node.Proto()}})
	if err != nil || calls.Load() != 3 {
		t.Errorf("%d calls, %v", calls.Load(), err)
	}
}

// The token that replaces another one is used by the next call.
func TestReplacedToken(t *testing.T) {
	var last atomic.Value
	node := serve(t, func(_ context.Context, call *ipcserver.Call) (proto.Message, error) {
		last.Store(string(call.Identifier))
		return &yarnpb.GetContainerStatusesResponseProto{}, nil
	})
	c := nm.New()
	defer c.Close() //nolint:errcheck // end of the test
	if _, _, err := c.Statuses(t.Context(), node); !errors.Is(err, nm.ErrNoToken) || !strings.Contains(err.Error(), node.String()) {
		t.Errorf("without a token: %v", err)
	}
	for _, id := range []string{"a", "a", "b"} {
		c.PutTokens([]*yarnpb.NMTokenProto{{NodeId: node.Proto(), Token: tokenOf(id).Proto()}})
		if _, _, err := c.Statuses(t.Context(), node); err != nil || last.Load() != id {
			t.Errorf("logged in as %v, want %s, %v", last.Load(), id, err)
		}
	}
	if !c.HasToken(node) || c.HasToken(yarn.NodeID{Host: "other", Port: 1}) {
		t.Error("HasToken")
	}
}

func TestClosed(t *testing.T) {
	c := nm.New()
	node := yarn.NodeID{Host: "127.0.0.1", Port: 1}
	c.PutToken(node, tokenOf("a"))
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Stop(t.Context(), node); !errors.Is(err, nm.ErrClosed) {
		t.Error(err)
	}
}
