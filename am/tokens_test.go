package am

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/am/login"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/yarnrpc/token"
)

func tok(kind token.Kind, service, password string) token.Token {
	return token.Token{Kind: kind, Service: service, Identifier: []byte("id"), Password: []byte(password)}
}

func hdfsPassword(t *testing.T, c *token.Credentials, service string) string {
	t.Helper()
	got, ok := c.ByService(token.KindHDFSDelegation, service)
	if !ok {
		return ""
	}
	return string(got.Password)
}

// Tokens are obtained again at 0.75 of their life, sooner and then less often while that fails; containers that start, TaskManagers
// and the file of the job's processes have the latest. The scheduler's token is nobody else's.
func TestTokensAreKept(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		base := &token.Credentials{}
		base.Put("", tok(token.KindAMRM, "", "scheduler"))
		base.Put("nn:1", tok(token.KindHDFSDelegation, "nn:1", "at submission"))
		base.Put("other", tok(token.KindHDFSDelegation, "other:1", "of somebody"))
		base.PutSecret("s", []byte("secret"))
		k, err := newTokens(dir, base)
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		var at []time.Duration
		fail := 0
		k.keeper = login.NewKeeper(config.Configuration{"security.delegation.tokens.renewal.retry.backoff": "4 s"}, func(context.Context) (*token.Credentials, time.Time, error) {
			at = append(at, time.Since(start))
			if fail > 0 {
				fail--
				return nil, time.Time{}, errors.New("the NameNode is away")
			}
			c := &token.Credentials{}
			c.Put("hdfs", tok(token.KindHDFSDelegation, "nn:1", time.Since(start).String()))
			return c, time.Now().Add(time.Minute), nil
		}, k.replace, zerolog.Nop())
		var told []string
		if err := k.toldTo(func(b []byte) {
			c, err := token.Decode(b)
			if err != nil {
				t.Error(err)
			}
			if _, ok := c.ByKind(token.KindAMRM); ok || len(c.SecretAliases()) > 0 {
				t.Error("TaskManagers are told more than tokens of file systems")
			}
			told = append(told, hdfsPassword(t, c, "nn:1"))
		}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); k.keeper.Keep(ctx, time.Now().Add(10*time.Second)) }()
		<-time.After(70 * time.Second) // 10 s, 55 s
		fail = 4
		<-time.After(45 * time.Second) // 100 s fails, and 101, 103, 107; 111 s
		cancel()
		<-done

		want := []time.Duration{10, 55, 100, 101, 103, 107, 111}
		if len(at) != len(want) {
			t.Fatalf("obtained at %v", at)
		}
		for i := range want {
			if at[i].Round(time.Second) != want[i]*time.Second {
				t.Errorf("obtained at %v, want seconds %v", at, want)
				break
			}
		}
		if len(told) != 4 || told[0] != "at submission" || told[3] != "1m51s" {
			t.Errorf("told %q", told)
		}
		launch := k.launch()
		if _, ok := launch.ByKind(token.KindAMRM); ok {
			t.Error("containers get the scheduler's token")
		}
		if got := hdfsPassword(t, launch, "nn:1"); got != "1m51s" || hdfsPassword(t, launch, "other:1") != "of somebody" {
			t.Errorf("containers start with %q", got)
		}
		file, err := token.ReadFile(k.file.Path)
		if err != nil || hdfsPassword(t, file, "nn:1") != "1m51s" || len(file.SecretAliases()) > 0 {
			t.Errorf("file %v: %v", file, err)
		}
	})
}
