package graph

import (
	"strings"
	"testing"
)

// A vertex says whether its max parallelism follows from its parallelism: then restored state may bring another, and a number that the
// user set for any operator of a chain is set for the chain.
func TestDerivedMaxParallelism(t *testing.T) {
	derive := func(p int) int { return 128 * p }
	for name, c := range map[string]struct {
		job, source, second int
		want                bool
	}{
		"derived":         {-1, 0, 0, true},
		"set for the job": {256, 0, 0, false},
		"set for one":     {-1, 0, 128, false},
		"set for both":    {-1, 256, 256, false},
	} {
		t.Run(name, func(t *testing.T) {
			g := func() *StreamGraph {
				a := &Node{Kind: "source", Name: "a", MaxParallelism: c.source}
				return &StreamGraph{Name: "j", Nodes: []*Node{a, {Kind: "map", Name: "b", MaxParallelism: c.second, In: []Edge{{From: a}}}}}
			}
			p, err := Translate(g(), Options{Parallelism: 1, MaxParallelism: c.job, Chaining: true, DefaultMax: derive})
			if err != nil {
				t.Fatal(err)
			}
			if n := len(p.Graph.Vertices); n != 1 || p.Graph.Vertices[0].MaxDerived != c.want {
				t.Fatalf("%d vertices, %+v", n, p.Graph.Vertices[0])
			}
			set, err := Translate(g(), Options{Parallelism: 1, MaxParallelism: p.Graph.Vertices[0].MaxParallelism, Chaining: true, DefaultMax: derive})
			if err != nil {
				t.Fatal(err)
			}
			if d := Diff(p.Graph, set.Graph, "first", "second"); strings.Contains(d, "derived") != c.want {
				t.Errorf("the difference is told as %q", d)
			}
		})
	}
}
