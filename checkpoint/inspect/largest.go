package inspect

import (
	"bytes"
	"context"
	"slices"

	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/state/canonical"
)

// Sized is an entry of a state and the bytes of its key and value as they are stored. Its value is left out.
type Sized struct {
	Entry
	Bytes int64 `json:"bytes"`
}

// Largest reads a keyed state for its n largest entries, the largest first. Of other states there are none.
func (s *Snapshot) Largest(ctx context.Context, st State, n int) ([]Sized, error) {
	if st.meta.Kind != canonical.KindTable || n < 1 {
		return nil, nil
	}
	type kept struct {
		meta  state.TableMeta
		entry canonical.Entry
		bytes int64
	}
	var all []kept
	err := s.scan(ctx, st, state.Range{End: st.op.MaxParallelism}, func(m state.TableMeta, e *canonical.Entry) error {
		size := int64(len(e.Key) + len(e.Value))
		if len(all) == n && size <= all[n-1].bytes {
			return nil
		}
		at, _ := slices.BinarySearchFunc(all, size, func(k kept, size int64) int { return int(size - k.bytes) })
		x := *e
		x.Key, x.Value = bytes.Clone(e.Key), nil
		all = slices.Insert(all, at, kept{m, x, size})
		all = all[:min(len(all), n)]
		return nil
	})
	var out []Sized
	for _, k := range all {
		e := entry(k.meta, &k.entry)
		e.Value = nil
		out = append(out, Sized{e, k.bytes})
	}
	return out, err
}
