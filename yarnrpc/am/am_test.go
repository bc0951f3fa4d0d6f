package am_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/thalweg/thalweg/yarnrpc/am"
	"github.com/thalweg/thalweg/yarnrpc/conf"
	"github.com/thalweg/thalweg/yarnrpc/token"
	"github.com/thalweg/thalweg/yarnrpc/yarn"
)

// The protocol itself is tested by yarntest, against yarnfake and against real daemons.

func TestWithoutToken(t *testing.T) {
	_, err := am.FromCredentials(conf.FromMap(nil), &token.Credentials{})
	if !errors.Is(err, am.ErrNoToken) || !strings.Contains(err.Error(), token.EnvFile) {
		t.Error(err)
	}
	creds := &token.Credentials{}
	creds.Put("", token.Token{Kind: token.KindAMRM, Identifier: []byte{0xff}, Password: []byte("secret")})
	if _, err = am.FromCredentials(conf.FromMap(nil), creds); !errors.Is(err, yarn.ErrMalformed) || strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
}

func TestAttemptAndServiceOfTheToken(t *testing.T) {
	want := yarn.AttemptID{App: yarn.ApplicationID{ClusterTimestamp: 5, ID: 6}, Attempt: 7}
	b := []byte{0x0a, 0x08, 0x0a, 0x04, 0x08, 0x06, 0x10, 0x05, 0x10, 0x07} // appAttemptId{application_id{id:6 cluster_timestamp:5} attemptId:7}
	creds := &token.Credentials{}
	creds.Put("", token.Token{Kind: token.KindAMRM, Identifier: b, Password: []byte("p")})
	c, err := am.FromCredentials(conf.FromMap(map[string]string{conf.KeyRMSchedulerAddress: "rm:8030"}), creds)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // end of the test
	if c.Attempt() != want {
		t.Errorf("attempt %s", c.Attempt())
	}
	if s := c.Token().Service; s != "rm:8030" { // YARN leaves it empty
		t.Errorf("service %q", s)
	}
}
