package hybrid_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/connector/connectortest"
	"github.com/thalweg/thalweg/connector/datagen"
	"github.com/thalweg/thalweg/connector/file"
	"github.com/thalweg/thalweg/connector/hybrid"
	"github.com/thalweg/thalweg/serde"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// numbers are first to last-1.
func numbers(first, last int64, splits int) connector.Source[string] {
	return datagen.Source(func(n int64) string { return fmt.Sprintf("%05d", first+n) }, datagen.Count(last-first), datagen.Splits(splits))
}

// history is a file of the numbers 0 to n-1, then what position says up to 300 in splits of their own, then 300 to 330.
func history(t testing.TB, n int) *hybrid.Chain[string] {
	t.Helper()
	path := t.TempDir() + "/history"
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%05d\n", i)
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return hybrid.Source(file.Source(serde.String(), file.Paths(path), file.SplitSize(200))).
		ThenFrom(connector.Bounded, func(_ context.Context, prev connector.Enumerator) (int64, error) {
			if prev.(file.Enumerator).Newest().IsZero() {
				return 0, errors.New("the files were not listed")
			}
			return int64(n), nil
		}, func(from int64) connector.Source[string] { return numbers(from, 300, 3) }).
		Then(numbers(300, 330, 2))
}

func want(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("%05d", i))
	}
	return all
}

func TestConformance(t *testing.T) {
	connectortest.TestSource(t, connectortest.SourceSuite[string]{
		New: func() connector.Source[string] { return history(t, 150) },
		Key: func(s string) string { return s }, Want: want(330), Ordered: func(a, b string) bool { return a < b },
	})
}

// TestRestoreInTheMiddleOfTheSwitch: checkpoints at every step around the switch, also while its position is being found, each restored.
func TestRestoreInTheMiddleOfTheSwitch(t *testing.T) {
	const n = 6
	release := make(chan struct{})
	asked := make(chan struct{}, 64)
	chain := func(block bool) connector.Source[string] {
		return hybrid.Source(numbers(0, n, 2)).ThenFrom(connector.Bounded, func(ctx context.Context, _ connector.Enumerator) (int64, error) {
			if block {
				asked <- struct{}{}
				select {
				case <-release:
				case <-ctx.Done():
				}
			}
			return n, nil
		}, func(from int64) connector.Source[string] { return numbers(from, 2*n, 2) })
	}
	r := connectortest.StartSource(t, chain(true), 2, nil)
	r.MaxPoll = 1
	var cps []*connectortest.SourceCheckpoint
	switching := false
	for !r.Ended() && r.Err() == nil {
		cps = append(cps, r.Checkpoint())
		if !switching && len(asked) > 0 {
			switching = true
			cps = append(cps, r.Checkpoint()) // nothing can happen before release
			close(release)
		}
		r.Within(0, func() bool { return false })
		r.Step()
	}
	if r.Err() != nil || !switching {
		t.Fatalf("%v; position asked for: %v", r.Err(), switching)
	}
	cps = append(cps, r.Checkpoint())
	all := r.Values()
	r.Close()
	for i, cp := range cps {
		for par := 1; par <= 3; par++ {
			r := connectortest.StartSource(t, chain(false), par, cp)
			r.Until("the end", r.Ended)
			r.Close()
			got := map[string]int{}
			for _, v := range append(all[:cp.Emitted:cp.Emitted], r.Values()...) {
				got[v]++
			}
			for _, v := range want(2 * n) {
				if got[v] != 1 {
					t.Fatalf("checkpoint %d of %d (after %d records), parallelism %d: %s came %d times", i, len(cps), cp.Emitted, par, v, got[v])
				}
			}
		}
	}
}

func TestMistakes(t *testing.T) {
	endless := datagen.Source(func(n int64) string { return "" })
	err := fmt.Sprint(hybrid.Source(endless).Then(numbers(0, -1, 1)).Then(nil).ThenFrom(connector.Bounded, nil, func(int) connector.Source[string] { return nil }).Validate())
	for _, want := range []string{"source 1 has no end", "source 2: datagen: Count", "source 3 is nil", "lacks a function"} {
		if !strings.Contains(err, want) {
			t.Errorf("%q is not in %s", want, err)
		}
	}
	position := func(context.Context, connector.Enumerator) (int, error) { return 1, nil }
	for name, c := range map[string]*hybrid.Chain[string]{
		`rule "boundedness"`: hybrid.Source(numbers(0, 3, 1)).ThenFrom(connector.Bounded, position, func(int) connector.Source[string] { return endless }),
		"source 2 is nil":    hybrid.Source(numbers(0, 3, 1)).ThenFrom(connector.Bounded, position, func(int) connector.Source[string] { return nil }),
		"datagen: Splits":    hybrid.Source(numbers(0, 3, 1)).ThenFrom(connector.Bounded, position, func(int) connector.Source[string] { return numbers(0, 1, -1) }),
		"no broker": hybrid.Source(numbers(0, 3, 1)).ThenFrom(connector.Bounded, func(context.Context, connector.Enumerator) (int, error) { return 0, errors.New("no broker") },
			func(int) connector.Source[string] { return numbers(0, 1, 1) }),
	} {
		r := connectortest.StartSource(t, c, 2, nil)
		if err := r.UntilFailed(); !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
		r.Close()
	}
}
