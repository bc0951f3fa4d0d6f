package stateprocessor_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/stream/stateprocessor"
)

// phrases opens the balances as something that they cannot become.
type phrases struct{ balance stream.ValueState[string] }

func (p *phrases) Open(rt *stream.RuntimeContext[string]) (err error) {
	p.balance, err = rt.ValueState[string]("balance")
	return err
}

func (p *phrases) ProcessKey(*stateprocessor.Key[string], func(struct{})) error { return nil }

// State of another type than the function opens is an error, of reading and of writing: it is neither nothing nor left out of what is written.
func TestStateOfAnotherType(t *testing.T) {
	dir := "file://" + t.TempDir()
	in := func(yield func(row, error) bool) { yield(row{"ann", 5}, nil) }
	first, err := stateprocessor.New(128).
		With("balances", stateprocessor.Records(in, func(r row) string { return r.customer }, &fromRows{})).Write(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	s, err := stateprocessor.Open(t.Context(), first)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // a test
	refused := func(err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), `"balance"`) || !strings.Contains(err.Error(), "now string") {
			t.Errorf("got %v", err)
		}
	}
	var errs []error
	for _, err := range stateprocessor.Keyed(t.Context(), s, "balances", &phrases{}) {
		errs = append(errs, err)
	}
	if len(errs) != 1 {
		t.Errorf("%d results: %v", len(errs), slices.Compact(errs))
	}
	refused(errors.Join(errs...))
	_, err = s.Writer().With("balances", stateprocessor.Keys[string](&phrases{})).Write(t.Context(), dir)
	refused(err)
}
