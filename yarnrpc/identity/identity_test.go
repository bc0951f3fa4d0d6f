package identity_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/thalweg/thalweg/yarnrpc/conf"
	"github.com/thalweg/thalweg/yarnrpc/identity"
	"github.com/thalweg/thalweg/yarnrpc/ipc"
	"github.com/thalweg/thalweg/yarnrpc/ipc/ipcserver"
	commonpb "github.com/thalweg/thalweg/yarnrpc/proto/common"
	"github.com/thalweg/thalweg/yarnrpc/token"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func kerberos(more ...string) *conf.Configuration {
	m := map[string]string{conf.KeyAuthentication: "kerberos", identity.KeyNameNode: "nn/_HOST@R"}
	for i := 0; i+1 < len(more); i += 2 {
		m[more[i]] = more[i+1]
	}
	return conf.FromMap(m)
}

// serve tells who called, as the server sees it.
func serve(t *testing.T, cfg ipcserver.Config) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Handler = func(_ context.Context, call *ipcserver.Call) (proto.Message, error) {
		who := call.User
		if call.Identifier != nil {
			who = "token " + string(call.Identifier)
		}
		return &commonpb.UserInformationProto{EffectiveUser: proto.String(who)}, nil
	}
	s := ipcserver.New(cfg)
	s.Serve(l)
	t.Cleanup(s.Close)
	return l.Addr().String()
}

func call(t *testing.T, addr string, opts []ipc.Option) (string, error) {
	t.Helper()
	c, err := ipc.NewClient([]string{addr}, ipc.Protocol{Name: "p", Version: 1}, opts...)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	out := &commonpb.UserInformationProto{}
	err = c.Call(t.Context(), "who", &commonpb.UserInformationProto{}, out)
	return out.GetEffectiveUser(), err
}

func credentials(ts ...token.Token) *token.Credentials {
	c := &token.Credentials{}
	for _, t := range ts {
		c.Put(t.Service, t)
	}
	return c
}

func tok(name, service string) token.Token {
	return token.Token{Identifier: []byte(name), Password: []byte("secret " + name), Kind: token.KindHDFSDelegation, Service: service}
}

func passwords(id []byte) ([]byte, error) { return []byte("secret " + string(id)), nil }

// The token of the service is shown, by address, by name or by nameservice, and no other service's; what replaced it is used
// from the next connection on.
func TestTokens(t *testing.T) {
	addr := serve(t, ipcserver.Config{Password: passwords, Protections: []ipc.Protection{ipc.ProtectPrivacy}})
	_, port, _ := net.SplitHostPort(addr)
	id, err := identity.New(kerberos(conf.KeyRPCProtection, "privacy"), identity.WithTokens(credentials(tok("a", addr), tok("b", "ha-hdfs:Sec"), tok("c", "127.0.0.1:1"))))
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		addr  string
		addrs []string
		want  string
	}{
		{addr, []string{addr}, "token a"},
		{"localhost:" + port, []string{"localhost:" + port}, "token a"},
		{addr, []string{addr, "other:1"}, "token b"},
	} {
		who, err := call(t, tc.addr, id.NameNode("Sec", tc.addrs))
		if err != nil || who != tc.want {
			t.Errorf("%v: %q %v", tc.addrs, who, err)
		}
	}
	opts := id.NameNode("sec", []string{addr})
	id.SetTokens(credentials(tok("newer", addr)))
	if who, err := call(t, addr, opts); err != nil || who != "token newer" {
		t.Errorf("after a newer token: %q %v", who, err)
	}
	if _, err := call(t, addr, id.NameNode("Sec", []string{addr, "other:1"})); err == nil {
		t.Error("another service's token was shown")
	}
}

func TestTokenFileThatIsReplaced(t *testing.T) {
	addr := serve(t, ipcserver.Config{Password: passwords})
	file := filepath.Join(t.TempDir(), "tokens")
	write := func(name string) {
		t.Helper()
		if err := token.WriteFile(file, credentials(tok(name, addr)), token.Writable); err != nil {
			t.Fatal(err)
		}
	}
	write("a")
	id, err := identity.New(kerberos(), identity.WithTokenFile(file))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b", "b"} {
		write(name)
		if who, err := call(t, addr, id.NameNode("", []string{addr})); err != nil || who != "token "+name {
			t.Errorf("%s: %q %v", name, who, err)
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if who, err := call(t, addr, id.NameNode("", []string{addr})); err != nil || who != "token b" {
		t.Errorf("without the file: %q %v", who, err)
	}
}

func TestTokensAreReplacedBesideCalls(t *testing.T) {
	addr := serve(t, ipcserver.Config{Password: passwords})
	id, err := identity.New(kerberos(), identity.WithTokens(credentials(tok("a", addr))))
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 10 {
				if _, err := call(t, addr, id.NameNode("", []string{addr})); err != nil {
					t.Error(err)
				}
				id.SetTokens(credentials(tok("b", addr)))
			}
		})
	}
	wg.Wait()
}

