package savepoint

import (
	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/state"
)

func edgeKey(x *metadata.Exchange) graph.EdgeKey {
	return graph.EdgeKey{From: x.From, Tag: x.Tag, To: x.To, Input: x.Input, Nth: x.Nth}
}

// checkExchanges checks that what an unaligned checkpoint found under way has an edge in g to be read from, with records of the same type.
func checkExchanges(cp metadata.Checkpoint, g graph.JobGraph, allowNonRestored bool, add func(string, ...any)) {
	if !cp.Unaligned() {
		return
	}
	types := map[graph.EdgeKey]string{} // of the main outputs; the graph does not say those of side outputs
	for i := range g.Vertices {
		v := &g.Vertices[i]
		for j, k := range g.EdgeKeys(v) {
			types[k] = ""
			for _, o := range g.Vertex(v.Inputs[j].From).Operators {
				if o.ID == k.From && k.Tag == "" {
					types[k] = o.OutType
				}
			}
		}
	}
	const instead = "let the job that wrote the checkpoint take a savepoint, which holds no records that are under way"
	name := func(id graph.OperatorID) string {
		if o := cp.Operator(id); o != nil {
			return o.Title()
		}
		return "id " + id.String()
	}
	for i := range cp.Exchanges {
		x := &cp.Exchanges[i]
		switch typ, known := types[edgeKey(x)]; {
		case !known && !allowNonRestored:
			add("records are under way from operator %s to %s in the checkpoint, which is unaligned, and the job has no exchange between the two; %s, or pass --allowNonRestoredState ("+
				config.AllowNonRestored.Key+"=true) to drop them", name(x.From), name(x.To), instead)
		case known && typ != "" && typ != x.Type:
			add("records of type %s are under way from operator %s to %s in the checkpoint, which is unaligned, and the job sends %s there; %s", x.Type, name(x.From), name(x.To), typ, instead)
		}
	}
}

// assignExchanges deals what was under way on the edges into v out to its subtasks. At unchanged parallelisms all stays in its channel. Else
// keyed records go where their key groups are, sifted; those that a function deals out to the subtasks that it says; others as they are, the
// old subtasks' shares in turn. Source: Flink SubtaskStateMapper (RANGE, FULL, ROUND_ROBIN, FIRST).
func assignExchanges(cp metadata.Checkpoint, g graph.JobGraph, v *graph.Vertex, tasks []metadata.Task) {
	if !cp.Unaligned() {
		return
	}
	index := map[graph.EdgeKey]int{}
	for i, k := range g.EdgeKeys(v) {
		index[k] = i
	}
	for i := range cp.Exchanges {
		x := &cp.Exchanges[i]
		input, ok := index[edgeKey(x)]
		if !ok {
			continue
		}
		in := v.Inputs[input]
		producers := g.Vertex(in.From).Parallelism
		groups := 0 // the consumer's when it was taken
		if o := cp.Operator(x.To); o != nil {
			groups = o.MaxParallelism
		}
		same := x.Producers == producers && x.Consumers == v.Parallelism && (in.Partitioner != graph.Hash || groups == v.MaxParallelism)
		for _, p := range x.Parts {
			for j := range tasks {
				channel, sift, mine := share(in.Partitioner, same, p, x.Consumers, groups, v, producers, j)
				if mine {
					tasks[j].InFlight = append(tasks[j].InFlight, metadata.InFlight{Sent: true, Index: input, Channel: channel, Type: x.Type, Sift: sift, Segment: p.Segment})
				}
			}
		}
	}
}

// share says whether a part, or some of its records, goes to subtask j of v, and into which of its channels.
func share(by graph.Partitioner, same bool, p metadata.Part, consumers, groups int, v *graph.Vertex, producers, j int) (channel int, sift metadata.Sift, mine bool) {
	from, to := by.Producers(producers, v.Parallelism, j)
	channel = p.Producer % (to - from)
	switch {
	case same && to-from == producers:
		return p.Producer, metadata.SiftNone, p.Consumer == j
	case by == graph.Hash:
		if groups != v.MaxParallelism {
			return channel, metadata.SiftKeys, true
		}
		old, now := state.RangeOf(groups, consumers, p.Consumer), state.RangeOf(groups, v.Parallelism, j)
		if now.Start <= old.Start && old.End <= now.End {
			return channel, metadata.SiftNone, true
		}
		return channel, metadata.SiftKeys, old.Start < now.End && now.Start < old.End
	case by == graph.Custom:
		return channel, metadata.SiftChosen, true
	case by == graph.Global:
		return channel, metadata.SiftNone, j == 0
	}
	return channel, metadata.SiftNone, p.Consumer%v.Parallelism == j
}
