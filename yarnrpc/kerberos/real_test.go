package kerberos_test

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/thalweg/thalweg/fs/hdfs"
	"github.com/thalweg/thalweg/yarnrpc/client"
	"github.com/thalweg/thalweg/yarnrpc/conf"
	"github.com/thalweg/thalweg/yarnrpc/identity"
	"github.com/thalweg/thalweg/yarnrpc/kerberos"
	"github.com/thalweg/thalweg/yarnrpc/token"
)

// On the secured cluster that HADOOP_CONF_DIR points to, at whatever protection it has: alice logs in by keytab to the NameNode
// and the ResourceManager, and what she gets tokens for works with the tokens alone, until they are cancelled.
func TestSecuredCluster(t *testing.T) {
	if os.Getenv("HADOOP_CONF_DIR") == "" {
		t.Skip("HADOOP_CONF_DIR is not set: run `go run ./test/rig/cmd/rig up --security kerberos` and evaluate what `rig env` prints")
	}
	hadoop, err := conf.Load()
	if err != nil {
		t.Fatal(err)
	}
	if secure, err := hadoop.Kerberos(); err != nil || !secure {
		t.Skip("the cluster is not secured")
	}
	krb, err := kerberos.LoadConfig()
	if err != nil {
		t.Fatal(err)
	}
	keytab := filepath.Join(os.Getenv("THALWEG_CLUSTER_DIR"), "keytabs", "alice.keytab")
	login, err := kerberos.FromKeytab(t.Context(), krb, keytab, "alice")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = login.Close() }()
	byLogin, err := identity.New(hadoop, identity.WithLogin(login))
	if err != nil {
		t.Fatal(err)
	}
	creds := use(t, hadoop, byLogin, "login")
	byToken, err := identity.New(hadoop, identity.WithTokens(creds))
	if err != nil {
		t.Fatal(err)
	}
	use(t, hadoop, byToken, "tokens")
}

// use writes and reads a file, asks the ResourceManager for an application, and for tokens when the identity is a login.
func use(t *testing.T, hadoop *conf.Configuration, id *identity.Identity, how string) *token.Credentials {
	t.Helper()
	cfg, err := hdfs.FromConf(hadoop)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Login = id.NameNode
	f, err := hdfs.New("", cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	const path = "/user/alice/kerberos-test"
	want := bytes.Repeat([]byte("0123456789abcdef"), 20_000)
	w, err := f.Create(t.Context(), path, true)
	if err != nil {
		t.Fatalf("%s: %v", how, err)
	}
	if _, err := w.Write(want); err != nil {
		t.Fatalf("%s: %v", how, err)
	}
	if err := w.Close(); err != nil {
		t.Fatalf("%s: %v", how, err)
	}
	r, err := f.Open(t.Context(), path)
	if err != nil {
		t.Fatalf("%s: %v", how, err)
	}
	got, err := io.ReadAll(r)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s: read %d bytes, want %d: %v", how, len(got), len(want), err)
	}
	_ = r.Close()
	rm, err := client.New(hadoop, client.WithIdentity(id))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rm.Close() }()
	if _, _, err := rm.NewApplication(t.Context()); err != nil {
		t.Errorf("%s: %v", how, err)
	}
	creds := &token.Credentials{}
	if !id.HasLogin() {
		return creds
	}
	for name, obtain := range map[string]func() (token.Token, error){
		"NameNode":        func() (token.Token, error) { return f.DelegationToken(t.Context(), "alice") },
		"ResourceManager": func() (token.Token, error) { return rm.DelegationToken(t.Context(), "alice") },
	} {
		tok, err := obtain()
		if err != nil || tok.IsZero() {
			t.Fatalf("token of the %s: %v %v", name, tok, err)
		}
		creds.Put(name, tok)
	}
	hdfsToken, _ := creds.Token("NameNode")
	if _, err := f.RenewToken(t.Context(), hdfsToken); err != nil {
		t.Error(err)
	}
	rmToken, _ := creds.Token("ResourceManager")
	if _, err := rm.RenewDelegationToken(t.Context(), rmToken); err != nil {
		t.Error(err)
	}
	return creds
}
