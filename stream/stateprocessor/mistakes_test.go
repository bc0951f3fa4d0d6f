package stateprocessor_test

import (
	"context"
	"strings"
	"testing"

	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/stream/stateprocessor"
)

// Functions that are missing are mistakes that Write tells, all together, before it writes anything; reading tells them, too.
func TestFunctionsThatAreNil(t *testing.T) {
	dir := "file://" + t.TempDir()
	in := func(yield func(row, error) bool) { yield(row{"ann", 5}, nil) }
	customer := func(r row) string { return r.customer }
	_, err := stateprocessor.New(128).
		With("a", stateprocessor.Keys[string](nil)).
		With("b", stateprocessor.Records[string, row](in, nil, &fromRows{})).
		With("c", stateprocessor.OperatorState(nil)).
		With("d", nil).
		Write(t.Context(), dir)
	if err == nil {
		t.Fatal("written")
	}
	for _, want := range []string{`With("a"): Keys: the function is nil`, `With("b"): Records needs`, `With("c"): OperatorState: the function is nil`, `With("d"): a change is nil`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
	uri, err := stateprocessor.New(128).With("balances", stateprocessor.Records(in, customer, &fromRows{})).Write(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	s, err := stateprocessor.Open(t.Context(), uri)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // a test
	for _, err := range stateprocessor.Keyed[string, int](t.Context(), s, "balances", nil) {
		if err == nil || !strings.Contains(err.Error(), "the function is nil") {
			t.Errorf("Keyed: %v", err)
		}
	}
	read := func(ctx context.Context, fn func(*stream.TaskContext) error) error {
		return stateprocessor.ReadOperatorState(ctx, s, "balances", fn)
	}
	if err := read(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "the function is nil") {
		t.Errorf("ReadOperatorState: %v", err)
	}
}
