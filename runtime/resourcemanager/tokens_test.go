package resourcemanager_test

import (
	"testing"

	"github.com/thalweg/thalweg/runtime/rpc"
)

// Newer security tokens reach those that are registered, and those that register later, who get the latest alone.
func TestSecurityTokens(t *testing.T) {
	r := start(t, 1, nil)
	next := func(l rpc.TaskManagerUplink) string {
		t.Helper()
		for {
			down, err := l.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if tok := down.GetTokens(); tok != nil {
				return string(tok.GetCredentials())
			}
		}
	}
	early, _ := r.tm("container_1", 1)
	r.m.UpdateTokens([]byte("first"))
	if got := next(early); got != "first" {
		t.Errorf("got %q", got)
	}
	r.m.UpdateTokens([]byte("second"))
	if got := next(early); got != "second" {
		t.Errorf("got %q", got)
	}
	late, _ := r.tm("container_2", 1)
	if got := next(late); got != "second" {
		t.Errorf("one that registers later got %q", got)
	}
}
