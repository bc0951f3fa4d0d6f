package task

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/checkpoint/storage"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/network"
	"github.com/thalweg/thalweg/runtime/operator"
	"github.com/thalweg/thalweg/runtime/rpc/pb"
	"github.com/thalweg/thalweg/runtime/task/barrier"
)

const endOfDataState = pb.TaskState_END_OF_DATA

// compose makes the outputs, the chain and the inputs, in this order: consumers of this task may connect as soon as the partitions
// are registered, while its own state is still being restored.
func (t *Task) compose() error {
	if len(t.d.Subpartitions) != len(t.d.Vertex.Outputs) || len(t.d.Inputs) != len(t.d.Vertex.Inputs) {
		return fmt.Errorf("task: deployment of %s has %d inputs and %d outputs, the graph %d and %d", t.d.Vertex.Name,
			len(t.d.Inputs), len(t.d.Subpartitions), len(t.d.Vertex.Inputs), len(t.d.Vertex.Outputs))
	}
	t.unaligned = newUnaligned(t)
	partition := make([]*network.Partition, len(t.d.Subpartitions))
	for i, n := range t.d.Subpartitions {
		if t.d.Vertex.Partition(i) != i {
			continue // its consumers read those of another
		}
		p, err := t.newPartition(i, n)
		if err != nil {
			return fmt.Errorf("task: output %d of %s: %w", i, t.d.Vertex.Name, err)
		}
		partition[i] = p
		t.parts = append(t.parts, p)
	}
	t.together()
	t.outTypes = make([]operator.Type, len(t.d.Subpartitions))
	n := len(t.d.Vertex.Operators)
	t.ops, t.ctxs = make([]operator.Operator, n), make([]*operator.Context, n)
	restored := map[graph.OperatorID]metadata.Subtask{}
	for _, o := range t.d.Restore.Operators {
		restored[o.ID] = o.State
	}
	t.mute = slices.ContainsFunc(t.d.Head.Node.In, t.sorts)
	if err := t.chain(t.d.Head, restored, partition); err != nil {
		return err
	}
	if t.d.CommitOnly {
		t.input = nothing{}
		return nil
	}
	if s, ok := t.ops[0].(operator.SourceHead); ok {
		t.source = s
		t.input = newSourceInput(t, s)
		return nil
	}
	return t.connect()
}

// together lets the outputs that are the inputs of one consumer flow in step.
func (t *Task) together() {
	if t.d.Batch {
		return
	}
	for i, o := range t.d.Vertex.Outputs {
		parts := []*network.Partition{t.parts[i]}
		for j, p := range t.d.Vertex.Outputs {
			if p.To != o.To || t.d.Subpartitions[j] != t.d.Subpartitions[i] || j == i {
				continue
			}
			if j < i { // was the first of them
				parts = nil
				break
			}
			parts = append(parts, t.parts[j])
		}
		if len(parts) > 1 {
			network.Together(parts...)
		}
	}
}

// chain composes a node after everything downstream of it. partition holds the task's partitions by output.
func (t *Task) chain(c *graph.ChainNode, restored map[graph.OperatorID]metadata.Subtask, partition []*network.Partition) error {
	outs := map[string][]any{} // by tag
	for _, next := range c.Chained {
		if err := t.chain(next, restored, partition); err != nil {
			return err
		}
		outs[next.Tag] = append(outs[next.Tag], t.ops[next.Index].Input(next.Node.In[0].Input))
	}
	types := operator.OutputTypes(c.Node)
	var writers []any
	for _, o := range c.Outputs {
		typ := types[o.Tag]
		if typ == nil {
			return fmt.Errorf("task: output %q of %s has no record type", o.Tag, c.Node.Name)
		}
		t.outTypes[o.Index] = typ
		w, err := typ.Writer(partition[o.Index], t.d.Subpartitions[o.Index], t.d.Subtask, t.consumerMax(o.Index), o.Partitioner, o.Keyer,
			config.BufferTimeout.Value(t.env.Config) == 0 && !t.d.Batch)
		if err != nil {
			return fmt.Errorf("task: output of %s: %w", c.Node.Name, err)
		}
		if r, ok := w.(interface{ Records() int64 }); ok {
			t.writers = append(t.writers, r)
		}
		outs[o.Tag] = append(outs[o.Tag], w)
		writers = append(writers, w)
	}
	out, side, err := operator.Outputs(t.env.Config, types, outs)
	if err != nil {
		return err
	}
	f, ok := c.Node.Impl.(operator.Factory)
	if !ok {
		return fmt.Errorf("task: %s has no implementation in this process", c.Node.Name)
	}
	ctx := t.operatorContext(c, restored)
	for _, w := range writers {
		operator.Owned(w, ctx)
	}
	if typ := types[""]; t.mute && c == t.d.Head && typ != nil {
		if out, err = typ.Mute(out, &t.mute); err != nil {
			return err
		}
	}
	ctx.Side = side
	op, err := f.New(ctx, out)
	if op != nil {
		t.ops[c.Index], t.ctxs[c.Index] = op, ctx // also after an error, so that it is closed
	}
	if err != nil {
		return err
	}
	return nil
}

