package operator

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/checkpoint/storage"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/local"
)

// gauges keeps metrics of both kinds.
type gauges struct {
	tally
	by map[string]func() float64
}

func (g gauges) Gauge(name string, fn func() float64) { g.by[name] = fn }

var _ connector.Metrics = gauges{}

func (g gauges) want(t *testing.T, name string, low, high float64) {
	t.Helper()
	fn := g.by[name]
	if fn == nil {
		t.Fatalf("no gauge %q", name)
	}
	if v := fn(); v < low || v > high {
		t.Errorf("%s is %v, want %v to %v", name, v, low, high)
	}
}

// Each checkpoint tells what the states take, on both backends: entries, bytes, growth, the largest entry; and what their time to live removes.
func TestStateIsMeasuredByCheckpoints(t *testing.T) {
	for _, backend := range []string{"hashmap", "pebble"} {
		t.Run(backend, func(t *testing.T) {
			reg := &fs.Registry{}
			local.Register(reg)
			m, clock := gauges{tally{}, map[string]func() float64{}}, &services{now: 1000}
			c := &Context{Services: clock, Parallelism: 1, MaxParallelism: 16, Config: config.Configuration{config.StateBackend.Key: backend}, Metrics: m, Logger: zerolog.Nop(),
				StateDir: filepath.Join(t.TempDir(), "state"), StateMemory: 64 << 20, Mark: &Marker{}}
			o, err := NewOffline[string](c)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := CloseOffline(c); err != nil {
					t.Error(err)
				}
			}()
			names, err := o.Runtime().ValueState[string]("names")
			if err != nil {
				t.Fatal(err)
			}
			seen, err := o.Runtime().ValueState[int64]("seen", WithTTL(StateTTLConfig{TTL: time.Minute}))
			if err != nil {
				t.Fatal(err)
			}
			put := func(from, until int, length int) {
				t.Helper()
				for i := from; i < until; i++ {
					o.Select(fmt.Sprintf("key-%04d", i))
					if err := names.Update(strings.Repeat(string(rune('a'+i%26)), length)); err != nil {
						t.Fatal(err)
					}
					if err := seen.Update(1); err != nil {
						t.Fatal(err)
					}
				}
			}
			id := int64(0)
			checkpoint := func() {
				t.Helper()
				id++
				s, err := TakeOffline(c, Barrier{ID: id})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := s.Keyed[0].Write(t.Context(), storage.NewSink(reg, "file://"+t.TempDir(), "", 0)); err != nil {
					t.Fatal(err)
				}
				c.keyed.CheckpointCompleted(id)
			}
			put(0, 100, 10)
			checkpoint()
			keys := func(name string, n float64) {
				t.Helper()
				if backend == "hashmap" { // pebble's own form does not count them
					m.want(t, "state."+name+".estimate-num-keys", n, n)
				}
			}
			keys("names", 100)
			m.want(t, "state.names.estimate-live-data-size", 100, 100*60)
			m.want(t, "state.names.largest-entry-size", 9+11, 9+12)
			m.want(t, "state.names.growth-bytes-per-second", 0, 0)
			clock.now += 10_000
			put(100, 2000, 100)
			put(2000, 2001, 50_000)
			checkpoint()
			keys("names", 2001)
			m.want(t, "state.names.largest-entry-size", 50_000, 50_030)
			m.want(t, "state.names.growth-bytes-per-second", 100, 30_000)
			clock.advance(t, clock.now+120_000) // what goes through the state in the background finds it expired
			if n := m.tally["state.seen.numExpired"].n; n != 2001 {
				t.Errorf("numExpired is %d", n)
			}
			checkpoint()
			keys("seen", 0)
		})
	}
}
