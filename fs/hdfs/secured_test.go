package hdfs_test

import (
	"bytes"
	"errors"
	iofs "io/fs"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/hdfs"
	"github.com/thalweg/thalweg/test/rig"
	"github.com/thalweg/thalweg/test/rig/rigtest"
	"github.com/thalweg/thalweg/yarnrpc/ipc"
	"github.com/thalweg/thalweg/yarnrpc/token"
)

// runVariant runs the daemons of HDFS until the end of the test. A dir that the last variant has left keeps its realm and data.
func runVariant(t *testing.T, dir, variant string, daemons ...string) *rig.Cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("starts real daemons")
	}
	c, err := rig.Start(t.Context(), rig.Options{
		Dir: dir, Variant: variant, Daemons: append(daemons, rig.NameNode, rig.DataNode),
		HDFSSite: map[string]string{"dfs.namenode.replication.min": "1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, c) })
	return c
}

// as is the configuration of a user who has logged in by keytab.
func as(t *testing.T, c *rig.Cluster, user string) hdfs.Config {
	t.Helper()
	cfg := rigtest.HDFSOf(t, c, user)
	cfg.BlockSize, cfg.ConnectTimeout = 1<<20, 5*time.Second
	return cfg
}

// TestProtectionOfASecuredCluster writes, reads and lets the stock client read at each kind of protection that clusters have.
func TestProtectionOfASecuredCluster(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "cluster")
	for _, variant := range []string{
		"rpc=authentication,data=integrity", "rpc=integrity,data=privacy", "rpc=privacy,data=privacy,aes", "rpc=privacy,data=authentication",
		"rpc=authentication+privacy,data=authentication+integrity+privacy", "rpc=privacy+integrity+authentication,data=privacy+integrity,aes",
		"rpc=authentication,data=authentication,encrypt", "rpc=privacy,data=authentication,encrypt,aes",
	} {
		t.Run(variant, func(t *testing.T) {
			c := runVariant(t, dir, "kerberos,"+variant)
			cfg := as(t, c, rig.Alice)
			f := open(t, cfg)
			sizesIn(t, f, "/user/alice/sizes")
			out, err := c.CLIAs(t.Context(), rig.Alice, "hdfs", "dfs", "-cat", "/user/alice/sizes/3145805")
			if err != nil || out != string(pattern(3<<20+77)) {
				t.Errorf("the stock client reads %d bytes, %v", len(out), err)
			}
			for _, level := range []ipc.Protection{ipc.ProtectAuthentication, ipc.ProtectIntegrity, ipc.ProtectPrivacy} {
				if !strings.Contains(c.Variant.Data, string(level)) || c.Variant.Encrypt {
					continue
				}
				cfg := cfg
				cfg.DataProtection = []ipc.Protection{level}
				holds(t, open(t, cfg), "/user/alice/sizes/3145805", pattern(3<<20+77))
			}
		})
	}
}

// TestPipelinesOfASecuredCluster loses a DataNode while a block is written to two, at privacy.
func TestPipelinesOfASecuredCluster(t *testing.T) {
	c := runVariant(t, filepath.Join(t.TempDir(), "cluster"), "kerberos,privacy,aes", rig.DataNode2)
	cfg := as(t, c, rig.Alice)
	cfg.Replication, cfg.BlockSize = 2, 128<<20
	lost(t, c, open(t, cfg), "/user/alice/lost")

	// What only one side expects is told at once, not at the end of the budget.
	cfg.RetryTimeout = time.Hour
	cfg.DataProtection = []ipc.Protection{ipc.ProtectIntegrity}
	_, err := fs.ReadFile(t.Context(), open(t, cfg), "/user/alice/lost", 64<<20)
	oneLine(t, err, err, "/user/alice/lost", "offers privacy", "accepts integrity", "dfs.data.transfer.protection")
	cfg.DataProtection = nil
	_, err = fs.ReadFile(t.Context(), open(t, cfg), "/user/alice/lost", 64<<20)
	oneLine(t, err, err, "/user/alice/lost", "dfs.data.transfer.protection")
}

// TestDelegationTokens is the life of a token: fetched, used by us and by the stock client, renewed, cancelled.
func TestDelegationTokens(t *testing.T) {
	c := runVariant(t, filepath.Join(t.TempDir(), "cluster"), "kerberos,privacy,aes")
	ctx := t.Context()
	me, done, err := rigtest.Open(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	if err := fs.WriteFile(ctx, me, "/user/"+c.User()+"/mine", []byte("x"), true); err != nil {
		t.Error(err)
	}
	if err := done(); err != nil {
		t.Error(err)
	}
	alice, bob := open(t, as(t, c, rig.Alice)), open(t, as(t, c, rig.Bob))
	tok, err := alice.DelegationToken(ctx, rig.Bob)
	if err != nil {
		t.Fatal(err)
	}
	about, err := token.DecodeDelegationIdentifier(tok.Identifier)
	if err != nil || about.Owner != c.Principal(rig.Alice) || about.Renewer != rig.Bob || tok.Service != "127.0.0.1"+strings.TrimPrefix(c.NameNode, "localhost") {
		t.Errorf("%v: %+v, %v", tok, about, err)
	}
	until, err := bob.RenewToken(ctx, tok)
	if err != nil || until.Before(time.Now()) || until.After(time.UnixMilli(about.MaxDate)) {
		t.Errorf("renewed until %v, %v", until, err)
	}
	_, err = alice.RenewToken(ctx, tok)
	oneLine(t, err, iofs.ErrPermission, "renew", "alice")

	creds := &token.Credentials{}
	creds.Put(tok.Service, tok)
	cfg, id := rigtest.HDFSByToken(t, c, creds)
	f := open(t, cfg)
	data := pattern(3<<20 + 5)
	if err := fs.WriteFile(ctx, f, "/user/alice/by-token", data, true); err != nil {
		t.Fatal(err)
	}
	holds(t, f, "/user/alice/by-token", data)
	_, err = f.DelegationToken(ctx, rig.Bob)
	oneLine(t, err, err, "delegation token", "kerberos")

	file := filepath.Join(t.TempDir(), "tokens")
	creds = &token.Credentials{}
	if err := hdfs.ObtainTokens(ctx, as(t, c, rig.Alice), []string{c.DefaultFS}, rig.Bob, creds); err != nil {
		t.Fatal(err)
	}
	if err := token.WriteFile(file, creds, token.Writable); err != nil {
		t.Fatal(err)
	}
	cmd := c.Command(ctx, "hdfs", "dfs", "-cat", "/user/alice/by-token")
	cmd.Env = append(cmd.Env, "HADOOP_TOKEN_FILE_LOCATION="+file, "KRB5CCNAME=FILE:"+filepath.Join(t.TempDir(), "none"))
	out, err := cmd.Output()
	if err != nil || !bytes.Equal(out, data) {
		t.Errorf("the stock client with our token: %d bytes, %v", len(out), err)
	}

	if err := alice.CancelToken(ctx, tok); err != nil {
		t.Fatal(err)
	}
	f.Reset()
	_, err = f.Stat(ctx, "/user/alice/by-token")
	oneLine(t, err, iofs.ErrPermission, "by-token", "can't be found", "security.kerberos.login.keytab")
	id.SetTokens(creds) // somebody has brought another one
	if _, err := f.Stat(ctx, "/user/alice/by-token"); err != nil {
		t.Error(err)
	}
	other, _ := creds.ByKind(token.KindHDFSDelegation)
	if err := bob.CancelToken(ctx, other); err != nil { // its renewer may
		t.Error(err)
	}
	if _, err := alice.RenewToken(ctx, tok); err == nil || errors.Is(err, fs.ErrUnavailable) {
		t.Errorf("renewed a cancelled token: %v", err)
	}
}
