package kerberos

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	mit "github.com/thalweg/thalweg/test/kdc"
	"github.com/thalweg/thalweg/yarnrpc/ipc"
	"github.com/thalweg/thalweg/yarnrpc/ipc/ipcserver"
	commonpb "github.com/thalweg/thalweg/yarnrpc/proto/common"
)

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

func loaded(t *testing.T, text string) *Config {
	t.Helper()
	c, err := LoadConfigFiles(writeFile(t, "krb5.conf", text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// realm is a KDC with alice and a service, and the text of a configuration for it with more lines in [libdefaults].
type realm struct {
	*mit.KDC
	alice, service string // keytabs
}

func newRealm(t *testing.T, o mit.Options) realm {
	t.Helper()
	k := mit.ForTest(t, o)
	return realm{k, k.User(t, "alice"), k.User(t, "nn/localhost")}
}

func (r realm) conf(lib, kdcs string) string {
	if kdcs == "" {
		kdcs = "kdc = " + r.Addr()
	}
	return fmt.Sprintf("[libdefaults]\n default_realm = %s\n dns_lookup_kdc = false\n%s\n[realms]\n %s = {\n  %s\n }\n", r.Realm, lib, r.Realm, kdcs)
}

func (r realm) login(t *testing.T, lib, kdcs string) (*Login, error) {
	t.Helper()
	l, err := FromKeytab(t.Context(), loaded(t, r.conf(lib, kdcs)), r.alice, "alice")
	if err == nil {
		t.Cleanup(func() { _ = l.Close() })
	}
	return l, err
}

// serve runs a server that echoes, and returns its address.
func (r realm) serve(t *testing.T, a *acceptor) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if a.keys == nil {
		a.keys = mustKeys(t, r.service)
	}
	if a.service == "" {
		a.service, a.host = "nn", "localhost"
	}
	s := ipcserver.New(ipcserver.Config{Mechanisms: []ipcserver.Mechanism{a}, Handler: func(_ context.Context, call *ipcserver.Call) (proto.Message, error) {
		m := &commonpb.UserInformationProto{}
		if err := call.Decode(m); err != nil {
			return nil, err
		}
		m.RealUser = proto.String(call.Login + " as " + call.User)
		return m, nil
	}})
	s.Serve(l)
	t.Cleanup(s.Close)
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return "localhost:" + port
}

func ask3(t *testing.T, addr string, text string, opts ...ipc.Option) (string, error) {
	t.Helper()
	c, err := ipc.NewClient([]string{addr}, ipc.Protocol{Name: "test.Protocol", Version: 1}, opts...)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	out := &commonpb.UserInformationProto{}
	err = c.Call(t.Context(), "echo", &commonpb.UserInformationProto{EffectiveUser: proto.String(text)}, out)
	if err == nil && out.GetEffectiveUser() != text {
		t.Fatalf("%d bytes came back as %d", len(text), len(out.GetEffectiveUser()))
	}
	return out.GetRealUser(), err
}

var nameNode = ServerPrincipal{Key: "dfs.namenode.kerberos.principal", Name: "nn/_HOST@EXAMPLE.TEST"}

// Every way of configuring a realm that MIT krb5 takes works, and a connection can be opened with it.
func TestConfigurationsThatWork(t *testing.T) {
	const sha2 = "aes256-cts-hmac-sha384-192 aes128-cts-hmac-sha256-128"
	old, new2 := newRealm(t, mit.Options{}), newRealm(t, mit.Options{Enctypes: sha2})
	dead := "kdc = localhost:1"
	for _, tc := range []struct {
		name      string
		r         realm
		lib, kdcs string
	}{
		{"plain", old, "", ""},
		{"SHA-2 realm without lists", new2, "", ""},
		{"SHA-2 realm, permitted_enctypes alone", new2, "permitted_enctypes = " + sha2, ""},
		{"SHA-2 realm, default_tgs_enctypes alone", new2, "default_tgs_enctypes = " + sha2, ""},
		{"family name", old, "permitted_enctypes = aes", ""},
		{"family name and a removal", old, "permitted_enctypes = DEFAULT -aes256-cts-hmac-sha1-96", ""},
		{"lists that also name unknown types", old, "default_tkt_enctypes = camellia256-cts newest-type aes256-cts", ""},
		{"TCP first", old, "udp_preference_limit = 1", ""},
		{"TCP alone", old, "", "kdc = tcp/" + old.Addr()},
		{"UDP alone", old, "udp_preference_limit = 1", "kdc = udp/" + old.Addr()},
		{"first KDC dead", old, "udp_preference_limit = 1", dead + "\n  " + "kdc = " + old.Addr()},
		{"values of MIT krb5", old, "dns_canonicalize_hostname = fallback\n forwardable = yes\n ticket_lifetime = 1d 2h\n renew_lifetime = 7d # a week\n noaddresses = on", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l, err := tc.r.login(t, tc.lib, tc.kdcs)
			if err != nil {
				t.Fatal(err)
			}
			addr := tc.r.serve(t, &acceptor{offer: []ipc.Protection{ipc.ProtectPrivacy}})
			who, err := ask3(t, addr, "x", ipc.WithMechanisms(l.Mechanism([]ipc.Protection{ipc.ProtectPrivacy}, nameNode)))
			if err != nil || who != "alice@EXAMPLE.TEST as alice@EXAMPLE.TEST" {
				t.Errorf("%q %v", who, err)
			}
		})
	}
}

// All protections work in both directions, with the server's key or ours, for messages longer than the server takes at once.
func TestProtections(t *testing.T) {
	r := newRealm(t, mit.Options{})
	l, err := r.login(t, "", "")
	if err != nil {
		t.Fatal(err)
	}
	all := []ipc.Protection{ipc.ProtectAuthentication, ipc.ProtectIntegrity, ipc.ProtectPrivacy}
	for _, offer := range [][]ipc.Protection{all[:1], all[1:2], all[2:], all} {
		for _, accept := range [][]ipc.Protection{all[:1], all[1:2], all[2:], {ipc.ProtectPrivacy, ipc.ProtectAuthentication}} {
			for _, own := range []bool{false, true} {
				addr := r.serve(t, &acceptor{offer: offer, ownKey: own})
				_, err := ask3(t, addr, strings.Repeat("x", 200_000), ipc.WithMechanisms(l.Mechanism(accept, nameNode)))
				common := false
				for _, p := range accept {
					for _, q := range offer {
						common = common || p == q
					}
				}
				if common && err != nil {
					t.Errorf("server %v, client %v: %v", offer, accept, err)
				}
				if !common && (!errors.Is(err, ipc.ErrNoMechanism) || !strings.Contains(err.Error(), "hadoop.rpc.protection")) {
					t.Errorf("server %v, client %v: %v", offer, accept, err)
				}
			}
		}
	}
	proxied, err := ask3(t, r.serve(t, &acceptor{offer: all}), "x", ipc.WithMechanisms(l.Mechanism(nil, nameNode)), ipc.WithUser(ipc.User{Effective: "bob", Real: "alice"}))
	if err != nil || proxied != "alice@EXAMPLE.TEST as bob" {
		t.Errorf("proxy user: %q %v", proxied, err)
	}
}

// A server that is another than the one that the configuration names, or that does not know its key, is not believed.
func TestServersThatAreRefused(t *testing.T) {
	r := newRealm(t, mit.Options{})
	l, err := r.login(t, "", "")
	if err != nil {
		t.Fatal(err)
	}
	dn := r.User(t, "dn/localhost")
	all := []ipc.Protection{ipc.ProtectAuthentication}
	for _, tc := range []struct {
		name string
		a    acceptor
		want ServerPrincipal
		err  string
	}{
		{"as configured", acceptor{}, nameNode, ""},
		{"literal host", acceptor{}, ServerPrincipal{Name: "nn/localhost@EXAMPLE.TEST"}, ""},
		{"pattern", acceptor{}, ServerPrincipal{Name: "nn/other@OTHER", Pattern: "*/*@EXAMPLE.*"}, ""},
		{"another service", acceptor{service: "dn", host: "localhost", keys: mustKeys(t, dn)}, nameNode, "is dn/localhost, not nn/localhost"},
		{"another host", acceptor{}, ServerPrincipal{Key: "k", Name: "nn/other@EXAMPLE.TEST"}, "not nn/other, as k = nn/other@EXAMPLE.TEST wants it"},
		{"pattern that does not fit", acceptor{}, ServerPrincipal{Key: "k", Pattern: "dn/*"}, "k.pattern = dn/*"},
		{"nothing configured", acceptor{}, ServerPrincipal{Key: "k"}, "set k"},
		{"without its key", acceptor{impostor: true}, nameNode, "does not know the key"},
		{"unknown to the KDC", acceptor{service: "nn", host: "elsewhere"}, ServerPrincipal{Name: "nn/elsewhere@EXAMPLE.TEST"}, "the KDC knows no service nn/elsewhere@EXAMPLE.TEST"},
	} {
		tc.a.offer = all
		_, err := ask3(t, r.serve(t, &tc.a), "x", ipc.WithMechanisms(l.Mechanism(nil, tc.want)))
		if tc.err == "" && err != nil || tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err) || ipc.Classify(err) != ipc.Final) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

// What is wrong is said in one line, with what to do; waiting helps in one case only.
func TestLoginsThatFail(t *testing.T) {
	r := newRealm(t, mit.Options{})
	cfg := loaded(t, r.conf("", ""))
	old := r.User(t, "carol")
	if err := r.DeletePrincipal(t.Context(), "carol"); err != nil {
		t.Fatal(err)
	}
	stale := filepath.Join(t.TempDir(), "stale.keytab")
	if b, err := os.ReadFile(old); err != nil || os.WriteFile(stale, b, 0o600) != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, keytab, principal string
		cfg                     *Config
		err                     []string
		final                   bool
	}{
		{"keytab without the principal", r.alice, "bob", cfg, []string{"holds no key of bob@EXAMPLE.TEST", "holds alice@EXAMPLE.TEST", KeyPrincipal}, true},
		{"wrong realm", r.alice, "alice@OTHER.TEST", cfg, []string{"holds no key of alice@OTHER.TEST"}, true},
		{"unknown to the KDC", stale, "carol", cfg, []string{"does not know carol@EXAMPLE.TEST", KeyPrincipal}, true},
		{"no such keytab", "/nowhere.keytab", "alice", cfg, []string{"/nowhere.keytab", KeyKeytab}, true},
		{"damaged keytab", writeFile(t, "bad.keytab", "\x05\x02\x00\x00\x00\x09alice"), "alice", cfg, []string{"damaged", KeyKeytab}, true},
		{"no realm", r.alice, "alice", loaded(t, "[libdefaults]\n"), []string{"no default_realm"}, true},
		{"no KDC known", r.alice, "alice", loaded(t, "[libdefaults]\ndefault_realm = EXAMPLE.TEST\ndns_lookup_kdc = no\n"), []string{"no KDC of realm EXAMPLE.TEST is known", "[realms]"}, false},
		{"KDC down", r.alice, "alice", loaded(t, r.conf("", "kdc = localhost:1")), []string{"no KDC of realm EXAMPLE.TEST answers", "localhost:1", "refused"}, false},
	} {
		l, err := FromKeytab(t.Context(), tc.cfg, tc.keytab, tc.principal)
		if err == nil {
			_ = l.Close()
			t.Errorf("%s: logged in", tc.name)
			continue
		}
		for _, want := range tc.err {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q is not in %v", tc.name, want, err)
			}
		}
		if errors.Is(err, ipc.ErrLogin) != tc.final || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

// A keytab goes on for ever: its ticket is replaced at 0.8 of its life, and new connections get tickets that last.
func TestKeytabOutlivesItsTickets(t *testing.T) {
	r := newRealm(t, mit.Options{TicketLife: 4 * time.Second, RenewLife: 4 * time.Second})
	l, err := r.login(t, "clockskew = 1", "")
	if err != nil {
		t.Fatal(err)
	}
	addr := r.serve(t, &acceptor{offer: []ipc.Protection{ipc.ProtectIntegrity}})
	first := l.Expires()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		if _, err := ask3(t, addr, "x", ipc.WithMechanisms(l.Mechanism([]ipc.Protection{ipc.ProtectIntegrity}, nameNode))); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(first.Add(4 * time.Second)) {
			break
		}
	}
	if !l.Expires().After(first.Add(3 * time.Second)) {
		t.Errorf("ticket until %s, the first until %s", l.Expires(), first)
	}
}

