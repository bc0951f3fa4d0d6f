package pebble

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	pdb "github.com/cockroachdb/pebble/v2"

	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/state/canonical"
)

// State that was restored and is not open stays in the store as it is stored, with the versions of its values: native snapshots have it
// with the store's files, canonical ones as one table for each version.

// Opened implements state.Backend.
func (b *Backend) Opened() ([]state.Unopened, error) {
	if b.db == nil {
		return nil, errClosed
	}
	loaded := map[string]state.Unopened{}
	for _, name := range slices.Sorted(maps.Keys(b.restored)) {
		if _, open := b.names[name]; open {
			continue
		}
		u, err := b.carry(name)
		if err != nil {
			return nil, fmt.Errorf("pebble: restore %q, which is not open: %w", name, err)
		}
		loaded[name] = u
	}
	clear(b.restored)
	if r := b.restore; r != nil {
		b.restore = nil
		if err := r.Close(); err != nil {
			return nil, fmt.Errorf("pebble: close restored files: %w", err)
		}
	}
	var all []state.Unopened
	var sets []setMeta
	for _, s := range b.meta.Sets {
		if _, open := b.names[s.Name]; open {
			continue
		}
		lo, hi := appendGroup(nil, s.ID, b.cfg.Range.Start), groupEnd(s.ID, b.cfg.Range.End)
		some, err := b.holds(lo, hi)
		if err != nil {
			return nil, fmt.Errorf("pebble: state %q, which is not open: %w", s.Name, err)
		}
		if !some {
			continue
		}
		u, ok := loaded[s.Name]
		if !ok {
			n, err := raw(b).EstimateDiskUsage(lo, hi)
			if err != nil {
				return nil, fmt.Errorf("pebble: size of state %q: %w", s.Name, err)
			}
			u = state.Unopened{Name: s.Name, Entries: -1, Bytes: int64(n)}
		}
		all, sets = append(all, u), append(sets, s)
	}
	b.unopened, b.opened = sets, true
	return all, nil
}

// openedLater notes that a set is open.
func (b *Backend) openedLater(name string) {
	b.unopened = slices.DeleteFunc(slices.Clone(b.unopened), func(s setMeta) bool { return s.Name == name })
}

// carry writes the restored entries of a canonical snapshot to the store as they are.
func (b *Backend) carry(name string) (state.Unopened, error) {
	u := state.Unopened{Name: name}
	metas := b.restore.Versions(name)
	from := setMeta{Name: name, Kind: metas[0].Kind, Key: metas[0].Key}
	if from.Kind == canonical.KindTable {
		for _, m := range metas {
			from.Values = append(from.Values, m.Value)
		}
	}
	to, versions, err := b.merge(&from)
	if err != nil {
		return u, err
	}
	b.metaChanged = true
	var last *serde.Schema
	var version byte
	var key, value []byte
	l := loader{b: b}
	err = l.load(name, func(e *canonical.Entry, batch batch) error {
		u.Entries++
		u.Bytes += int64(len(e.Key) + len(e.Value))
		if from.Kind == canonical.KindTimers {
			key = appendOrdered(appendGroup(key[:0], to.ID, e.Group), e.At)
			return batch.Set(append(appendOrdered(key, e.Namespace), e.Key...), nil, nil)
		}
		if e.Schema != last {
			last = e.Schema
			version = versions[slices.IndexFunc(from.Values, func(s serde.Schema) bool { return serde.Same(s, *last) })]
		}
		key = append(appendNamespace(key[:0], to.ID, e.Group, e.Namespace), e.Key...)
		value = append(append(value[:0], version), e.Value...)
		return batch.Set(key, value, nil)
	})
	return u, err
}

// holds reports whether the store has a key in [lo, hi).
func (b *Backend) holds(lo, hi []byte) (some bool, err error) {
	it, err := b.db.iter(lo, hi)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	return it.First(), it.Error()
}

// versions are the tables that a set is in the canonical form: one for each schema of its values.
func (s *setMeta) versions() (all []state.TableMeta) {
	if s.Kind == canonical.KindTimers {
		return []state.TableMeta{s.table()}
	}
	for _, v := range s.Values {
		all = append(all, state.TableMeta{Name: s.Name, Kind: s.Kind, Key: s.Key, Value: v, Stored: -1})
	}
	return all
}

// copyUnopened copies a key group of a set that is not open. The first of its versions is table first of the file.
func copyUnopened(w *canonical.Writer, first int, s *setMeta, it *pdb.Iterator, group int) error {
	prefix := appendGroup(nil, s.ID, group)
	it.SetBounds(prefix, after(prefix))
	for ok := it.First(); ok; ok = it.Next() {
		k := it.Key()
		v, err := it.ValueAndErr()
		if err == nil {
			err = whole(s.Kind, k)
		}
		if err == nil && s.Kind == canonical.KindTimers {
			err = w.Timer(first, ordered(k[tablePrefix:]), ordered(k[groupPrefix:]), k[timerPrefix:])
		} else if err == nil {
			if len(v) == 0 || int(v[0]) >= len(s.Values) {
				return fmt.Errorf("state %q: version of a value: %w", s.Name, canonical.ErrCorrupt)
			}
			err = w.Entry(first+int(v[0]), ordered(k[groupPrefix:]), k[tablePrefix:], v[1:])
		}
		if err != nil {
			return err
		}
	}
	return it.Error()
}
