package inspect

import (
	"bytes"
	"context"
	"encoding/binary"
	"maps"
	"slices"

	"github.com/thalweg/thalweg/state"
	"github.com/thalweg/thalweg/state/canonical"
)

// Change is what became of one state from one snapshot to another.
type Change struct {
	Old *State `json:"old,omitempty"` // nil: the state is new
	New *State `json:"new,omitempty"` // nil: the state is gone
	// Types says that the type of keys or values differs; their entries are compared as they are stored.
	Types   bool  `json:"typesDiffer,omitempty"`
	Added   int64 `json:"added"`
	Removed int64 `json:"removed"`
	Changed int64 `json:"changed"`
	Same    int64 `json:"same"`
	// Samples are the first differences.
	Samples []Difference `json:"samples,omitempty"`
}

// Difference is one entry that differs; Old or New is nil when it is only in the other snapshot.
type Difference struct {
	Old *Entry `json:"old,omitempty"`
	New *Entry `json:"new,omitempty"`
}

// Equal says that both snapshots hold the same of the state, as far as it was read.
func (c *Change) Equal() bool {
	return c.Old != nil && c.New != nil && !c.Types && c.Added+c.Removed+c.Changed == 0
}

// Diff compares what two snapshots hold, operator by operator (by id) and state by state (by name), with at most samples examples of each
// state.
func Diff(ctx context.Context, before, after *Snapshot, samples int) ([]Change, error) {
	var all []Change
	old := map[[2]string]State{}
	for _, o := range before.Operators() {
		for _, st := range o.States {
			old[[2]string{st.ID, st.Name}] = st
		}
	}
	for _, o := range after.Operators() {
		for _, st := range o.States {
			id := [2]string{st.ID, st.Name}
			c := Change{New: &st}
			if was, ok := old[id]; ok {
				delete(old, id)
				c.Old, c.Types = &was, was.Key != st.Key || was.Value != st.Value || was.Kind != st.Kind
			}
			all = append(all, c)
		}
	}
	gone := slices.SortedFunc(maps.Values(old), func(a, b State) int {
		return bytes.Compare([]byte(a.ID+"/"+a.Name), []byte(b.ID+"/"+b.Name))
	})
	for i := range gone {
		all = append(all, Change{Old: &gone[i]})
	}
	for i := range all {
		if err := all[i].compare(ctx, before, after, samples); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// stored is an entry of one side.
type stored struct {
	meta  state.TableMeta
	entry canonical.Entry
}

// compare fills in the numbers and samples.
func (c *Change) compare(ctx context.Context, before, after *Snapshot, samples int) error {
	for _, side := range []*State{c.Old, c.New} {
		switch {
		case side == nil:
		case side.Kind == Items || side.Kind == UnionItems || side.Kind == Coordinator:
			return c.compareItems(ctx, before, after)
		}
	}
	// One key group at a time; snapshots with other numbers of groups have no groups in common.
	groups := 0
	for _, side := range []*State{c.Old, c.New} {
		if side != nil {
			if groups != 0 && groups != side.op.MaxParallelism {
				groups = 0
				break
			}
			groups = side.op.MaxParallelism
		}
	}
	if groups == 0 {
		return c.compareGroups(ctx, before, after, state.Range{End: max(c.Old.op.MaxParallelism, c.New.op.MaxParallelism)}, samples)
	}
	for g := range groups {
		if err := c.compareGroups(ctx, before, after, state.Range{Start: g, End: g + 1}, samples); err != nil {
			return err
		}
	}
	return nil
}

func (c *Change) compareGroups(ctx context.Context, before, after *Snapshot, rng state.Range, samples int) error {
	was := map[string]stored{}
	if c.Old != nil {
		err := before.scan(ctx, *c.Old, rng, func(m state.TableMeta, e *canonical.Entry) error {
			was[address(e)] = stored{m, copied(e)}
			return nil
		})
		if err != nil {
			return err
		}
	}
	sample := func(old, now *Entry) {
		if len(c.Samples) < samples {
			c.Samples = append(c.Samples, Difference{old, now})
		}
	}
	if c.New != nil {
		err := after.scan(ctx, *c.New, rng, func(m state.TableMeta, e *canonical.Entry) error {
			id := address(e)
			old, ok := was[id]
			delete(was, id)
			switch {
			case !ok:
				c.Added++
				sample(nil, new(entry(m, e)))
			case !bytes.Equal(old.entry.Value, e.Value):
				c.Changed++
				sample(new(entry(old.meta, &old.entry)), new(entry(m, e)))
			default:
				c.Same++
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	for _, id := range slices.Sorted(maps.Keys(was)) {
		old := was[id]
		c.Removed++
		sample(new(entry(old.meta, &old.entry)), nil)
	}
	return nil
}

// address is what identifies an entry in its state.
func address(e *canonical.Entry) string {
	b := binary.LittleEndian.AppendUint64(nil, uint64(e.Namespace))
	b = binary.LittleEndian.AppendUint64(b, uint64(e.At))
	return string(append(b, e.Key...))
}

func copied(e *canonical.Entry) canonical.Entry {
	c := *e
	c.Key, c.Value = bytes.Clone(e.Key), bytes.Clone(e.Value)
	return c
}

// compareItems compares states without keys as multisets.
func (c *Change) compareItems(ctx context.Context, before, after *Snapshot) error {
	n := map[string]int64{}
	if c.Old != nil {
		if err := before.Each(ctx, *c.Old, func(e Entry) error { n[string(e.Value)]++; return nil }); err != nil {
			return err
		}
	}
	if c.New != nil {
		err := after.Each(ctx, *c.New, func(e Entry) error {
			if n[string(e.Value)] > 0 {
				n[string(e.Value)]--
				c.Same++
			} else {
				c.Added++
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	for _, left := range n {
		c.Removed += left
	}
	return nil
}
