package canonical

import (
	"fmt"

	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
)

// CheckConfig checks what every backend needs.
func CheckConfig(cfg state.Config) error {
	if cfg.MaxParallelism < 1 || cfg.MaxParallelism > state.MaxMaxParallelism {
		return fmt.Errorf("max parallelism %d outside of [1, %d]", cfg.MaxParallelism, state.MaxMaxParallelism)
	}
	if cfg.Range.Start < 0 || cfg.Range.Start > cfg.Range.End || cfg.Range.End > cfg.MaxParallelism {
		return fmt.Errorf("key groups [%d, %d) outside of [0, %d)", cfg.Range.Start, cfg.Range.End, cfg.MaxParallelism)
	}
	if len(cfg.Restore) > 0 && cfg.Source == nil {
		return fmt.Errorf("handles to restore, but no source")
	}
	return nil
}

// MisfitError says that stored state cannot be opened as the program wants it. No later try of the same program can.
type MisfitError struct{ err error }

func (e *MisfitError) Error() string { return e.err.Error() }
func (e *MisfitError) Unwrap() error { return e.err }

// CheckMeta checks that stored state can be opened as updated: same kind, same key encoding (the key's hash, hence its place, depends
// on it), compatible value. Errors: *MisfitError.
func CheckMeta(stored, updated state.TableMeta) error {
	if err := checkMeta(stored, updated); err != nil {
		return &MisfitError{err}
	}
	return nil
}

func checkMeta(stored, updated state.TableMeta) error {
	if stored.Kind != updated.Kind {
		return fmt.Errorf("state %q: stored as %s, now %s", stored.Name, stored.Kind, updated.Kind)
	}
	if was, is := stored.Key.Kind == state.KindPair, updated.Key.Kind == state.KindPair; was != is {
		return fmt.Errorf("state %q: stored as %s, now %s", stored.Name, mapOrNot(was), mapOrNot(is))
	}
	if !serde.Same(stored.Key, updated.Key) {
		return fmt.Errorf("state %q: the key changed: stored %s, now %s; keys cannot be migrated", stored.Name, stored.Key.String(), updated.Key.String())
	}
	if stored.Kind == KindTable {
		if err := compatible(stored.Value, updated.Value); err != nil {
			return fmt.Errorf("state %q: value: %w", stored.Name, err)
		}
	}
	return nil
}

func mapOrNot(isMap bool) string {
	if isMap {
		return "map state"
	}
	return "one value per key"
}

// compatible is serde.Compatible for values with or without a time of last access, and lists of such.
func compatible(stored, updated serde.Schema) error {
	stored, updated = untimed(stored), untimed(updated)
	if stored.Kind == state.KindList && updated.Kind == state.KindList && stored.Elem != nil && updated.Elem != nil {
		return serde.Compatible(untimed(*stored.Elem), untimed(*updated.Elem))
	}
	return serde.Compatible(stored, updated)
}

func untimed(s serde.Schema) serde.Schema {
	if s.Kind == state.KindTimed && s.Elem != nil {
		return *s.Elem
	}
	return s
}

// DecodeKey decodes an entry's key and checks that it is in the group that it was found in. The key is a view when the codec's
// values are.
func DecodeKey[K comparable](c serde.Codec[K], e *Entry, maxParallelism int) (state.Key[K], error) {
	k, n, err := c.Decode(e.Key)
	if err != nil {
		return state.Key[K]{}, err
	}
	h := state.HashEncoded(c, e.Key)
	if n != len(e.Key) || int(state.GroupOf(h, maxParallelism)) != e.Group {
		return state.Key[K]{}, fmt.Errorf("key in key group %d does not belong there: %w", e.Group, ErrCorrupt)
	}
	return state.Key[K]{Key: k, Hash: h, Group: uint16(e.Group)}, nil
}
