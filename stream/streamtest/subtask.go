package streamtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/checkpoint/storage"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/network"
	"github.com/thalweg/thalweg/runtime/operator"
)

// subtask is a chain of operators behind the inputs of its vertex, as runtime/task makes it, but without a goroutine.
type subtask struct {
	j        *engine
	vertex   *graph.Vertex
	index    int
	max      []int // of the consumers, by output
	ops      []operator.Operator
	ctxs     []*operator.Context
	mark     operator.Marker
	parts    []*network.Partition
	inputs   []input
	channels int
	atEnd    int // channels whose data ended
	source   operator.SourceHead
	own      bool // reads an Input, or nothing: not a source of the program's
	opened   bool
	ended    bool
}

// input is one gate of a subtask.
type input struct {
	gate   *network.Gate
	reader operator.Reader
	base   int
}

// stateMemory is what pebble may use for caches.
const stateMemory = 32 << 20

// open builds everything that runs, from a checkpoint if there is one.
func (j *engine) open(c *metadata.Checkpoint) (err error) {
	defer j.recovered(&err)
	assigned, g, err := j.restore(c)
	if err != nil {
		return j.fail(err)
	}
	j.runs++
	j.running = true
	j.probes = map[probeID]any{}
	j.ctx, j.cancel = context.WithCancel(context.Background())
	// One goroutine writes and reads: nothing may wait for room in a channel.
	j.net = network.New(network.Config{BuffersPerChannel: 1 << 30}, j.log)
	first := map[graph.VertexID]int{}
	vertices := map[graph.VertexID]*graph.Vertex{}
	for i := range g.Vertices {
		v := &g.Vertices[i]
		vertices[v.ID] = v
		first[v.ID] = len(j.subtasks)
		for s := range v.Parallelism {
			j.subtasks = append(j.subtasks, &subtask{j: j, vertex: v, index: s})
		}
	}
	for _, s := range j.subtasks {
		if err := s.outputs(vertices); err != nil {
			return j.fail(err)
		}
	}
	for _, s := range j.subtasks {
		var t metadata.Task
		if assigned != nil {
			t = assigned[s.vertex.ID][s.index]
		}
		if err := s.compose(t, c); err != nil {
			return j.fail(err)
		}
	}
	for _, s := range j.subtasks {
		if err := s.connect(vertices); err != nil {
			return j.fail(err)
		}
	}
	for _, s := range j.subtasks {
		j.at = s
		for i := len(s.ops) - 1; i >= 0; i-- {
			if err := operator.Open(j.ctx, s.ops[i], s.ctxs[i]); err != nil {
				return j.fail(fmt.Errorf("open: %w", err))
			}
		}
		s.opened = true
	}
	return j.openEnumerators(c)
}

func (s *subtask) execution(v *graph.Vertex, index int) graph.ExecutionID {
	return graph.ExecutionID{Vertex: v.ID, Subtask: index, Attempt: s.j.runs}
}

func (s *subtask) outputs(vertices map[graph.VertexID]*graph.Vertex) error {
	for i, o := range s.vertex.Outputs {
		to := vertices[o.To]
		from, until := o.Partitioner.Consumers(s.vertex.Parallelism, to.Parallelism, s.index)
		p, err := s.j.net.NewPartition(s.j.ctx, network.PartitionID{Producer: s.execution(s.vertex, s.index), Output: i}, until-from)
		if err != nil {
			return err
		}
		s.parts, s.max = append(s.parts, p), append(s.max, to.MaxParallelism)
	}
	return nil
}

func (s *subtask) compose(t metadata.Task, c *metadata.Checkpoint) error {
	s.j.at = s
	restored := map[graph.OperatorID]metadata.Subtask{}
	for _, o := range t.Operators {
		restored[o.ID] = o.State
	}
	s.ops, s.ctxs = make([]operator.Operator, len(s.vertex.Operators)), make([]*operator.Context, len(s.vertex.Operators))
	if err := s.chain(s.j.prog.Heads[s.vertex.ID], restored, c); err != nil {
		return err
	}
	if src, ok := s.ops[0].(operator.SourceHead); ok {
		s.source = src
		n := s.j.prog.Heads[s.vertex.ID].Node
		_, s.own = n.Impl.(interface{ Connector() any }).Connector().(interface{ input() anyInput })
	}
	return nil
}

// chain composes a node after everything downstream of it.
func (s *subtask) chain(c *graph.ChainNode, restored map[graph.OperatorID]metadata.Subtask, from *metadata.Checkpoint) error {
	outs := map[string][]any{} // by tag
	for _, next := range c.Chained {
		if err := s.chain(next, restored, from); err != nil {
			return err
		}
		outs[next.Tag] = append(outs[next.Tag], s.ops[next.Index].Input(next.Node.In[0].Input))
	}
	types := operator.OutputTypes(c.Node)
	for _, o := range c.Outputs {
		p := s.parts[o.Index]
		w, err := types[o.Tag].Writer(p, p.Channels(), s.index, s.max[o.Index], o.Partitioner, o.Keyer, false)
		if err != nil {
			return err
		}
		outs[o.Tag] = append(outs[o.Tag], w)
	}
	out, side, err := operator.Outputs(s.j.prog.Graph.Config, types, outs)
	if err != nil {
		return err
	}
	f, ok := c.Node.Impl.(operator.Factory)
	if !ok {
		return fmt.Errorf("%s has no implementation", c.Node.Name)
	}
	ctx, err := s.context(c, restored[c.ID], from)
	if err != nil {
		return err
	}
	ctx.Side = side
	op, err := f.New(ctx, out)
	if op != nil {
		s.ops[c.Index], s.ctxs[c.Index] = op, ctx
	}
	return err
}

