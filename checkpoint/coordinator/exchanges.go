package coordinator

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/runtime/graph"
)

// exchanges puts together by edge what the tasks report of an unaligned checkpoint: consumers what had reached them, producers what waited.
func (c *Coordinator) exchanges(p *pending) []metadata.Exchange {
	g := &c.cfg.Graph
	at := map[graph.EdgeKey]int{}
	keys := map[graph.VertexID][]graph.EdgeKey{}
	var out []metadata.Exchange
	for e, t := range p.acks {
		for i := range t.InFlight {
			f := &t.InFlight[i]
			to, input := c.vertices[e.Vertex], f.Index
			part := metadata.Part{Producer: f.Channel, Consumer: e.Subtask, Sent: f.Sent, Rank: f.Rank, Segment: f.Segment}
			if !f.Sent {
				to, input = g.Consumer(to, f.Index)
				part.Producer, part.Consumer = e.Subtask, f.Channel
			}
			if keys[to.ID] == nil {
				keys[to.ID] = g.EdgeKeys(to)
			}
			key := keys[to.ID][input]
			n, known := at[key]
			if !known {
				n = len(out)
				at[key] = n
				out = append(out, metadata.Exchange{From: key.From, Tag: key.Tag, To: key.To, Input: key.Input, Nth: key.Nth, Type: f.Type,
					Producers: g.Vertex(to.Inputs[input].From).Parallelism, Consumers: to.Parallelism})
			}
			out[n].Parts = append(out[n].Parts, part)
		}
	}
	slices.SortFunc(out, func(a, b metadata.Exchange) int {
		return cmp.Or(slices.Compare(a.To.ID[:], b.To.ID[:]), a.Input-b.Input, slices.Compare(a.From.ID[:], b.From.ID[:]), cmp.Compare(a.Tag, b.Tag), a.Nth-b.Nth)
	})
	for i := range out {
		slices.SortFunc(out[i].Parts, func(a, b metadata.Part) int {
			return cmp.Or(rank(a)-rank(b), a.Producer-b.Producer, a.Consumer-b.Consumer, waits(a)-waits(b))
		})
	}
	return out
}

func rank(p metadata.Part) int {
	if p.Rank == 0 {
		return math.MaxInt32
	}
	return p.Rank
}

func waits(p metadata.Part) int {
	if p.Sent {
		return 0
	}
	return 1
}

// checkInFlight refuses a report of channels that the vertex does not have.
func (c *Coordinator) checkInFlight(v *graph.Vertex, t metadata.Task) error {
	g := &c.cfg.Graph
	for i := range t.InFlight {
		f := &t.InFlight[i]
		if f.Sent && f.Index < len(v.Inputs) && f.Channel < g.Vertex(v.Inputs[f.Index].From).Parallelism && v.Overtakes() {
			continue
		}
		if !f.Sent && f.Index < len(v.Outputs) {
			if to, _ := g.Consumer(v, f.Index); to != nil && f.Channel < to.Parallelism && to.Overtakes() {
				continue
			}
		}
		return fmt.Errorf("vertex %q acknowledged data that was under way in a channel that it does not have (%d of %d)", v.Name, f.Channel, f.Index)
	}
	return nil
}
