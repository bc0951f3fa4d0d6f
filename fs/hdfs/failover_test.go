package hdfs_test

import (
	"context"
	"errors"
	iofs "io/fs"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/thalweg/thalweg/fs/hdfs"
	"github.com/thalweg/thalweg/fs/hdfs/hdfspb"
	"github.com/thalweg/thalweg/yarnrpc/ipc"
	"github.com/thalweg/thalweg/yarnrpc/ipc/ipcserver"
	commonpb "github.com/thalweg/thalweg/yarnrpc/proto/common"
	"github.com/thalweg/thalweg/yarnrpc/token"
)

// nameNode serves an empty file system, or what refuse says of a call, until it returns nil.
func nameNode(t *testing.T, cfg ipcserver.Config, refuse func(n int64) error) (addr string, calls *atomic.Int64) {
	t.Helper()
	calls = &atomic.Int64{}
	cfg.Handler = func(_ context.Context, call *ipcserver.Call) (proto.Message, error) {
		if err := refuse(calls.Add(1)); err != nil {
			return nil, err
		}
		if call.Method == "getDelegationToken" {
			return &commonpb.GetDelegationTokenResponseProto{Token: &commonpb.TokenProto{
				Identifier: []byte("id"), Password: []byte("pw"), Kind: proto.String(string(token.KindHDFSDelegation)), Service: proto.String(""),
			}}, nil
		}
		return &hdfspb.GetFileInfoResponseProto{}, nil // no such file
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := ipcserver.New(cfg)
	s.Serve(l)
	t.Cleanup(s.Close)
	return l.Addr().String(), calls
}

func always(class ipc.Class) func(int64) error {
	return func(int64) error { return &ipc.RemoteError{Class: string(class), Message: "not here"} }
}

func active(int64) error { return nil }

func TestCallsGoToTheActiveNameNode(t *testing.T) {
	simple := ipcserver.Config{Simple: true}
	for name, first := range map[string]func(t *testing.T) string{
		"standby":  func(t *testing.T) string { a, _ := nameNode(t, simple, always(ipc.ErrStandby)); return a },
		"observer": func(t *testing.T) string { a, _ := nameNode(t, simple, always(ipc.ErrObserverRetry)); return a },
		"refused": func(t *testing.T) string {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close() //nolint:errcheck // end of the function
			return l.Addr().String()
		},
		"unknown name": func(*testing.T) string { return "gone.invalid:8020" },
	} {
		t.Run(name, func(t *testing.T) {
			second, calls := nameNode(t, simple, active)
			f := open(t, hdfs.Config{
				DefaultAuthority: "prod", NameNodes: map[string][]string{"prod": {first(t), second}}, User: "alice",
				Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
					if addr == "gone.invalid:8020" {
						return nil, &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: addr, IsNotFound: true}}
					}
					return (&net.Dialer{}).DialContext(ctx, network, addr)
				},
			})
			for range 3 {
				if _, err := f.Stat(t.Context(), "/f"); !errors.Is(err, iofs.ErrNotExist) {
					t.Fatal(err)
				}
			}
			if calls.Load() != 3 {
				t.Errorf("the active NameNode had %d calls", calls.Load())
			}
		})
	}
}

func TestANameNodeThatAsksForAnotherTryIsAskedAgain(t *testing.T) {
	simple := ipcserver.Config{Simple: true}
	starting, calls := nameNode(t, simple, func(n int64) error {
		if n < 3 {
			return &ipc.RemoteError{Class: string(ipc.ErrRetriable), Message: "still starting"}
		}
		return nil
	})
	other, asked := nameNode(t, simple, always(ipc.ErrStandby))
	f := open(t, hdfs.Config{DefaultAuthority: "prod", NameNodes: map[string][]string{"prod": {starting, other}}, User: "alice"})
	if _, err := f.Stat(t.Context(), "/f"); !errors.Is(err, iofs.ErrNotExist) {
		t.Fatal(err)
	}
	if calls.Load() != 3 || asked.Load() != 0 {
		t.Errorf("%d calls, %d of the other", calls.Load(), asked.Load())
	}
}

// A token that was replaced meanwhile is used without the caller noticing; one that has ended is one line.
func TestAReplacedTokenIsUsed(t *testing.T) {
	ended := &ipc.RemoteError{Class: string(ipc.ErrInvalidToken), Message: "token (for alice) can't be found in cache"}
	addr, _ := nameNode(t, ipcserver.Config{Password: func(id []byte) ([]byte, error) {
		if string(id) != "new" {
			return nil, ended
		}
		return []byte("secret"), nil
	}}, active)
	asked := 0
	login := ipc.TokenAuth{Credential: func() (id, password []byte, err error) {
		if asked++; asked == 1 {
			return []byte("old"), []byte("secret"), nil
		}
		return []byte("new"), []byte("secret"), nil
	}}
	f := open(t, hdfs.Config{DefaultAuthority: addr, Login: func(authority string, addrs []string) []ipc.Option {
		if authority != addr || len(addrs) != 1 || addrs[0] != addr {
			t.Errorf("login at %s, %v", authority, addrs)
		}
		return []ipc.Option{ipc.WithMechanisms(login)}
	}})
	if _, err := f.Stat(t.Context(), "/f"); !errors.Is(err, iofs.ErrNotExist) {
		t.Fatal(err)
	}
	login.Credential = func() (id, password []byte, err error) { return []byte("old"), []byte("secret"), nil }
	f = open(t, hdfs.Config{DefaultAuthority: addr, IPC: []ipc.Option{ipc.WithMechanisms(login)}, RetryTimeout: time.Hour})
	_, err := f.Stat(t.Context(), "/f")
	oneLine(t, err, iofs.ErrPermission, "/f", "can't be found in cache", "security.kerberos.login.keytab")
}

func TestTokensCarryTheServiceThatOthersLookFor(t *testing.T) {
	simple := ipcserver.Config{Simple: true}
	one, _ := nameNode(t, simple, active)
	two, _ := nameNode(t, simple, active)
	_, port, err := net.SplitHostPort(one)
	if err != nil {
		t.Fatal(err)
	}
	cfg := hdfs.Config{User: "alice", DefaultAuthority: "prod", NameNodes: map[string][]string{"prod": {one, two}}}
	creds := &token.Credentials{}
	uris := []string{"hdfs://prod", "hdfs:///", "hdfs://localhost:" + port, "hdfs://localhost:" + port + "/again"}
	if err := hdfs.ObtainTokens(t.Context(), cfg, uris, "yarn", creds); err != nil {
		t.Fatal(err)
	}
	for _, service := range []string{"ha-hdfs:prod", "127.0.0.1:" + port} {
		if got, ok := creds.Token(service); !ok || got.Service != service || got.Kind != token.KindHDFSDelegation {
			t.Errorf("%s: %v in %v", service, got, creds)
		}
	}
	if creds.Len() != 2 {
		t.Errorf("%v", creds)
	}
	oneLine(t, hdfs.ObtainTokens(t.Context(), cfg, []string{"s3://bucket"}, "yarn", creds), iofs.ErrInvalid, "s3://bucket", "hdfs://")
}
