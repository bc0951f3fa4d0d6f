// Package backend makes state backends by name and opens typed tables in them: Go interfaces cannot have generic methods, so the
// dispatch over the backends' own generic functions stands here. It is part of layer L1, above the backends.
package backend

import (
	"fmt"

	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/state/hashmap"
	"github.com/thalweg/thalweg/state/onekey"
	"github.com/thalweg/thalweg/state/pebble"
)

// The kinds of backends, as in state.backend.type.
const (
	HashMap = "hashmap"
	Pebble  = "pebble"
)

// New makes a backend of a kind.
func New(kind string, cfg state.Config) (state.Backend, error) {
	switch kind {
	case HashMap:
		return asBackend(hashmap.New(cfg))
	case Pebble:
		return asBackend(pebble.New(cfg))
	case "rocksdb", "forst", "filesystem", "jobmanager":
		return nil, fmt.Errorf("backend: no state backend %q: this is a Flink backend; use %q for state on disk or %q for state in memory (state.backend.type)", kind, Pebble, HashMap)
	default:
		return nil, fmt.Errorf("backend: no state backend %q; known are %q and %q (state.backend.type)", kind, HashMap, Pebble)
	}
}

// asBackend keeps a nil pointer from becoming a non-nil interface.
func asBackend[B state.Backend](b B, err error) (state.Backend, error) {
	if err != nil {
		return nil, err
	}
	return b, nil
}

// OpenTable opens a table of b, with its restored entries.
func OpenTable[K comparable, V any](b state.Backend, desc state.TableDesc[K, V]) (state.Table[K, V], error) {
	switch b := b.(type) {
	case *hashmap.Backend:
		return hashmap.OpenTable(b, desc)
	case *pebble.Backend:
		return pebble.OpenTable(b, desc)
	case *onekey.Backend:
		return onekey.OpenTable(b, desc)
	default:
		return nil, fmt.Errorf("backend: open table %q: unknown backend %T", desc.Name, b)
	}
}

// OpenMap opens a map table of b, with its restored entries.
func OpenMap[K, S comparable, V any](b state.Backend, desc state.MapDesc[K, S, V]) (state.MapTable[K, S, V], error) {
	switch b := b.(type) {
	case *hashmap.Backend:
		return hashmap.OpenMap(b, desc)
	case *pebble.Backend:
		return pebble.OpenMap(b, desc)
	case *onekey.Backend:
		return onekey.OpenMap(b, desc)
	default:
		return nil, fmt.Errorf("backend: open map %q: unknown backend %T", desc.Name, b)
	}
}

// OpenTimers opens a timer set of b, with its restored timers.
func OpenTimers[K comparable](b state.Backend, desc state.TimersDesc[K]) (state.Timers[K], error) {
	switch b := b.(type) {
	case *hashmap.Backend:
		return hashmap.OpenTimers(b, desc)
	case *pebble.Backend:
		return pebble.OpenTimers(b, desc)
	case *onekey.Backend:
		return onekey.OpenTimers(b, desc)
	default:
		return nil, fmt.Errorf("backend: open timers %q: unknown backend %T", desc.Name, b)
	}
}
