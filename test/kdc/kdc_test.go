package kdc_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/thalweg/thalweg/test/kdc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTicketsByKeytabAndPassword(t *testing.T) {
	k := kdc.ForTest(t, kdc.Options{})
	ctx := t.Context()
	alice := k.User(t, "alice")
	cache := filepath.Join(t.TempDir(), "cache")
	if err := k.Kinit(ctx, "alice", alice, cache); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(cache); err != nil || !strings.Contains(string(b), k.Realm) {
		t.Errorf("the ticket cache has no ticket of the realm: %v", err)
	}
	// Another keytab of the same principal leaves the first one as good as it was.
	second := filepath.Join(t.TempDir(), "second")
	if err := k.Keytab(ctx, second, "alice"); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{alice, second} {
		if err := k.Kinit(ctx, "alice", file, cache); err != nil {
			t.Error(err)
		}
	}
	if err := k.AddPrincipal(ctx, "bob", "secret"); err != nil {
		t.Fatal(err)
	}
	if err := k.KinitPassword(ctx, "bob", "secret", cache); err != nil {
		t.Error(err)
	}
	if err := k.KinitPassword(ctx, "bob", "wrong", cache); err == nil {
		t.Error("a wrong password got a ticket")
	}
}

func TestMistakesAreTold(t *testing.T) {
	k := kdc.ForTest(t, kdc.Options{})
	ctx := t.Context()
	file := filepath.Join(t.TempDir(), "k")
	if err := k.Keytab(ctx, file, "nobody"); err == nil || !strings.Contains(err.Error(), "nobody") {
		t.Errorf("keytab of a principal that is not there: %v", err)
	}
	alice := k.User(t, "alice")
	if err := k.Kinit(ctx, "bob", alice, file); err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("ticket of a principal that is not in the keytab: %v, want one line", err)
	}
	if err := k.DeletePrincipal(ctx, "alice"); err != nil {
		t.Fatal(err)
	}
	if err := k.Kinit(ctx, "alice", alice, file); err == nil {
		t.Error("a deleted principal got a ticket")
	}
}

func TestRealmLivesThroughARestart(t *testing.T) {
	k := kdc.ForTest(t, kdc.Options{})
	again, err := kdc.New(kdc.Options{Dir: filepath.Join(t.TempDir(), "own"), Port: k.Port + 1, TicketLife: time.Hour, UDP: true})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // as new, and as it is found
		if err := again.Create(t.Context()); err != nil {
			t.Fatal(err)
		}
		keytab := again.User(t, "alice")
		s, err := again.Start(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		err = again.Kinit(t.Context(), "alice", keytab, filepath.Join(t.TempDir(), "cache"))
		s.Stop()
		s.Stop()
		if err != nil {
			t.Error(err)
		}
		if err := again.Ready(t.Context()); err == nil {
			t.Error("it answers after Stop")
		}
	}
}