// consumerMax is the max parallelism of the consumer of an output: key groups are the consumer's.
func (t *Task) consumerMax(output int) int {
	if m, ok := t.d.ConsumerMax[output]; ok {
		return m
	}
	return t.d.MaxParallelism
}

func (t *Task) operatorContext(c *graph.ChainNode, restored map[graph.OperatorID]metadata.Subtask) *operator.Context {
	ctx := &operator.Context{
		Services: t, ID: c.ID, Name: c.Node.Name, UID: c.Node.UID, CallSite: c.Node.CallSite, TimesFrom: c.Node.TimesFrom, Index: c.Index, JobID: t.env.JobID, Embedded: t.env.Embedded, JobName: t.d.JobName, Files: t.env.FS,
		Subtask: t.d.Subtask, Parallelism: t.d.Parallelism, MaxParallelism: t.d.MaxParallelism, Attempt: t.d.Execution.Attempt,
		Config: t.env.Config, Metrics: t.metrics.operator(c.ID, c.Node.Name), Mark: &t.mark,
		RestoredCheckpoint: t.d.RestoredCheckpoint, State: restored[c.ID],
		StateSource: t.env.Recover.Source(storage.NewSource(t.env.FS)), StateMemory: t.env.StateMemory,
		Checkpointing: config.CheckpointInterval.Value(t.env.Config) > 0 || t.d.Batch, Batch: t.d.Batch,
	}
	if t.env.StatePool != nil {
		ctx.StatePool = t.env.StatePool(t.d.Vertex.SlotSharingGroup, t.d.Subtask)
	}
	ctx.Logger = t.log.With().Str("operator", c.Node.Name).Str("uid", c.Node.UID).Logger()
	if len(t.env.Dirs) > 0 {
		dir := t.env.Dirs[t.d.Subtask%len(t.env.Dirs)]
		ctx.StateDir = filepath.Join(dir, "state", t.d.Execution.String()+"_"+c.ID.String()[:8])
	}
	return ctx
}

// connect opens the gates and their readers.
func (t *Task) connect() error {
	in := &gateInput{t: t, atEnd: t.reachEnd}
	t.input = in
	var sorted *sortedInput
	if slices.ContainsFunc(t.d.Head.Node.In, t.sorts) {
		sorted = &sortedInput{gateInput: gateInput{t: t}}
		in = &sorted.gateInput
		in.atEnd, t.input = sorted.sort, sorted
	}
	perInput := map[int]int{} // input of the head -> channels
	for i, v := range t.d.Vertex.Inputs {
		perInput[v.Input] += len(t.d.Inputs[i])
		in.channels += len(t.d.Inputs[i])
	}
	if in.channels == 0 {
		return errors.New("task: " + t.d.Vertex.Name + " has neither a source nor an input")
	}
	t.aligner = barrier.New(in.channels, config.AtLeastOnce(t.env.Config))
	readers := map[int]operator.Reader{}
	views := map[int]bool{}
	for _, e := range t.d.Head.Node.In {
		typ, ok := e.Type().(operator.Type)
		if !ok {
			return fmt.Errorf("task: input of %s has no record type", t.d.Vertex.Name)
		}
		if readers[e.Input] != nil {
			continue
		}
		var r operator.Reader
		var err error
		if t.sorts(e) {
			var s operator.SortedReader
			if s, err = t.sortedReader(typ, e, perInput[e.Input]); err == nil {
				sorted.sorted = append(sorted.sorted, s)
			}
			r = s
		} else {
			r, err = typ.Reader(t.ops[0].Input(e.Input), perInput[e.Input])
		}
		if err != nil {
			return err
		}
		r.Interrupt(t.mail.look)
		readers[e.Input], views[e.Input] = r, typ.Views()
		in.readers = append(in.readers, r)
	}
	base, first := map[int]int{}, 0
	for i, v := range t.d.Vertex.Inputs {
		opts := t.unaligned.gateOptions()
		var err error
		if opts.Restored, err = t.restoredInput(i); err != nil {
			return err
		}
		g, err := t.env.Network.NewGateWith(t.ctx, t.d.Inputs[i], t.mail.notify, opts)
		if err != nil {
			return fmt.Errorf("task: input %d of %s: %w", i, t.d.Vertex.Name, err)
		}
		g.SetRecycle(!views[v.Input])
		w := &gate{g: g, index: i, reader: readers[v.Input], base: base[v.Input], first: first}
		if t.d.Batch && len(readers) > 1 && sorted == nil { // a broadcast input is read before the other one
			w.early = v.Partitioner == graph.Broadcast
			w.late = !w.early
		}
		if w.early {
			in.early += g.Channels()
		}
		in.gates = append(in.gates, w)
		base[v.Input] += g.Channels()
		first += g.Channels()
	}
	return nil
}
