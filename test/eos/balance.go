package eos

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"
)

// group does check 7. Without checkpoints in the history there is nothing to compare with but the end of the input, which is not the check.
func (j *judge) group() {
	c := Check{Number: 7, Name: "group offsets never ahead of the last completed checkpoint"}
	defer func() { j.add(c) }()
	end := j.inputEnds()
	cps, groups := j.h.Of(KindCheckpoint), j.h.Of(KindGroup)
	c.Checked = len(cps) > 0 && len(groups) > 0
	switch {
	case len(groups) == 0:
		c.Note = "no group offsets in the history"
	case len(cps) == 0:
		c.Note = "no checkpoints in the history: compared with the end of the input only"
	default:
		c.Note = fmt.Sprintf("%d commits against %d checkpoints", len(groups), len(cps))
	}
	for _, g := range groups {
		if e, ok := end[g.Partition]; ok && g.Offset > e+1 { // a transaction marker may follow the last record
			c.fault("partition %d: committed %d, the input ends at %d", g.Partition, g.Offset, e)
		}
		if len(cps) == 0 {
			continue
		}
		most, by := int64(-1), int64(0)
		for _, cp := range cps {
			if o, ok := cp.Offsets[g.Partition]; ok && !cp.At.After(g.At) && o > most {
				most, by = o, cp.Checkpoint
			}
		}
		if g.Offset > most {
			c.fault("partition %d at %s: committed %d, the last completed checkpoint (%d) has %d", g.Partition, g.At.Format(time.RFC3339Nano), g.Offset, by, most)
		}
	}
}

// inputEnds are the ends of the input's partitions.
func (j *judge) inputEnds() map[int32]int64 {
	end := map[int32]int64{}
	for i := range j.h.Events {
		if e := &j.h.Events[i]; e.Kind == KindIn {
			end[e.Partition] = max(end[e.Partition], e.Offset+1)
		}
	}
	return end
}

// operators does check 9: each operator's counts balance, the dead letters are the malformed records, and over all attempts each input
// record was counted in a result, dropped as late, put aside, or is in a window that is still open.
func (j *judge) operators() {
	c := Check{Number: 9, Name: "in = out + late + filtered"}
	defer func() { j.add(c) }()
	var late int64
	for _, e := range j.h.Of(KindOperator) {
		c.Checked = true
		late += e.Late
		if e.In != e.Out+e.Late+e.Filtered {
			c.fault("%s: %d in, %d out, %d late, %d filtered", e.ID, e.In, e.Out, e.Late, e.Filtered)
		}
	}
	if !c.Checked {
		c.Note = "no counts of operators in the history"
		return
	}
	dead, known := j.deadLetters(&c)
	if !known || !j.v.Checks[1].Checked {
		c.Note = "operators only: the history lacks the input, the output or the dead letters"
		return
	}
	var in, counted, held int64
	done := map[window]bool{}
	for _, r := range j.results {
		counted += r.total.Count
		done[r.w] = true
	}
	for w, s := range j.sent {
		if !done[w] {
			held += s.count
		}
	}
	in = int64(len(j.h.Of(KindIn)))
	if in != counted+late+dead+held {
		c.fault("the whole job: %d in, %d in results, %d late, %d dead letters, %d in open windows", in, counted, late, dead, held)
	}
	c.Note = fmt.Sprintf("the whole job: %d in, %d in results, %d late, %d dead letters, %d in open windows", in, counted, late, dead, held)
}

// deadLetters compares the dead letters, which are written at least once, with the malformed records. known is false when the history has
// malformed records and nothing about dead letters.
func (j *judge) deadLetters(c *Check) (n int64, known bool) {
	bad := map[place]string{}
	for i := range j.h.Events {
		if e := &j.h.Events[i]; e.Kind == KindIn && json.Unmarshal([]byte(e.Value), new(Purchase)) != nil {
			bad[e.place()] = e.Value
		}
	}
	if len(bad) > 0 && !j.h.Has(KindDead) {
		return 0, false
	}
	seen := map[place]bool{}
	for i := range j.h.Events {
		e := &j.h.Events[i]
		if e.Kind != KindDead {
			continue
		}
		p := e.place()
		seen[p] = true
		if v, ok := bad[p]; !ok {
			c.fault("the dead letter of %v (%q) is of no malformed record", p, e.Value)
		} else if v != e.Value {
			c.fault("the dead letter of %v is %q, the record is %q", p, e.Value, v)
		}
	}
	for _, p := range slices.SortedFunc(maps.Keys(bad), comparePlaces) {
		if !seen[p] {
			c.fault("the malformed record at %v is not among the dead letters", p)
		}
	}
	return int64(len(seen)), true
}
