package coordinator

import "github.com/thalweg/thalweg/runtime/graph"

// Rescaled tells that the next tasks have another parallelism: the graph is the same else. It comes between JobRestarting and TasksRunning.
type Rescaled struct{ Graph graph.JobGraph }

func (Rescaled) event() {}

// rescaled takes the new graph. A checkpoint of before that is still being stored was assembled already.
func (c *Coordinator) rescaled(g graph.JobGraph) {
	c.cfg.Graph = g
	for i := range c.cfg.Graph.Vertices {
		v := &c.cfg.Graph.Vertices[i]
		c.vertices[v.ID] = v
	}
}
