package client_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/thalweg/thalweg/yarnrpc/client"
	"github.com/thalweg/thalweg/yarnrpc/conf"
	"github.com/thalweg/thalweg/yarnrpc/identity"
	"github.com/thalweg/thalweg/yarnrpc/ipc"
	yarnpb "github.com/thalweg/thalweg/yarnrpc/proto/yarn"
	"github.com/thalweg/thalweg/yarnrpc/token"
	"github.com/thalweg/thalweg/yarnrpc/yarn"
	"github.com/thalweg/thalweg/yarnrpc/yarnfake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, opts ...yarnfake.Option) *yarnfake.Cluster {
	t.Helper()
	c, err := yarnfake.Start(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func newClient(t *testing.T, c *conf.Configuration, opts ...client.Option) *client.Client {
	t.Helper()
	cl, err := client.New(c, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cl.Close() })
	return cl
}

func submission(id yarn.ApplicationID) *yarnpb.ApplicationSubmissionContextProto {
	return &yarnpb.ApplicationSubmissionContextProto{
		ApplicationId: id.Proto(), Queue: proto.String("default"), AmContainerSpec: yarn.LaunchContext(nil, nil, nil, nil),
		Resource: yarn.Resource{MemoryMB: 64, VCores: 1}.Proto(),
	}
}

// An unreachable ResourceManager is one error after a bounded time that names address, key and file.
func TestUnreachable(t *testing.T) {
	const addr = "127.0.0.1:1"                      // nobody listens there; a port that was free a moment ago may be another test's now
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close() //nolint:errcheck // end of the test
	for name, addr := range map[string]string{"refused": addr, "silent": silent.Addr().String()} {
		c := newClient(t, conf.FromMap(map[string]string{conf.KeyRMAddress: addr}), client.WithMaxWait(100*time.Millisecond))
		_, _, err := c.NewApplication(t.Context())
		var u *client.UnreachableError
		if !errors.As(err, &u) || !strings.Contains(err.Error(), addr) || !strings.Contains(err.Error(), conf.KeyRMAddress) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCancelledCall(t *testing.T) {
	c := newClient(t, conf.FromMap(map[string]string{conf.KeyRMAddress: "127.0.0.1:1"}))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Metrics(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestBadAddressNamesTheKey(t *testing.T) {
	_, err := client.New(conf.FromMap(map[string]string{conf.KeyRMAddress: "rm:none"}))
	var ke *conf.KeyError
	if !errors.As(err, &ke) || ke.Key != conf.KeyRMAddress {
		t.Error(err)
	}
}

func TestSubmitAgainAfterALostAnswer(t *testing.T) {
	f := start(t)
	c := newClient(t, f.Conf(), client.WithRetry(ipc.Retry{Initial: time.Millisecond}))
	id, _, err := c.NewApplication(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f.DropAnswers("submitApplication", 2)
	if err := c.Submit(t.Context(), submission(id)); err != nil {
		t.Fatal(err)
	}
	if n := len(f.Applications()); n != 1 {
		t.Errorf("%d applications", n)
	}
	if s := f.Stats(id); s.Attempts != 1 {
		t.Errorf("%d attempts", s.Attempts)
	}
}

func TestMissingQueueIsASubmissionError(t *testing.T) {
	f := start(t)
	c := newClient(t, f.Conf())
	id, _, err := c.NewApplication(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	sub := submission(id)
	sub.Queue = proto.String("nope")
	var se *client.SubmissionError
	if err := c.Submit(t.Context(), sub); !errors.As(err, &se) || se.ID != id || !strings.Contains(err.Error(), "nope") {
		t.Error(err)
	}
}

// A standby or starting ResourceManager is waited for; a refusal is not.
func TestRetriesOnlyWhatMayHelp(t *testing.T) {
	f := start(t)
	c := newClient(t, f.Conf(), client.WithRetry(ipc.Retry{Initial: time.Millisecond}))
	f.Refuse("getClusterMetrics", &ipc.RemoteError{Class: string(ipc.ErrStandby)}, &ipc.RemoteError{Class: string(ipc.ErrRetriable)})
	if _, err := c.Metrics(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.Refuse("getClusterMetrics", &ipc.RemoteError{Class: string(ipc.ErrAccessControl), Message: "no"})
	if _, err := c.Metrics(t.Context()); !errors.Is(err, ipc.ErrAccessControl) {
		t.Error(err)
	}
}

func TestDelegationTokens(t *testing.T) {
	f := start(t)
	c := newClient(t, f.Conf(), client.WithIPC(ipc.WithUser(ipc.User{Effective: "alice"})))
	tok, err := c.DelegationToken(t.Context(), "yarn")
	if err != nil || tok.Kind != token.KindRMDelegation || tok.Service == "" {
		t.Fatal(tok, err)
	}
	end, err := c.RenewDelegationToken(t.Context(), tok)
	if err != nil || end.Before(time.Now()) {
		t.Error(end, err)
	}
	creds := &token.Credentials{}
	creds.Put("rm", tok)
	secure := f.Conf().WithValues(map[string]string{conf.KeyAuthentication: "kerberos"})
	who, err := identity.New(secure, identity.WithTokens(creds))
	if err != nil {
		t.Fatal(err)
	}
	byToken := newClient(t, secure, client.WithIdentity(who))
	id, _, err := byToken.NewApplication(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := byToken.Submit(t.Context(), submission(id)); err != nil {
		t.Fatal(err)
	}
	r, err := c.Report(t.Context(), id)
	if err != nil || r.GetUser() != "alice" {
		t.Errorf("application of %q, %v", r.GetUser(), err)
	}
	if err := c.CancelDelegationToken(t.Context(), tok); err != nil {
		t.Error(err)
	}
}
