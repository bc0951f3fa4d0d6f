package graph

// EdgeKey names an edge between vertices by the operators that it connects, so that it can be found again in a graph that is chained in
// another way or has other vertices.
type EdgeKey struct {
	From  OperatorID
	Tag   string // of From's side output; "" for its main one
	To    OperatorID
	Input int // of To
	Nth   int // counts the edges that are alike in all of the above, from 0
}

// EdgeKeys names the edges into a vertex, by input.
func (g *JobGraph) EdgeKeys(v *Vertex) []EdgeKey {
	keys := make([]EdgeKey, len(v.Inputs))
	count := map[EdgeKey]int{}
	for i, in := range v.Inputs {
		out := g.Vertex(in.From).Outputs[in.FromOutput]
		k := EdgeKey{From: out.From, Tag: out.Tag, To: v.Operators[0].ID, Input: in.Input}
		count[k]++
		k.Nth = count[k] - 1
		keys[i] = k
	}
	return keys
}

// Consumer returns the vertex that an output of v goes to and the number of its input there; nil when the graph holds none.
func (g *JobGraph) Consumer(v *Vertex, output int) (to *Vertex, input int) {
	to = g.Vertex(v.Outputs[output].To)
	if to == nil {
		return nil, 0
	}
	for i, in := range to.Inputs {
		if in.From == v.ID && in.FromOutput == output {
			return to, i
		}
	}
	return nil, 0
}

// Overtakes reports whether barriers of unaligned checkpoints may overtake data on the edges into v. They may not where one of the edges
// connects single subtasks with each other (forward, rescale), or is a broadcast: what is under way there could not be dealt out to another
// number of subtasks. All edges into v are then aligned ones, since a task takes a checkpoint in one way.
// Source: Flink StreamGraphGenerator.shouldDisableUnalignedCheckpointing.
func (v *Vertex) Overtakes() bool {
	for _, in := range v.Inputs {
		if in.Partitioner.pointwise() || in.Partitioner == Broadcast {
			return false
		}
	}
	return len(v.Inputs) > 0
}
