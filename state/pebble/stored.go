package pebble

import (
	"errors"
	"fmt"

	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/state/canonical"
)

// Stored calls fn for every entry of a table or timer set in rng, as it is stored, with the schema of its value. It needs no open table, so
// that snapshots can be read without the program that wrote them. The entry is valid until the next one; an unknown name has none.
func (b *Backend) Stored(name string, rng state.Range, fn func(value *serde.Schema, e *canonical.Entry) error) (err error) {
	if b.db == nil {
		return errClosed
	}
	set := b.meta.find(name)
	if set == nil {
		return nil
	}
	it, err := raw(b).NewIter(nil)
	if err != nil {
		return fmt.Errorf("pebble: read state %q: %w", name, err)
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	var e canonical.Entry
	for g := max(rng.Start, b.cfg.Range.Start); g < min(rng.End, b.cfg.Range.End); g++ {
		prefix := appendGroup(nil, set.ID, g)
		it.SetBounds(prefix, after(prefix))
		for ok := it.First(); ok; ok = it.Next() {
			k := it.Key()
			v, err := it.ValueAndErr()
			if err != nil {
				return fmt.Errorf("pebble: read state %q: %w", name, err)
			}
			if err := whole(set.Kind, k); err != nil {
				return fmt.Errorf("pebble: state %q: %w", name, err)
			}
			e.Group = g
			if set.Kind == canonical.KindTimers {
				e.Namespace, e.At, e.Key = ordered(k[tablePrefix:]), ordered(k[groupPrefix:]), k[timerPrefix:]
				if err := fn(nil, &e); err != nil {
					return err
				}
				continue
			}
			if len(v) == 0 || int(v[0]) >= len(set.Values) {
				return fmt.Errorf("pebble: state %q: version of a value: %w", name, canonical.ErrCorrupt)
			}
			e.Namespace, e.Key, e.Value = ordered(k[groupPrefix:]), k[tablePrefix:], v[1:]
			if err := fn(&set.Values[v[0]], &e); err != nil {
				return err
			}
		}
		if err := it.Error(); err != nil {
			return fmt.Errorf("pebble: read state %q: %w", name, err)
		}
	}
	return nil
}
