package sim

import (
	"errors"
	"fmt"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/network"
	"github.com/thalweg/thalweg/runtime/operator"
	"github.com/thalweg/thalweg/runtime/task/barrier"
	"github.com/thalweg/thalweg/state"
)

// compose makes the outputs, the chain and the inputs, as runtime/task does.
func (t *Task) compose() error {
	v := t.d.vertex
	for i, o := range v.Outputs {
		to := t.d.graph.Vertex(o.To)
		from, until := o.Partitioner.Consumers(v.Parallelism, to.Parallelism, t.d.id.Subtask)
		id := network.PartitionID{Producer: t.d.id, Output: i}
		var p *network.Partition
		var err error
		if t.overtakes() {
			p, err = t.w.net.NewSoftPartition(t.ctx, id, until-from, t.soft())
		} else {
			p, err = t.w.net.NewPartition(t.ctx, id, until-from)
		}
		if err != nil {
			return err
		}
		t.parts = append(t.parts, p)
	}
	t.outTypes, t.tables = make([]operator.Type, len(v.Outputs)), make([]*tables, len(v.Operators))
	t.ops, t.ctxs = make([]operator.Operator, len(v.Operators)), make([]*operator.Context, len(v.Operators))
	restored := map[graph.OperatorID]metadata.Subtask{}
	for _, o := range t.d.restore.Operators {
		restored[o.ID] = o.State
	}
	if err := t.chain(t.d.head, restored); err != nil {
		return err
	}
	if s, ok := t.ops[0].(operator.SourceHead); ok {
		t.source = s
		return nil
	}
	return t.connect()
}

func (t *Task) chain(c *graph.ChainNode, restored map[graph.OperatorID]metadata.Subtask) error {
	outs := map[string][]any{}
	for _, next := range c.Chained {
		if err := t.chain(next, restored); err != nil {
			return err
		}
		outs[next.Tag] = append(outs[next.Tag], t.ops[next.Index].Input(next.Node.In[0].Input))
	}
	types := operator.OutputTypes(c.Node)
	for _, o := range c.Outputs {
		p := t.parts[o.Index]
		t.outTypes[o.Index] = types[o.Tag]
		to := t.d.graph.Vertex(t.d.vertex.Outputs[o.Index].To)
		w, err := types[o.Tag].Writer(p, p.Channels(), t.d.id.Subtask, to.MaxParallelism, o.Partitioner, o.Keyer, false)
		if err != nil {
			return err
		}
		outs[o.Tag] = append(outs[o.Tag], w)
	}
	out, side, err := operator.Outputs(t.w.conf, types, outs)
	if err != nil {
		return err
	}
	f, ok := c.Node.Impl.(operator.Factory)
	if !ok {
		return fmt.Errorf("%s has no implementation", c.Node.Name)
	}
	own := restored[c.ID]
	var tabled []state.Handle
	own.Keyed, tabled = takeTables(own.Keyed)
	if t.w.plan.Tables && c.Node.Keyed {
		if t.tables[c.Index], err = t.openTables(c.Node.Name, tabled); err != nil {
			return err
		}
	}
	ctx := t.context(c, own)
	ctx.Side = side
	op, err := f.New(ctx, out)
	if op != nil {
		t.ops[c.Index], t.ctxs[c.Index] = op, ctx
	}
	return err
}

// connect opens a gate for each channel. All inputs of the job's vertices are of one type and go to input 0 of the head.
func (t *Task) connect() error {
	n := 0
	for _, in := range t.d.inputs {
		n += len(in)
	}
	if n == 0 {
		return errors.New("a task has neither a source nor an input")
	}
	t.aligner = barrier.New(n, false)
	var err error
	if t.reader, err = t.inputType(0).Reader(t.ops[0].Input(0), n); err != nil {
		return err
	}
	for i, in := range t.d.inputs {
		if t.overtakes() {
			restored, err := t.restoredInput(i)
			if err != nil {
				return err
			}
			if err := t.gate(i, in, restored); err != nil {
				return err
			}
			continue
		}
		for _, s := range in {
			if err := t.gate(i, []network.Source{s}, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *Task) gate(input int, from []network.Source, restored []network.Restored) (err error) {
	if len(restored) > 0 && t.w.r.IntN(2) == 0 { // so that barriers find tasks that have not read it
		t.w.frozen[t] = t.w.now + t.w.r.Int64N(600)
	}
	c := &channel{index: input, base: t.inputs, ready: true}
	ready := func() { c.ready = true }
	c.gate, err = t.w.net.NewGateWith(t.ctx, from, ready, network.GateOptions{Restored: restored, Attention: ready})
	if err == nil {
		t.channels = append(t.channels, c)
		t.inputs += len(from)
	}
	return err
}
