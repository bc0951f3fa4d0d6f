package logging

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"pgregory.net/rapid"
)

// entries decodes a line and fails on a key that comes twice.
func entries(t *testing.T, line string) map[string]any {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(line))
	if tok, err := d.Token(); err != nil || tok != json.Delim('{') {
		t.Fatalf("%q: %v, %v", line, tok, err)
	}
	out := map[string]any{}
	for d.More() {
		k, err := d.Token()
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		var v any
		if err := d.Decode(&v); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if _, dup := out[k.(string)]; dup {
			t.Errorf("%q: %s comes twice", line, k)
		}
		out[k.(string)] = v
	}
	return out
}

func TestEachKeyComesOnce(t *testing.T) {
	var b bytes.Buffer
	log := New(&b, zerolog.InfoLevel).With().Str("component", "jobmaster").Int("subtask", 1).Logger()
	log = log.With().Str("component", "checkpoints").Str("job_id", "a").Logger()
	log.Info().Int("subtask", 1).Str("quote", `"component":"x",`).Strs("list", []string{"a", "b"}).Interface("map", map[string]string{"component": "inner", "x": "y"}).Msg(`he said "hi", {really}`)
	got := entries(t, b.String())
	if got["component"] != "checkpoints" || got["subtask"] != 1.0 || got["job_id"] != "a" || got["quote"] != `"component":"x",` || got["message"] != `he said "hi", {really}` {
		t.Errorf("%s", b.String())
	}
	if when, err := time.Parse(time.RFC3339, got["time"].(string)); err != nil || time.Since(when) > time.Hour {
		t.Errorf("time %v", got["time"])
	}
	b.Reset()
	log.Debug().Msg("not wanted")
	if b.Len() > 0 {
		t.Errorf("%s", b.String())
	}
}

// Whatever is logged, a line decodes to what it would without the filter, and no key is left twice.
func TestFilterKeepsTheMeaning(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var raw, once bytes.Buffer
		keys := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "component", `q"`, "x,y", "{"}), 0, 12).Draw(r, "keys")
		text := rapid.String().Draw(r, "text")
		for _, w := range []zerolog.Logger{zerolog.New(&raw), zerolog.New(unique{&once})} {
			ev := w.Info()
			for i, k := range keys {
				switch i % 3 {
				case 0:
					ev = ev.Str(k, text)
				case 1:
					ev = ev.Int(k, i)
				default:
					ev = ev.Interface(k, map[string]any{"component": []any{text, i, nil}})
				}
			}
			ev.Msg(text)
		}
		var want, got map[string]any
		if err := json.Unmarshal(raw.Bytes(), &want); err != nil {
			r.Fatal(err)
		}
		if err := json.Unmarshal(once.Bytes(), &got); err != nil {
			r.Fatalf("%q: %v", once.String(), err)
		}
		entries(t, once.String())
		a, _ := json.Marshal(want)
		b, _ := json.Marshal(got)
		if !bytes.Equal(a, b) {
			r.Fatalf("%s became %s", raw.String(), once.String())
		}
	})
}

func FuzzFilter(f *testing.F) {
	f.Add([]byte(`{"a":1,"a":2}`))
	f.Add([]byte(`{"a`))
	f.Add([]byte(`{"a":"\`))
	f.Add([]byte(`{"a":{"a":[}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		if n, err := (unique{&bytes.Buffer{}}).Write(line); n != len(line) || err != nil {
			t.Error(n, err)
		}
	})
}

// Colours are for terminals: a file gets none.
func TestDurationsHaveAUnit(t *testing.T) {
	var b bytes.Buffer
	log := New(&b, zerolog.InfoLevel)
	log.Info().Dur("dur", 1500*time.Millisecond).Send()
	if !strings.Contains(b.String(), `"dur":"1.5s"`) {
		t.Errorf("got %s", b.String())
	}
}

func TestNoColoursInAFile(t *testing.T) {
	p := filepath.Join(t.TempDir(), "log")
	f, err := os.Create(p)
	if err != nil {
		t.Fatal(err)
	}
	log := Console(f, zerolog.InfoLevel)
	log.Warn().Str("a", "b").Msg("hello")
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(p)
	if err != nil || !strings.Contains(string(b), "WRN hello a=b") || strings.Contains(string(b), "\x1b") {
		t.Errorf("%q, %v", b, err)
	}
}

// A stack is read line by line, below what it belongs to.
func TestDetailsStandOnLinesOfTheirOwn(t *testing.T) {
	var b bytes.Buffer
	log := Console(&b, zerolog.InfoLevel)
	log.Warn().Str("detail", "goroutine 1:\n\tmain.go:39\n").Str("task", "a").Msg("failure")
	log.Info().Msg("next")
	if _, text, _ := strings.Cut(b.String(), " "); !strings.HasPrefix(text, "WRN failure task=a\n    goroutine 1:\n    \tmain.go:39\n") {
		t.Errorf("%q", text)
	}
	if !strings.HasSuffix(b.String(), "INF next\n") {
		t.Errorf("%q", b.String())
	}
}

func TestLevels(t *testing.T) {
	for name, want := range map[string]zerolog.Level{"debug": zerolog.DebugLevel, "error": zerolog.ErrorLevel, "": zerolog.InfoLevel, "loud": zerolog.InfoLevel} {
		if got := Level(name); got != want {
			t.Errorf("%q is %s", name, got)
		}
	}
}
