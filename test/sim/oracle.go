package sim

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/checkpoint/inspect"
	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/checkpoint/storage"
	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/connector/kafka/enumerator"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/ha"
	"github.com/thalweg/thalweg/runtime/scheduler"
	"github.com/thalweg/thalweg/state"
)

// checkPointer looks what the store's pointer says now. A new one makes its checkpoint the truth.
func (w *World) checkPointer(m *master) {
	p, err := ha.NewFileStore(w.mem, "/ha", zerolog.Nop()).Pointer(context.Background(), m.phase.job)
	if err != nil {
		w.violate("the pointer cannot be read: %v", err)
		return
	}
	if m.phase != w.phase || m.phase.end != nil || p.ID == w.pointer {
		return
	}
	if p.ID < w.pointer {
		w.violate("the pointer went back from checkpoint %d to %d", w.pointer, p.ID)
		return
	}
	w.pointer, w.pointerDir = p.ID, p.Dir
	w.trace("checkpoint %d is the truth", p.ID)
	w.checkSnapshot(p.Dir, true)
}

// checkEnded looks whether the store knows the job's end now.
func (w *World) checkEnded(m *master) {
	all, err := ha.NewFileStore(w.mem, "/ha", zerolog.Nop()).Results(context.Background())
	if err != nil {
		w.violate("the results cannot be read: %v", err)
		return
	}
	r, ok := all[m.phase.job]
	if !ok || m.phase.end != nil {
		return
	}
	w.trace("the job has ended: %s", r.State)
	m.phase.end = &ending{scheduler.JobState(r.State), m.stopped}
	w.point("ended")
}

// checkSavepoint looks into a savepoint.
func (w *World) checkSavepoint(dir string) { w.checkSnapshot(dir, false) }

// checkReadable finds out whether what the pointer names is still there.
func (w *World) checkReadable() {
	if w.pointer == 0 || w.violation != "" || w.phase.end != nil {
		return
	}
	c, err := storage.ReadMetadata(context.Background(), w.clean, w.pointerDir)
	if err != nil {
		w.violate("the pointer names checkpoint %d, which cannot be read any more: %v", w.pointer, err)
		return
	}
	w.checkFiles(&c)
}

func (w *World) checkFiles(c *metadata.Checkpoint) {
	c.Refs(func(r *state.FileRef) {
		if r.Name == "" {
			return
		}
		uri, err := storage.Resolve(r.Base, r.Name)
		if err == nil {
			var u fs.FileSystem
			var p string
			if u, p, err = w.clean.Resolve(context.Background(), uri); err == nil {
				_, err = u.Stat(context.Background(), p)
			}
		}
		if err != nil {
			w.violate("checkpoint %d names the file %s: %v", c.ID, r.Name, err)
		}
	})
}

// checkSnapshot compares a snapshot with the fold of the records before its barrier.
func (w *World) checkSnapshot(dir string, commits bool) {
	ctx := context.Background()
	s, err := inspect.Open(ctx, w.clean, dir)
	if err != nil {
		w.violate("snapshot %s cannot be read: %v", dir, err)
		return
	}
	defer func() { _ = s.Close() }()
	w.checkFiles(&s.Meta)
	w.checkTables(&s.Meta)
	next, err := positions(&s.Meta, w.in)
	if err != nil {
		w.violate("snapshot %d: %v", s.Meta.ID, err)
		return
	}
	want, outs := fold(w.in, next)
	got, err := w.totalsIn(ctx, s)
	if err != nil {
		w.violate("snapshot %d: %v", s.Meta.ID, err)
		return
	}
	later, err := w.settleUnderWay(&s.Meta, got)
	if err != nil {
		w.violate("snapshot %d: %v", s.Meta.ID, err)
		return
	}
	for k, t := range want {
		if got[k] != t {
			w.violate("snapshot %d holds %+v for key %d; the records before its barrier (%v) make %+v", s.Meta.ID, got[k], k, next, t)
			return
		}
	}
	if len(got) != len(want) {
		w.violate("snapshot %d holds %d keys; the records before its barrier (%v) have %d", s.Meta.ID, len(got), next, len(want))
		return
	}
	if commits {
		w.checkPrepared(&s.Meta, later, outs)
	}
}

// positions are the next record of each split: the readers', 0 for those that the enumerator has not handed out, and the end for the others.
func positions(c *metadata.Checkpoint, in [][]Event) ([]int64, error) {
	next := make([]int64, len(in))
	var pipes []graph.OperatorID // their sources
	for i := range c.Operators {
		if is(c.Operators[i].UID, "source") {
			pipes = append(pipes, c.Operators[i].ID)
			if c.Operators[i].UID == "source" {
				slices.Reverse(pipes) // the first one first
			}
		}
	}
	for pipe, op := range pipes {
		state, there := c.Coordinators[op]
		known := there && len(state) > 5 && binary.BigEndian.Uint32(state[2:]) > 0 // see enumerator.Core.Snapshot
		if !known {
			continue
		}
		core, err := enumerator.New(enumerator.Config{Parallelism: 1, Final: true, Bounded: true}, state)
		if err != nil {
			return nil, err
		}
		for s := range next {
			if pipeOf(s, len(pipes)) == pipe {
				next[s] = int64(len(in[s]))
			}
		}
		for _, e := range core.ReaderUp(0) {
			if a, ok := e.(enumerator.Assign); ok {
				for _, s := range a.Splits {
					n, at, err := position(s)
					if err != nil {
						return nil, err
					}
					next[n] = at
				}
			}
		}
	}
	seen := map[int]bool{}
	for _, item := range items(c, "source", "source-splits") {
		var s connector.Split
		if err := json.Unmarshal(item, &s); err != nil {
			return nil, err
		}
		n, at, err := position(s)
		if err != nil {
			return nil, err
		}
		if seen[n] {
			return nil, fmt.Errorf("split %d is in it twice", n)
		}
		seen[n], next[n] = true, at
	}
	return next, nil
}

