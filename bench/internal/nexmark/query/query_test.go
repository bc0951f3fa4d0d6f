package query_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/thalweg/thalweg/bench/internal/nexmark"
	"github.com/thalweg/thalweg/bench/internal/nexmark/query"
	"github.com/thalweg/thalweg/bench/internal/tally"
	"github.com/thalweg/thalweg/stream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// run runs a query on the embedded cluster.
func run(t *testing.T, name string, src nexmark.Source, conf map[string]string) tally.Tally {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	dir := t.TempDir()
	err := stream.RunLocal(ctx, name, func(env *stream.Environment) error { return query.Build(env, name, src, dir) }, stream.LocalOptions{Config: conf})
	if err != nil {
		t.Fatal(err)
	}
	p, err := strconv.Atoi(conf["parallelism.default"])
	if err != nil {
		t.Fatal(err)
	}
	got, err := tally.Read(dir, p)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// Every query gives the result of the plain computation, at parallelism 1 and 2, on both backends, with checkpoints under way.
func TestQueries(t *testing.T) {
	const events, rate = 40_000, 1000 // 40 s of event time
	for _, name := range nexmark.Names() {
		want, err := nexmark.Expected(name, events, rate, false)
		if err != nil {
			t.Fatal(err)
		}
		for _, backend := range []string{"hashmap", "pebble"} {
			for _, p := range []string{"1", "2"} {
				t.Run(name+"/"+backend+"/"+p, func(t *testing.T) {
					conf := map[string]string{"parallelism.default": p, "state.backend.type": backend, "restart-strategy.type": "none",
						"execution.checkpointing.interval": "50 ms", "execution.checkpointing.dir": "file://" + t.TempDir()}
					if err := nexmark.Check(name, run(t, name, nexmark.Source{Events: events, Rate: rate}, conf), want); err != nil {
						t.Error(err)
					}
				})
			}
		}
	}
}
