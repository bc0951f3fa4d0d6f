package login_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/thalweg/thalweg/am/login"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/test/kdc"
	"github.com/thalweg/thalweg/yarnrpc/conf"
	"github.com/thalweg/thalweg/yarnrpc/kerberos"
	"github.com/thalweg/thalweg/yarnrpc/token"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The first way to log in that is set counts: keytab, given tokens, kinit's tickets; what is missing is named.
func TestClient(t *testing.T) {
	k := kdc.ForTest(t, kdc.Options{})
	keytab := k.User(t, "alice")
	dir := t.TempDir()
	cache := filepath.Join(dir, "cache")
	if err := k.Kinit(t.Context(), "alice", keytab, cache); err != nil {
		t.Fatal(err)
	}
	tokens := filepath.Join(dir, "tokens")
	creds := &token.Credentials{}
	creds.Put("nn", token.Token{Kind: token.KindHDFSDelegation, Service: "nn:1", Identifier: []byte("id"), Password: []byte("pw")})
	if err := token.WriteFile(tokens, creds, token.Writable); err != nil {
		t.Fatal(err)
	}
	secure := conf.FromMap(map[string]string{conf.KeyAuthentication: "kerberos"})
	const byKeytab, byTokens, byCache = "keytab", "tokens", "cache"
	for _, tc := range []struct {
		name   string
		hadoop *conf.Configuration
		conf   config.Configuration
		env    map[string]string
		cache  string
		want   string // one of the ways, "" for simple authentication, or what the error says
	}{
		{name: "simple cluster", hadoop: conf.FromMap(nil)},
		{name: "keytab first", hadoop: secure, conf: config.Configuration{"security.kerberos.login.keytab": keytab, "security.kerberos.login.principal": "alice"},
			env: map[string]string{token.EnvFile: tokens}, cache: cache, want: byKeytab},
		{name: "tokens before tickets", hadoop: secure, env: map[string]string{token.EnvFile: tokens}, cache: cache, want: byTokens},
		{name: "tickets", hadoop: secure, cache: cache, want: byCache},
		{name: "no tickets", hadoop: secure, cache: filepath.Join(dir, "none"), want: "run kinit"},
		{name: "no tickets wanted", hadoop: secure, conf: config.Configuration{"security.kerberos.login.use-ticket-cache": "false"}, cache: cache, want: "security.kerberos.login.keytab"},
		{name: "keytab without principal", hadoop: secure, conf: config.Configuration{"security.kerberos.login.keytab": keytab}, want: "set both"},
		{name: "krb5.conf that is not there", hadoop: secure, conf: config.Configuration{"security.kerberos.krb5-conf.path": "/nowhere"}, want: "/nowhere"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Setenv(kerberos.EnvCache, tc.cache)
			env := map[string]string{kerberos.EnvConfig: k.Config()}
			for key, v := range tc.env {
				env[key] = v
			}
			w, err := login.Client(t.Context(), tc.conf, tc.hadoop, func(key string) string { return env[key] }, zerolog.Nop())
			if err != nil {
				if tc.want == "" || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
					t.Errorf("%v, want %q", err, tc.want)
				}
				return
			}
			defer func() { _ = w.Close() }()
			got := ""
			switch {
			case w.Forever():
				got = byKeytab
			case w.HasLogin():
				got = byCache
			case w.Secure():
				got = byTokens
			}
			if got != tc.want {
				t.Errorf("logged in by %q, want %q", got, tc.want)
			}
			if (got == byKeytab || got == byCache) && w.User() != "alice" {
				t.Errorf("user %s", w.User())
			}
		})
	}
}

// The application master has the keytab in its folder, and does without it where there is none.
func TestMaster(t *testing.T) {
	k := kdc.ForTest(t, kdc.Options{})
	keytab := k.User(t, "alice")
	t.Setenv(kerberos.EnvCache, "/nowhere")
	secure := conf.FromMap(map[string]string{conf.KeyAuthentication: "kerberos"})
	own := config.Configuration{"security.kerberos.login.keytab": "/client/only.keytab", "security.kerberos.login.principal": "alice",
		"yarn.security.kerberos.localized-keytab-path": filepath.Base(keytab)}
	w, err := login.Master(t.Context(), own, secure, "alice", k.Dir, &token.Credentials{}, zerolog.Nop()) // krb5.conf is in that folder, too
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Close() }()
	if !w.Forever() {
		t.Error("not logged in by the keytab")
	}
	tokens, err := login.Master(t.Context(), nil, secure, "alice", k.Dir, &token.Credentials{}, zerolog.Nop())
	if err != nil || tokens.HasLogin() {
		t.Errorf("without a keytab: %v", err)
	}
}

func TestRenewer(t *testing.T) {
	for _, tc := range []struct{ principal, want string }{{"rm/_HOST@R", "rm/master@R"}, {"rm/fixed@R", "rm/fixed@R"}, {"", ""}} {
		got, err := login.Renewer(conf.FromMap(map[string]string{"yarn.resourcemanager.principal": tc.principal, "yarn.resourcemanager.address": "Master:8032"}))
		if got != tc.want || (err == nil) != (tc.want != "") {
			t.Errorf("%q: %q %v", tc.principal, got, err)
		}
	}
}