// items are those of a list of the operators of that name.
func items(c *metadata.Checkpoint, name, list string) (all [][]byte) {
	for i := range c.Operators {
		if !is(c.Operators[i].UID, name) {
			continue
		}
		for _, s := range c.Operators[i].Subtasks {
			for _, l := range s.Lists {
				if l.Name == list {
					all = append(all, l.Items...)
				}
			}
		}
	}
	return all
}

func (w *World) totalsIn(ctx context.Context, s *inspect.Snapshot) (map[int64]Total, error) {
	got := map[int64]Total{}
	for _, o := range s.Operators() {
		if !is(o.UID, "totals") {
			continue
		}
		for _, st := range o.States {
			if st.Name != "user-total" {
				continue
			}
			err := s.Each(ctx, st, func(e inspect.Entry) error {
				k, err := strconv.ParseInt(string(e.Key), 10, 64)
				if err != nil {
					return err
				}
				var t Total
				if err := json.Unmarshal(e.Value, &t); err != nil {
					return err
				}
				if _, twice := got[k]; twice {
					return fmt.Errorf("key %d is in it twice", k)
				}
				got[k] = t
				return nil
			})
			if err != nil {
				return nil, err
			}
		}
	}
	return got, nil
}

// checkPrepared: what is committed, or prepared for this checkpoint, or comes later of what is under way, is the output of the records before
// its barrier.
func (w *World) checkPrepared(c *metadata.Checkpoint, later, want []Out) {
	in := map[string]bool{}
	for _, item := range items(c, "sink", "sink-committables") {
		var p struct{ Items [][]byte }
		err := json.Unmarshal(item, &p)
		var all []committable
		if err == nil {
			all, err = decodeCommittables(p.Items)
		}
		if err != nil {
			w.violate("snapshot %d: committables: %v", c.ID, err)
			return
		}
		for _, m := range all {
			in[fmt.Sprintf("%s@%d", m.ID, m.Epoch)] = true
			if t := w.broker.find(m.ID, m.Epoch); t != nil {
				t.promised = true
			}
		}
	}
	got := later
	for _, x := range w.broker.log {
		if x.out.Kind == kindTotal && (x.txn.state == txnCommitted || in[x.txn.String()]) {
			got = append(got, x.out)
		}
	}
	w.compare(fmt.Sprintf("what is committed or prepared at checkpoint %d", c.ID), got, want)
}

// compare compares multisets.
func (w *World) compare(what string, got, want []Out) {
	got, want = slices.Clone(got), slices.Clone(want)
	slices.SortFunc(got, compareOut)
	slices.SortFunc(want, compareOut)
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got) || i < len(want) && compareOut(want[i], got[i]) < 0:
			w.violate("%s lacks %+v (%d records, want %d)", what, want[i], len(got), len(want))
		case i >= len(want) || compareOut(got[i], want[i]) < 0:
			w.violate("%s has %+v, which should not be there, or not twice (%d records, want %d)", what, got[i], len(got), len(want))
		default:
			continue
		}
		return
	}
}

// checkEnd judges a run that has come to its end.
func (w *World) checkEnd() {
	var got []Out
	last := map[int64]int64{}
	for _, x := range w.broker.log {
		if x.txn.state != txnCommitted {
			continue
		}
		got = append(got, x.out)
		if x.out.Kind != kindTotal {
			continue
		}
		if x.out.N != last[x.out.Key]+1 {
			w.violate("key %d: output %d comes behind %d", x.out.Key, x.out.N, last[x.out.Key])
			return
		}
		last[x.out.Key] = x.out.N
	}
	w.compare("the committed output", got, reference(w.in, w.plan.Pipes))
	if open := w.broker.opened(); len(open) > 0 {
		w.violate("transaction %s is left open, prepared for checkpoint %d", open[0], open[0].prepared)
	}
	w.checkLeft([]string{})
}

// checkNumber: no two attempts use one number for a checkpoint, or they would share a folder, and the names of files.
func (w *World) checkNumber(m *master, id int64) {
	if e, used := w.numbers[id]; used && e != m.epoch && m.phase == w.phase {
		w.violate("epoch %d takes a checkpoint %d, and epoch %d had one", m.epoch, id, e)
	}
	w.numbers[id] = m.epoch
}

// checkLeft looks for files that nobody names when a job has ended: below its folder there is what was retained, and no more. What a zombie
// wrote is nobody's fault.
func (w *World) checkLeft(retained []string) {
	if w.leaves || w.zombies {
		return
	}
	for _, dir := range retained {
		c, err := storage.ReadMetadata(context.Background(), w.clean, dir)
		if err != nil {
			w.violate("checkpoint %s is retained, and cannot be read: %v", dir, err)
			return
		}
		w.checkFiles(&c)
	}
	st := storage.New(w.mem, "/checkpoints", w.phase.job)
	orphans, err := st.Orphans(context.Background(), retained)
	if err != nil || len(orphans) > 0 {
		w.violate("files are left at the end of the job: %v %v", orphans, err)
	}
}

// checkCommitted: a job that was stopped with a savepoint has committed all that belongs to it.
func (w *World) checkCommitted() {
	for _, t := range w.broker.opened() {
		if t.promised {
			w.violate("the job was stopped, and transaction %s of its savepoint is not committed", t)
		}
	}
}
