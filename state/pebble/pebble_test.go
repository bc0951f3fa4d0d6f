package pebble_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/state/hashmap"
	"github.com/thalweg/thalweg/state/pebble"
	"github.com/thalweg/thalweg/state/statetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func new(o pebble.Options) func(cfg state.Config) (state.Backend, error) {
	return func(cfg state.Config) (state.Backend, error) {
		b, err := pebble.NewWithOptions(cfg, o)
		if err != nil {
			return nil, err
		}
		return b, nil
	}
}

var (
	plain = statetest.Factory{Name: "pebble", New: new(pebble.Options{}), Native: true}
	tiny  = statetest.Factory{Name: "pebble-tiny", New: new(pebble.Options{CacheBytes: 1, TimersInMemory: 4}), Native: true}
	heap  = statetest.Factory{Name: "hashmap", New: func(cfg state.Config) (state.Backend, error) {
		b, err := hashmap.New(cfg)
		if err != nil {
			return nil, err
		}
		return b, nil
	}}
)

func TestModel(t *testing.T)     { statetest.Model(t, plain) }
func TestModelTiny(t *testing.T) { statetest.Model(t, tiny) }
func TestExchange(t *testing.T)  { statetest.Model(t, heap, plain, tiny) }

func BenchmarkState(b *testing.B)      { statetest.Bench(b, plain, 512<<20) }
func BenchmarkStateSmall(b *testing.B) { statetest.Bench(b, plain, 64<<20) }

func TestSuite(t *testing.T)     { statetest.Suite(t, plain, heap) }
func TestSuiteTiny(t *testing.T) { statetest.Suite(t, tiny, plain) }

func TestMaps(t *testing.T)         { statetest.Maps(t, plain) }
func TestMapsTiny(t *testing.T)     { statetest.Maps(t, tiny) }
func TestMapsExchange(t *testing.T) { statetest.Maps(t, heap, plain, tiny) }
