package savepoint

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/state"
)

// edge is a source, of n subtasks, and what reads it, of m.
func edge(by graph.Partitioner, n, m, maxP int) graph.JobGraph {
	from := vertex(1, "from", n, maxP, graph.Operator{ID: op(1), OutType: "T#1"})
	from.Outputs = []graph.Output{{To: graph.VertexID{ID: graph.ID{2}}, From: op(1), Partitioner: by}}
	to := vertex(2, "to", m, maxP, graph.Operator{ID: op(2)})
	to.Inputs = []graph.Input{{From: from.ID, Partitioner: by}}
	return graph.JobGraph{Vertices: []graph.Vertex{from, to}}
}

// What was under way is dealt out to any number of subtasks: each record to one, a keyed one to that of its key group, the records of a key
// in their order, and at unchanged parallelism in the channel that it was in.
func TestWhatWasUnderWayIsDealtOut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		by := rapid.SampledFrom([]graph.Partitioner{graph.Hash, graph.Rebalance, graph.Shuffle, graph.Global, graph.Custom}).Draw(t, "partitioner")
		maxP := rapid.IntRange(4, 40).Draw(t, "key groups")
		draw := func(what string) int { return rapid.IntRange(1, 4).Draw(t, what) }
		oldN, oldM, newN, newM := draw("producers"), draw("consumers"), draw("new producers"), draw("new consumers")
		x := metadata.Exchange{From: op(1), To: op(2), Type: "T#1", Producers: oldN, Consumers: oldM}
		for i := range oldN {
			for j := range oldM {
				for _, sent := range []bool{true, false} {
					x.Parts = append(x.Parts, metadata.Part{Producer: i, Consumer: j, Sent: sent,
						Segment: metadata.Segment{File: state.FileRef{Name: fmt.Sprint(i, "-", j, "-", sent)}}})
				}
			}
		}
		cp := metadata.Checkpoint{Exchanges: []metadata.Exchange{x}, Operators: []metadata.Operator{{ID: op(1), MaxParallelism: maxP}, {ID: op(2), MaxParallelism: maxP}}}
		g := edge(by, newN, newM, maxP)
		if _, err := Check(cp, g, false); err != nil {
			t.Fatal(err)
		}
		out, err := Assign(cp, g)
		if err != nil {
			t.Fatal(err)
		}
		tasks := out[g.Vertices[1].ID]
		same := oldN == newN && oldM == newM
		for _, p := range x.Parts {
			if by == graph.Global && p.Consumer > 0 {
				continue // nothing is sent there
			}
			for group := range maxP {
				if by == graph.Hash && !state.RangeOf(maxP, oldM, p.Consumer).Contains(group) {
					continue // no such record in the part
				}
				var takers []int
				for j := range tasks {
					for _, f := range tasks[j].InFlight {
						if f.Segment.File.Name != p.Segment.File.Name {
							continue
						}
						if f.Channel >= newN || !f.Sent || f.Index != 0 {
							t.Fatalf("subtask %d gets %+v", j, f)
						}
						if same && (f.Channel != p.Producer || j != p.Consumer) {
							t.Fatalf("%s went to channel %d of subtask %d", f.Segment.File.Name, f.Channel, j)
						}
						switch f.Sift {
						case metadata.SiftNone:
							takers = append(takers, j)
						case metadata.SiftKeys:
							if state.RangeOf(maxP, newM, j).Contains(group) {
								takers = append(takers, j)
							}
						case metadata.SiftChosen:
							if group%newM == j {
								takers = append(takers, j)
							}
						}
					}
				}
				if len(takers) != 1 || by == graph.Hash && !state.RangeOf(maxP, newM, takers[0]).Contains(group) || by == graph.Global && takers[0] != 0 {
					t.Fatalf("%s, group %d: taken by subtasks %v of %d", p.Segment.File.Name, group, takers, newM)
				}
			}
		}
		for j := range tasks { // what had arrived before what waited, of each pair
			at := map[string]int{}
			for i, f := range tasks[j].InFlight {
				at[f.Segment.File.Name] = i + 1
			}
			for name, i := range at {
				if pair, waited := strings.CutSuffix(name, "false"); waited && at[pair+"true"] > i {
					t.Fatalf("subtask %d reads %s before what was sent before", j, name)
				}
			}
		}
	})
}

func TestRecordsUnderWayNeedTheirEdge(t *testing.T) {
	cp := metadata.Checkpoint{Exchanges: []metadata.Exchange{{From: op(1), To: op(2), Type: "T#1", Producers: 1, Consumers: 1}},
		Operators: []metadata.Operator{{ID: op(1), UID: "a", MaxParallelism: 4}, {ID: op(2), UID: "b", MaxParallelism: 4}}}
	other := edge(graph.Hash, 1, 1, 4)
	other.Vertices[0].Operators[0].OutType = "T#2"
	gone := edge(graph.Hash, 1, 1, 4)
	gone.Vertices[1].Inputs, gone.Vertices[0].Outputs = nil, nil
	for want, g := range map[string]graph.JobGraph{
		`records of type T#1 are under way from operator uid "a" to uid "b" in the checkpoint, which is unaligned, and the job sends T#2 there`:     other,
		`records are under way from operator uid "a" to uid "b" in the checkpoint, which is unaligned, and the job has no exchange between the two`: gone,
	} {
		_, err := Check(cp, g, false)
		var m *MisfitError
		if !errors.As(err, &m) || !slices.ContainsFunc(m.Misfits, func(s string) bool { return strings.Contains(s, want) && strings.Contains(s, "take a savepoint") }) {
			t.Errorf("%v\nwant %s", err, want)
		}
	}
	if _, err := Check(cp, gone, true); err != nil {
		t.Errorf("they are not dropped: %v", err)
	}
	if out, err := Assign(cp, gone); err != nil || len(out[gone.Vertices[1].ID][0].InFlight) > 0 {
		t.Errorf("%+v, %v", out, err)
	}
}
