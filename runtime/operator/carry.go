package operator

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/thalweg/thalweg/checkpoint/metadata"
)

// Restored state that Open does not open is carried along: each snapshot has it as it was restored, for a later version of the program
// to open. Keyed state is the backend's part (state.Backend.Opened); the lists of a subtask are here. A list that is dealt out is carried by
// the subtasks that have its items; one that all have is carried by the first.
// Source: Flink, whose backends keep restored state that is not registered.

// carriedLists are the lists of users' state that are carried along.
type carriedLists struct {
	lists   []metadata.ListState
	schemas [][]byte // items of schemasState
}

// Open opens an operator: from then on its state is what it is. Errors: *MisfitError, with all of the operator's state that does not fit.
func Open(ctx context.Context, o Operator, c *Context) error {
	c.opening = true
	err := o.Open(ctx)
	c.opening = false
	if m := c.misfit(); m != nil {
		return m // what else is wrong follows from it
	}
	if err != nil {
		return err
	}
	return c.settle()
}

// Take is Operator.Snapshot with what is carried along, and the operator's layout.
func Take(o Operator, c *Context, b Barrier) (Snapshot, error) {
	if c.keyed != nil && b.Base > 0 { // the notice may come later than this barrier, and files of checkpoints before are gone
		c.keyed.CheckpointCompleted(b.Base)
	}
	s, err := o.Snapshot(b)
	if err == nil {
		s.Lists = c.carried.addTo(s.Lists)
		s = c.withLayout(s)
	}
	return s, err
}

// settle finds what was restored and is not open.
func (c *Context) settle() error {
	c.opened = true
	restored := c.State.Lists
	c.State.Lists = nil // those who have read them keep them
	if c.Batch {
		return nil
	}
	texts := c.carryLists(restored)
	switch {
	case c.keyed != nil:
		all, err := c.keyed.Opened()
		if err != nil {
			return c.restoring("keyed state", err)
		}
		for _, u := range all {
			size := fmt.Sprintf("%d bytes", u.Bytes)
			if u.Entries >= 0 {
				size = fmt.Sprintf("%d entries, %s", u.Entries, size)
			}
			texts = append(texts, fmt.Sprintf("%s (%s)", strings.TrimPrefix(u.Name, userPrefix), size))
		}
	case len(c.State.Keyed) > 0:
		c.Logger.Warn().Str("operator", c.Describe()).Msg("the restored keyed state is not in the next checkpoint: the operator has no keyed state any more")
	}
	if len(texts) > 0 {
		c.Logger.Info().Str("operator", c.Describe()).Strs("states", texts).
			Msg("restored state that Open does not open is carried along in each checkpoint; to get rid of it, open and clear it, or give the operator another uid and start with --allowNonRestoredState")
	}
	return nil
}

// carryLists notes the lists that are not open, and describes them.
func (c *Context) carryLists(restored []metadata.ListState) (texts []string) {
	schemas := map[string][]byte{}
	for _, l := range restored {
		if l.Name != schemasState {
			continue
		}
		for _, item := range l.Items { // each subtask stored its own
			var s storedSchema
			if json.Unmarshal(item, &s) == nil {
				schemas[s.Name] = item
			}
		}
	}
	for _, l := range restored {
		name, user := strings.CutPrefix(l.Name, userPrefix)
		schema, known := schemas[name]
		if _, open := c.subtaskStates[name]; !user || !known || open || l.Mode == metadata.Union && c.Subtask > 0 {
			continue
		}
		c.carried.lists = append(c.carried.lists, l)
		c.carried.schemas = append(c.carried.schemas, schema)
		size := 0
		for _, item := range l.Items {
			size += len(item)
		}
		texts = append(texts, fmt.Sprintf("%s (%d items, %d bytes)", name, len(l.Items), size))
	}
	return texts
}

// addTo adds to the lists of a snapshot.
func (c *carriedLists) addTo(lists []metadata.ListState) []metadata.ListState {
	if len(c.lists) == 0 {
		return lists
	}
	lists = append(lists, c.lists...)
	for i := range lists {
		if lists[i].Name == schemasState {
			lists[i].Items = append(lists[i].Items, c.schemas...)
			return lists
		}
	}
	return append(lists, metadata.ListState{Name: schemasState, Mode: metadata.Union, Items: c.schemas})
}