func TestTicketCache(t *testing.T) {
	r := newRealm(t, mit.Options{TicketLife: time.Hour})
	cfg := loaded(t, r.conf("", ""))
	dir := t.TempDir()
	cache := filepath.Join(dir, "tkt")
	if _, err := FromCache(cfg, cache); !errors.Is(err, ipc.ErrLogin) || !strings.Contains(err.Error(), "run kinit") {
		t.Errorf("no cache: %v", err)
	}
	for _, name := range []string{"KCM:1000", "KEYRING:persistent:0"} {
		if _, err := FromCache(cfg, name); !errors.Is(err, ipc.ErrLogin) || !strings.Contains(err.Error(), "KRB5CCNAME=FILE:") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := os.WriteFile(cache, []byte("\x05\x04\x00"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := FromCache(cfg, cache); !errors.Is(err, ipc.ErrLogin) {
		t.Errorf("damaged cache: %v", err)
	}
	if err := r.Kinit(t.Context(), "alice", r.alice, cache, "-l", "4s", "-r", "1h"); err != nil {
		t.Fatal(err)
	}
	t.Setenv(EnvCache, "DIR:"+dir)
	byEnv, err := FromCache(cfg, "")
	if err != nil || byEnv.Principal() != "alice@EXAMPLE.TEST" {
		t.Fatal(byEnv, err)
	}
	defer func() { _ = byEnv.Close() }()
	l, err := FromCache(cfg, "FILE:"+cache)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if until, forever := l.Renewable(); forever || time.Until(until) < 50*time.Minute {
		t.Errorf("renewable until %s, %v", until, forever)
	}
	first := l.Expires()
	addr := r.serve(t, &acceptor{offer: []ipc.Protection{ipc.ProtectAuthentication}})
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for range tick.C { // it is renewed
		if _, err := ask3(t, addr, "x", ipc.WithMechanisms(l.Mechanism(nil, nameNode))); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(first.Add(time.Second)) {
			break
		}
	}
	if !l.Expires().After(first) {
		t.Error("the ticket was not renewed")
	}

	if err := r.Kinit(t.Context(), "alice", r.alice, cache, "-l", "1s"); err != nil {
		t.Fatal(err)
	}
	<-time.After(1100 * time.Millisecond)
	if _, err := FromCache(cfg, cache); !errors.Is(err, ipc.ErrLogin) || !strings.Contains(err.Error(), "ended at") || !strings.Contains(err.Error(), "run kinit") {
		t.Errorf("ended ticket: %v", err)
	}
}
