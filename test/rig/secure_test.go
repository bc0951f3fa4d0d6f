package rig_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/thalweg/thalweg/test/rig"
)

// TestSecuredCluster shows with stock clients that nobody gets in without a ticket, and that everybody gets what is theirs with one.
func TestSecuredCluster(t *testing.T) {
	c := start(t, rig.Options{Variant: "kerberos,rpc=privacy+authentication,data=privacy+integrity"})
	ctx := t.Context()
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, []byte(strings.Repeat("secured\n", 50_000)), 0o600); err != nil {
		t.Fatal(err)
	}
	ok := func(as, tool string, args ...string) string {
		t.Helper()
		out, err := c.CLIAs(ctx, as, tool, args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	refused := func(why, as, tool string, args ...string) {
		t.Helper()
		if out, err := c.CLIAs(ctx, as, tool, args...); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s %v as %q: got %q, %v, want a refusal with %q", tool, args, as, out, err, why)
		}
	}
	ok(rig.Alice, "hdfs", "dfs", "-put", file, "/user/alice/f")
	ok(rig.Alice, "hdfs", "dfs", "-chmod", "600", "/user/alice/f")
	if out := ok(rig.Alice, "hdfs", "dfs", "-cat", "/user/alice/f"); len(out) != 400_000 {
		t.Errorf("alice reads %d bytes of her file", len(out))
	}
	refused("Client cannot authenticate", "", "hdfs", "dfs", "-cat", "/user/alice/f")
	refused("Permission denied", rig.Bob, "hdfs", "dfs", "-cat", "/user/alice/f")
	if out := must[string](t)(c.YarnCLI(ctx, "node", "-list")); strings.Count(out, " RUNNING") != 2 {
		t.Errorf("yarn node -list: %s", out)
	}
	must[string](t)(c.YarnCLI(ctx, "rmadmin", "-refreshQueues")) // by YARN's administrator

	application(t, c)

	// A KDC that is away and comes back.
	if err := c.Restart(ctx, rig.KDC); err != nil {
		t.Fatal(err)
	}
	if err := c.StopDaemon(ctx, rig.KDC); err != nil {
		t.Fatal(err)
	}
	refused("kinit", rig.Alice, "hdfs", "dfs", "-ls", "/")
	if err := c.StartDaemon(ctx, rig.KDC); err != nil {
		t.Fatal(err)
	}
	kafkaIdentities(t, c)
}

// application runs a stock one, with the tokens that it gets, whose logs are collected.
func application(t *testing.T, c *rig.Cluster) {
	t.Helper()
	ctx := t.Context()
	must[string](t)(c.YarnCLI(ctx, "distributedshell", "-shell_command", "echo", "-shell_args", "from-a-container",
		"-container_memory", "128", "-master_memory", "256"))
	out := must[string](t)(c.YarnCLI(ctx, "application", "-list", "-appStates", "FINISHED"))
	id := appID.FindString(out)
	if id == "" || !strings.Contains(out, "SUCCEEDED") {
		t.Fatalf("the application did not succeed: %s", out)
	}
	eventually(t, "logs are collected", func() error {
		out, err := c.Command(ctx, "yarn", "logs", "-applicationId", id).CombinedOutput()
		if err == nil && !strings.Contains(string(out), "\nfrom-a-container\n") {
			err = fmt.Errorf("got %s", out)
		}
		return err
	})
	if _, err := c.CLIAs(ctx, rig.Bob, "yarn", "distributedshell", "-queue", rig.Alice, "-shell_command", "true"); err == nil || !strings.Contains(err.Error(), rig.Bob) {
		t.Errorf("bob may submit to alice's queue: %v", err)
	}
}

var appID = regexp.MustCompile(`application_\d+_\d+`)

// kafkaIdentities knocks at the broker's doors, rightly and wrongly.
func kafkaIdentities(t *testing.T, c *rig.Cluster) {
	t.Helper()
	ctx := t.Context()
	token := func(life time.Duration) sasl.Mechanism {
		text, err := c.KafkaToken(rig.Alice, life)
		if err != nil {
			t.Fatal(err)
		}
		return oauth.Auth{Token: text}.AsMechanism()
	}
	auth := func(user, password string) (scram.Auth, plain.Auth) {
		return scram.Auth{User: user, Pass: password}, plain.Auth{User: user, Pass: password}
	}
	goodScram, goodPlain := auth(rig.Alice, rig.KafkaPassword(rig.Alice))
	badScram, badPlain := auth(rig.Alice, rig.KafkaPassword(rig.Bob))
	for name, tc := range map[string]struct {
		mechanism sasl.Mechanism
		good      bool
	}{
		"SCRAM-SHA-256":             {goodScram.AsSha256Mechanism(), true},
		"SCRAM-SHA-512":             {goodScram.AsSha512Mechanism(), true},
		"PLAIN":                     {goodPlain.AsMechanism(), true},
		"OAUTHBEARER":               {token(time.Hour), true},
		"SCRAM, wrong password":     {badScram.AsSha512Mechanism(), false},
		"PLAIN, wrong password":     {badPlain.AsMechanism(), false},
		"token that is over":        {token(-time.Hour), false},
		"nothing where SASL is due": {nil, false},
	} {
		cfg, err := c.TLSConfig("")
		if err != nil {
			t.Fatal(err)
		}
		err = knock(ctx, c.KafkaSASL(), cfg, tc.mechanism)
		if tc.good && err != nil || !tc.good && err == nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for user, good := range map[string]bool{rig.Alice: true, "": false} {
		cfg, err := c.TLSConfig(user)
		if err != nil {
			t.Fatal(err)
		}
		if err := knock(ctx, c.KafkaTLS(), cfg, nil); good != (err == nil) {
			t.Errorf("certificate of %q: %v", user, err)
		}
	}
	props := filepath.Join(t.TempDir(), "gssapi.properties")
	text := fmt.Sprintf(`security.protocol=SASL_SSL
sasl.mechanism=GSSAPI
sasl.kerberos.service.name=kafka
sasl.jaas.config=com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab="%s" principal="%s";
ssl.truststore.type=PEM
ssl.truststore.location=%s
`, c.Keytab(rig.Alice), c.Principal(rig.Alice), c.CAFile())
	if err := os.WriteFile(props, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	must[string](t)(c.KafkaCLI(ctx, "kafka-topics", "--bootstrap-server", c.KafkaSASL(), "--command-config", props, "--list"))
}

// knock lists the brokers. A refusal ends it at once, or after the few seconds for which the client tries again.
func knock(ctx context.Context, addr string, cfg *tls.Config, mechanism sasl.Mechanism) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	opts := []kgo.Opt{kgo.SeedBrokers(addr), kgo.DialTLSConfig(cfg), kgo.RequestRetries(1)}
	if mechanism != nil {
		opts = append(opts, kgo.SASL(mechanism))
	}
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return err
	}
	defer cl.Close()
	return cl.Ping(ctx)
}
