package stream

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/thalweg/thalweg/connector/file"
	"github.com/thalweg/thalweg/serde"
)

// parts reads all lines of the part files below dir, sorted.
func parts(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(dir + "/part-*")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")...)
	}
	slices.Sort(out)
	return out
}

// TestFilesToFiles: each line of the input is in the output once, whatever fails in between, and with or without checkpoints.
func TestFilesToFiles(t *testing.T) {
	in := t.TempDir()
	var want []string
	for f := range 3 {
		var b strings.Builder
		for n := range 8000 {
			fmt.Fprintf(&b, "%d-%d\n", f, n)
			want = append(want, fmt.Sprintf("<%d-%d>", f, n))
		}
		if err := os.WriteFile(filepath.Join(in, fmt.Sprint(f)), []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(want)
	run := func(t *testing.T, conf map[string]string, failures int64) {
		out := filepath.Join(t.TempDir(), "out")
		var seen, failed atomic.Int64
		err := runJob(t, conf, func(env *Environment) error {
			env.FromSource(file.Source(serde.String(), file.Paths(in), file.SplitSize(10_000)), NoWatermarks[string](), "lines").UID("lines").
				TryMap(func(s string) (string, error) {
					if n := seen.Add(1); n%7_000 == 0 && failed.Load() < failures {
						failed.Add(1)
						return "", errors.New("on purpose")
					}
					return "<" + s + ">", nil
				}).Rebalance().SinkTo(file.Sink(serde.String(), file.Directory(out), file.RollSize(5000))).UID("out")
			return nil
		})
		if err != nil || failed.Load() != failures {
			t.Fatalf("%d failures: %v", failed.Load(), err)
		}
		if got := parts(t, out); !slices.Equal(got, want) {
			t.Errorf("%d lines, want %d", len(got), len(want))
		}
		if left, _ := filepath.Glob(out + "/_*"); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	}
	t.Run("without checkpoints", func(t *testing.T) { run(t, map[string]string{"parallelism.default": "3"}, 0) })
	t.Run("exactly once", func(t *testing.T) {
		run(t, map[string]string{"parallelism.default": "3", "execution.checkpointing.interval": "10 ms", "execution.checkpointing.dir": "file://" + t.TempDir(),
			"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": "9", "restart-strategy.fixed-delay.delay": "1 ms"}, 3)
	})
}