func (s *subtask) context(c *graph.ChainNode, restored metadata.Subtask, from *metadata.Checkpoint) (*operator.Context, error) {
	j := s.j
	ctx := &operator.Context{
		Services: services{j, s, j.ctx}, ID: c.ID, Name: c.Node.Name, UID: c.Node.UID, CallSite: c.Node.CallSite, TimesFrom: c.Node.TimesFrom, Index: c.Index, JobID: j.id, JobName: j.prog.Graph.Name, Files: j.reg,
		Subtask: s.index, Parallelism: s.vertex.Parallelism, MaxParallelism: s.vertex.MaxParallelism, Attempt: j.runs - 1,
		Config: j.prog.Graph.Config, Logger: j.log.With().Str("operator", c.Node.Name).Int("subtask", s.index).Logger(), Metrics: &j.metrics, Mark: &s.mark,
		State: restored, StateSource: storage.NewSource(j.reg), StateMemory: stateMemory, Checkpointing: true,
	}
	if from != nil {
		ctx.RestoredCheckpoint = from.ID
	}
	if config.StateBackend.Value(ctx.Config) != "hashmap" {
		if j.dir == "" {
			j.dir = j.t.TempDir()
		}
		ctx.StateDir = filepath.Join(j.dir, fmt.Sprintf("%d-%s-%d", j.runs, c.ID.String()[:8], s.index))
		if err := os.MkdirAll(j.dir, 0o750); err != nil {
			return nil, err
		}
	}
	return ctx, nil
}

// connect opens the gates and their readers.
func (s *subtask) connect(vertices map[graph.VertexID]*graph.Vertex) error {
	perInput := map[int]int{}
	sources := make([][]network.Source, len(s.vertex.Inputs))
	for i, in := range s.vertex.Inputs {
		from := vertices[in.From]
		a, b := in.Partitioner.Producers(from.Parallelism, s.vertex.Parallelism, s.index)
		for p := a; p < b; p++ {
			first, _ := in.Partitioner.Consumers(from.Parallelism, s.vertex.Parallelism, p)
			sources[i] = append(sources[i], network.Source{Partition: network.PartitionID{Producer: s.execution(from, p), Output: in.FromOutput}, Subpartition: s.index - first})
		}
		perInput[in.Input] += len(sources[i])
		s.channels += len(sources[i])
	}
	readers := map[int]operator.Reader{}
	for _, e := range s.j.prog.Heads[s.vertex.ID].Node.In {
		if readers[e.Input] != nil {
			continue
		}
		typ, ok := e.Type().(operator.Type)
		if !ok {
			return fmt.Errorf("input of %s has no record type", s.vertex.Name)
		}
		r, err := typ.Reader(s.ops[0].Input(e.Input), perInput[e.Input])
		if err != nil {
			return err
		}
		readers[e.Input] = r
	}
	base := map[int]int{}
	for i, in := range s.vertex.Inputs {
		g, err := s.j.net.NewGate(s.j.ctx, sources[i], s.j.mail.notify)
		if err != nil {
			return err
		}
		s.inputs = append(s.inputs, input{g, readers[in.Input], base[in.Input]})
		base[in.Input] += g.Channels()
	}
	return nil
}

// read takes everything that arrived.
func (s *subtask) read() (progress bool, err error) {
	s.j.at = s
	for i := range s.inputs {
		in := &s.inputs[i]
		for {
			it, ok, err := in.gate.Poll()
			if err != nil {
				return progress, err
			}
			if !ok {
				break
			}
			progress = true
			switch {
			case it.Data != nil:
				_, err = in.reader.Read(in.base+it.Channel, it.Data)
			case it.Event.Kind == network.EndOfData:
				if err = in.reader.End(in.base + it.Channel); err == nil {
					if s.atEnd++; s.atEnd == s.channels {
						err = s.end()
					}
				}
			}
			in.gate.Release(it)
			if err != nil {
				return progress, err
			}
		}
	}
	return progress, s.flush()
}

// poll reads the source; all says whether to read until it has nothing now.
func (s *subtask) poll(all bool) (connector.Status, error) {
	s.j.at = s
	if s.ended {
		return connector.EndOfInput, nil
	}
	for {
		st, err := s.source.Poll(64)
		if err == nil && st == connector.EndOfInput {
			err = s.end()
		}
		if err != nil || st != connector.MoreAvailable || !all {
			return st, errors.Join(err, s.flush())
		}
	}
}

// end runs when all input was processed.
func (s *subtask) end() error {
	if err := operator.EndOfData(s.source, s.ops, s.parts); err != nil {
		return err
	}
	s.ended = true
	return nil
}

func (s *subtask) flush() error {
	for _, p := range s.parts {
		if err := p.FlushAll(); err != nil {
			return err
		}
	}
	return nil
}

// publish makes counts known.
func (s *subtask) publish() {
	if s.opened {
		for _, o := range s.ops {
			o.Publish()
		}
	}
}

func (s *subtask) closeOperator(o operator.Operator) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = panicked{operator.Panicked(s.j.current(), r)}
		}
	}()
	return o.Close()
}

// close closes everything, whatever fails.
func (s *subtask) close() error {
	var errs []error
	s.publish()
	s.j.at = s
	for i, o := range s.ops {
		if o != nil {
			s.mark.Current = i
			errs = append(errs, s.closeOperator(o))
		}
	}
	for _, in := range s.inputs {
		in.gate.Close()
	}
	for _, p := range s.parts {
		p.Close()
	}
	return errors.Join(errs...)
}
