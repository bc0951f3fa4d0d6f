package sim

import (
	"errors"
	"fmt"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/network"
	"github.com/thalweg/thalweg/runtime/operator"
	"github.com/thalweg/thalweg/runtime/task/barrier"
)

// compose makes the outputs, the chain and the inputs, as runtime/task does.
func (t *Task) compose() error {
	v := t.d.vertex
	for i, o := range v.Outputs {
		to := t.d.graph.Vertex(o.To)
		from, until := o.Partitioner.Consumers(v.Parallelism, to.Parallelism, t.d.id.Subtask)
		p, err := t.w.net.NewPartition(t.ctx, network.PartitionID{Producer: t.d.id, Output: i}, until-from)
		if err != nil {
			return err
		}
		t.parts = append(t.parts, p)
	}
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
		to := t.d.graph.Vertex(t.d.vertex.Outputs[o.Index].To)
		w, err := types[o.Tag].Writer(p, p.Channels(), t.d.id.Subtask, to.MaxParallelism, o.Partitioner, o.Keyer, false)
		if err != nil {
			return err
		}
		outs[o.Tag] = append(outs[o.Tag], w)
	}
	out, side, err := operator.Outputs(types, outs)
	if err != nil {
		return err
	}
	f, ok := c.Node.Impl.(operator.Factory)
	if !ok {
		return fmt.Errorf("%s has no implementation", c.Node.Name)
	}
	ctx := t.context(c, restored[c.ID])
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
	typ, ok := t.d.head.Node.In[0].Type().(operator.Type)
	if !ok {
		return errors.New("an input has no record type")
	}
	r, err := typ.Reader(t.ops[0].Input(0), n)
	if err != nil {
		return err
	}
	for _, in := range t.d.inputs {
		for _, s := range in {
			c := &channel{reader: r, base: len(t.channels), ready: true}
			if c.gate, err = t.w.net.NewGate(t.ctx, []network.Source{s}, func() { c.ready = true }); err != nil {
				return err
			}
			t.channels = append(t.channels, c)
		}
	}
	return nil
}