// fakeLogin says that it was asked for.
type fakeLogin struct{}

var errAsked = errors.New("asked to log in")

func (fakeLogin) Principal() string { return "svc/host@R" }
func (fakeLogin) Mechanism([]ipc.Protection, ipc.ServerPrincipal) ipc.Mechanism {
	return fakeLogin{}
}
func (fakeLogin) Accepts(o ipc.Offer) bool { return o.Method == ipc.MethodKerberos }
func (fakeLogin) Begin(context.Context, ipc.Offer) (ipc.Session, error) {
	return nil, errAsked
}

type offerKerberos struct{}

func (offerKerberos) Begin() (ipc.Offer, ipcserver.Session) {
	return ipc.Offer{Method: ipc.MethodKerberos, Mechanism: "GSSAPI", Protocol: "nn", ServerID: "localhost"}, nil
}

func TestLoginWhereThereIsNoToken(t *testing.T) {
	addr := serve(t, ipcserver.Config{Password: passwords, Mechanisms: []ipcserver.Mechanism{offerKerberos{}}})
	with, err := identity.New(kerberos(), identity.WithLogin(fakeLogin{}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := call(t, addr, with.NameNode("", []string{addr})); !errors.Is(err, errAsked) {
		t.Errorf("the login was not used: %v", err)
	}
	if with.User() != "svc" {
		t.Errorf("user %s", with.User())
	}
	with.SetTokens(credentials(tok("a", addr)))
	if who, err := call(t, addr, with.NameNode("", []string{addr})); err != nil || who != "token a" {
		t.Errorf("a token comes first: %q %v", who, err)
	}
	without, err := identity.New(kerberos())
	if err != nil {
		t.Fatal(err)
	}
	_, err = call(t, addr, without.NameNode("", []string{addr}))
	if !errors.Is(err, ipc.ErrLogin) || !strings.Contains(err.Error(), "run kinit") || ipc.Classify(err) != ipc.Final {
		t.Errorf("without login and token: %v", err)
	}
	program, err := identity.New(kerberos(), identity.WithTokenFile(""))
	if err != nil {
		t.Fatal(err)
	}
	_, err = call(t, addr, program.NameNode("", []string{addr}))
	if !errors.Is(err, ipc.ErrLogin) || !strings.Contains(err.Error(), token.EnvFile) || strings.Contains(err.Error(), "kinit") {
		t.Errorf("a process that cannot log in: %v", err)
	}
}

// A server without authentication is refused by a client that is set for a secured cluster, unless it may fall back.
func TestServerWithoutAuthentication(t *testing.T) {
	addr := serve(t, ipcserver.Config{Simple: true})
	for _, tc := range []struct {
		conf *conf.Configuration
		want string
	}{
		{kerberos(), ""},
		{kerberos(identity.KeyFallback, "true"), "alice"},
		{conf.FromMap(nil), "alice"},
	} {
		id, err := identity.New(tc.conf, identity.WithUser("alice"))
		if err != nil {
			t.Fatal(err)
		}
		who, err := call(t, addr, id.NameNode("", []string{addr}))
		if who != tc.want || (err == nil) != (tc.want != "") {
			t.Errorf("secure %v: %q %v", id.Secure(), who, err)
		}
	}
	id, err := identity.New(conf.FromMap(nil), identity.WithUser("alice"), identity.WithProxy("bob"))
	if err != nil {
		t.Fatal(err)
	}
	if who, err := call(t, addr, id.ResourceManager()); err != nil || who != "bob" {
		t.Errorf("proxy user: %q %v", who, err)
	}
}

func TestBadKeys(t *testing.T) {
	for _, kv := range [][2]string{{conf.KeyRPCProtection, "auth-conf"}, {identity.KeyFallback, "maybe"}, {conf.KeyAuthentication, "ldap"}} {
		if _, err := identity.New(conf.FromMap(map[string]string{kv[0]: kv[1]})); err == nil || !strings.Contains(err.Error(), kv[0]) {
			t.Errorf("%s=%s: %v", kv[0], kv[1], err)
		}
	}
}
