package graph

import "slices"

// Parallelism is the number of subtasks of each vertex.
type Parallelism map[VertexID]int

// Parallelism returns that of every vertex.
func (g *JobGraph) Parallelism() Parallelism {
	p := Parallelism{}
	for i := range g.Vertices {
		p[g.Vertices[i].ID] = g.Vertices[i].Parallelism
	}
	return p
}

// With returns a copy of the graph in which the vertices that p names have that parallelism. What the copy shares with g is read-only.
func (g *JobGraph) With(p Parallelism) *JobGraph {
	out := *g
	out.Vertices = slices.Clone(g.Vertices)
	for i := range out.Vertices {
		if n, ok := p[out.Vertices[i].ID]; ok {
			out.Vertices[i].Parallelism = n
		}
	}
	return &out
}
