package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/stream/streamtest"
)

func TestTotals(t *testing.T) {
	var bad streamtest.Output[string]
	h := streamtest.New(t, func(lines stream.DataStream[string]) stream.SingleOutputStreamOperator[Total] {
		out, rejects := totals(lines)
		rejects.SinkTo(bad.Sink())
		return out
	})
	h.Push("2026-01-01,North,250", "2026-01-01, north ,50", "2026-01-02,north,1", "2026-13-01,north,1", "a,b", "2026-01-01,south,-1", "2026-01-01,south,9223372036854775807", "2026-01-01,s\xffuth,1")
	h.Expect() // only at the end
	bad.Expect("2026-13-01,north,1", "a,b", "2026-01-01,south,-1", "2026-01-01,south,9223372036854775807", "2026-01-01,s\xffuth,1")
	h.End()
	h.ExpectInAnyOrder(Total{"2026-01-01", "north", 2, 300}, Total{"2026-01-02", "north", 1, 1})
}

// lines are those of all files of a folder, sorted.
func lines(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, strings.Split(strings.TrimSpace(string(b)), "\n")...)
	}
	slices.Sort(all)
	return all
}

// The whole program, from files to files, on the embedded cluster: in BATCH, as it says itself, and in STREAMING, with the same results.
func TestProgram(t *testing.T) {
	t.Run("as it is", func(t *testing.T) { program(t, "BATCH", nil) })
	t.Run("streaming", func(t *testing.T) {
		program(t, "STREAMING", map[string]string{"execution.runtime-mode": "STREAMING", "execution.checkpointing.interval": "100 ms"})
	})
}

func program(t *testing.T, mode string, conf map[string]string) {
	in, to := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{"a.csv": "2026-01-01,north,1\n2026-01-01,south,2\n", "b.csv": "2026-01-01,north,3\nnonsense\n2026-01-02,north,4\n"} {
		if err := os.WriteFile(filepath.Join(in, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	all := map[string]string{"parallelism.default": "2"}
	maps.Copy(all, conf)
	chosen := ""
	err := stream.RunLocal(t.Context(), "file-etl", func(env *stream.Environment) error {
		err := build(env)
		chosen, _ = env.Config("execution.runtime-mode")
		return err
	}, stream.LocalOptions{Args: []string{"-in", in, "-out", to}, Config: all})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.EqualFold(chosen, mode) {
		t.Errorf("the job ran in %q, want %s", chosen, mode)
	}
	want := []string{`{"day":"2026-01-01","shop":"north","sales":2,"cents":4}`, `{"day":"2026-01-01","shop":"south","sales":1,"cents":2}`, `{"day":"2026-01-02","shop":"north","sales":1,"cents":4}`}
	if got := lines(t, filepath.Join(to, "*.json")); !slices.Equal(got, want) {
		t.Errorf("totals: %q", got)
	}
	if got := lines(t, filepath.Join(to, "rejected", "part*")); !slices.Equal(got, []string{"nonsense"}) {
		t.Errorf("rejected: %q", got)
	}
}
