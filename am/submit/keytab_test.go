package submit_test

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/thalweg/thalweg/am/submit"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/yarnrpc/conf"
	"github.com/thalweg/thalweg/yarnrpc/token"
)

// The keytab goes into the application's folder, for its owner alone; it is no part of what the ResourceManager stores.
func TestKeytabIsSentPrivately(t *testing.T) {
	r := newRig(t)
	dir := t.TempDir()
	for name, text := range map[string]string{"alice.keytab": "the key of alice", "krb5.conf": "[libdefaults]"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r.req.Hadoop = conf.FromMap(map[string]string{"fs.defaultFS": "mem://nn", conf.KeyAuthentication: "kerberos"})
	r.req.Config = config.Configuration{"security.kerberos.login.keytab": filepath.Join(dir, "alice.keytab"), "security.kerberos.login.principal": "alice"}
	r.req.KerberosConf = filepath.Join(dir, "krb5.conf")
	var asked []string
	r.req.Tokens = func(_ context.Context, uris ...string) (*token.Credentials, error) {
		asked = uris
		c := &token.Credentials{}
		c.Put("nn", token.Token{Kind: token.KindHDFSDelegation, Service: "nn:1", Identifier: []byte("id"), Password: []byte("pw")})
		return c, nil
	}
	res, err := submit.Submit(t.Context(), r.req)
	if err != nil {
		t.Fatal(err)
	}
	if len(asked) == 0 || asked[0] != res.Staging {
		t.Errorf("tokens were asked for %v", asked)
	}
	for name, want := range map[string]string{"krb5.keytab": "the key of alice", "krb5.conf": "[libdefaults]"} {
		p := strings.TrimPrefix(res.Staging, "mem://nn") + "/" + name
		info, err := r.fs.Stat(t.Context(), p)
		if err != nil || info.Mode&0o77 != 0 {
			t.Errorf("%s: %+v %v", name, info, err)
			continue
		}
		f, err := r.fs.Open(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(f)
		if err != nil || string(b) != want {
			t.Errorf("%s: %q %v", name, b, err)
		}
		_ = f.Close()
	}
	r.req.Config["yarn.security.kerberos.localized-keytab-path"] = "/etc/x.keytab"
	if _, err := submit.Submit(t.Context(), r.req); err == nil || !strings.Contains(err.Error(), "yarn.security.kerberos.ship-local-keytab=false") {
		t.Errorf("a path as the name of a file: %v", err)
	}
}
