package hashmap_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/state/backend"
	"github.com/thalweg/thalweg/state/statetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var factory = statetest.Factory{Name: "hashmap", New: func(cfg state.Config) (state.Backend, error) { return backend.New(backend.HashMap, cfg) }}

func TestModel(t *testing.T) { statetest.Model(t, factory) }

func BenchmarkState(b *testing.B) { statetest.Bench(b, factory, 0) }

func TestSuite(t *testing.T) { statetest.Suite(t, factory, factory) }

func TestMaps(t *testing.T) { statetest.Maps(t, factory) }

func TestEntries(t *testing.T) { statetest.Entries(t, factory) }

func TestUnopened(t *testing.T) { statetest.Unopened(t, factory) }

func FuzzRestore(f *testing.F) { statetest.FuzzRestore(f, factory) }
