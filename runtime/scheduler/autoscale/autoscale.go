package autoscale

import (
	"math"
	"slices"
	"time"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/runtime/graph"
)

// Config says what is aimed at. Shares are of time, from 0 to 1.
type Config struct {
	Target, Min, Max float64 // utilization
	CatchUp          time.Duration
	Restart          time.Duration
	Stabilization    time.Duration
	Window           time.Duration
	ScaleDown        time.Duration // how long fewer must do
	UpFactor         float64       // most growth at once, as a share of what there is
	DownFactor       float64       // most decrease at once, likewise
	MinParallelism   int
	MaxParallelism   int
	Exclude          []string // vertex ids
}

// FromConfiguration reads job.autoscaler.*.
func FromConfiguration(c config.Configuration) Config {
	a := Config{Target: config.AutoscalerTarget.Value(c), Max: config.AutoscalerUtilizationMax.Value(c), Min: config.AutoscalerUtilizationMin.Value(c),
		CatchUp: config.AutoscalerCatchUp.Value(c), Restart: config.AutoscalerRestart.Value(c), Stabilization: config.AutoscalerStabilization.Value(c),
		Window: config.AutoscalerWindow.Value(c), ScaleDown: config.AutoscalerScaleDown.Value(c), UpFactor: config.AutoscalerUpFactor.Value(c),
		DownFactor: config.AutoscalerDownFactor.Value(c), MinParallelism: config.AutoscalerMin.Value(c), MaxParallelism: config.AutoscalerMax.Value(c),
		Exclude: config.AutoscalerExclude.Value(c)}
	a.Max, a.Min = max(a.Max, a.Target), min(a.Min, a.Target)
	return a
}

// Sample is what a job's tasks have reported by a moment at which all of them run.
type Sample struct {
	At      time.Time
	Attempt int      // of the tasks; another one begins a new window
	Tasks   [][]Task // by vertex, in the order of the graph's, and subtask
	// Pending is how many records wait at the sources of a vertex, -1 where that is not known.
	Pending []int64
}

// Task are the totals of a subtask since its attempt began.
type Task struct {
	RecordsIn, RecordsOut int64
	Busy, BackPressured   time.Duration
}

// Evaluation is what is known about a vertex. Rates are records per second.
type Evaluation struct {
	Parallelism int
	Capacity    float64 // NaN while it processed nothing
	Target      float64
	CatchUp     float64
	Busy        float64 // share of time of the busiest subtask
	Pending     int64   // -1 for unknown
	// UpBelow and DownAbove are the capacities below and above which the parallelism changes.
	UpBelow, DownAbove float64
	// Recommended is the parallelism that the vertex should have; the present one while that is good enough.
	Recommended int
}

// Result is the outcome of a Step.
type Result struct {
	// Vertices is in the order of the graph's; nil as long as there is no whole window.
	Vertices []Evaluation
	// Parallelism is what the job should change to; nil for no change.
	Parallelism graph.Parallelism
}

// Autoscaler is the core. Not safe for concurrent use.
type Autoscaler struct {
	cfg     Config
	graph   *graph.JobGraph
	attempt int
	started time.Time // of the attempt, as far as seen
	window  []Sample  // oldest first; the first one may be older than the window
	down    []fewer   // by vertex
}

// fewer is a decrease that has to wait.
type fewer struct {
	since time.Time
	most  int // the greatest parallelism that was recommended since then
}

// New makes an Autoscaler of a job.
func New(cfg Config) *Autoscaler { return &Autoscaler{cfg: cfg, attempt: -1} }

// Step takes a sample of the tasks of g, whose parallelism is the present one, and says what to do. It never blocks and reads no clock.
func (a *Autoscaler) Step(g *graph.JobGraph, s Sample) Result {
	if len(s.Tasks) != len(g.Vertices) || len(s.Pending) != len(g.Vertices) {
		return Result{}
	}
	if s.Attempt != a.attempt || a.graph == nil {
		a.attempt, a.started, a.window, a.down = s.Attempt, s.At, nil, make([]fewer, len(g.Vertices))
	}
	a.graph = g
	if s.At.Before(a.started.Add(a.cfg.Stabilization)) {
		return Result{}
	}
	a.window = append(a.window, s)
	for len(a.window) > 2 && !a.window[1].At.After(s.At.Add(-a.cfg.Window)) {
		a.window = a.window[1:]
	}
	if s.At.Sub(a.window[0].At) < a.cfg.Window || len(a.window) < 2 {
		return Result{}
	}
	r := Result{Vertices: a.evaluate(a.window[0], s)}
	r.Parallelism = a.decide(s.At, r.Vertices)
	return r
}

// evaluate computes the rates between two samples.
func (a *Autoscaler) evaluate(from, to Sample) []Evaluation {
	g, seconds := a.graph, to.At.Sub(from.At).Seconds()
	out := make([]Evaluation, len(g.Vertices))
	in, sent := make([]float64, len(out)), make([]float64, len(out))
	index := map[graph.VertexID]int{}
	for v := range out {
		index[g.Vertices[v].ID] = v
		e := &out[v]
		e.Parallelism, e.Recommended, e.Pending = g.Vertices[v].Parallelism, g.Vertices[v].Parallelism, to.Pending[v]
		held := 0.0 // back pressure, mean
		for i := range min(len(from.Tasks[v]), len(to.Tasks[v])) {
			was, is := from.Tasks[v][i], to.Tasks[v][i]
			in[v] += float64(is.RecordsIn-was.RecordsIn) / seconds
			sent[v] += float64(is.RecordsOut-was.RecordsOut) / seconds
			e.Busy = max(e.Busy, (is.Busy-was.Busy).Seconds()/seconds)
			held += (is.BackPressured - was.BackPressured).Seconds() / seconds / float64(len(to.Tasks[v]))
		}
		e.Busy = min(e.Busy, 1)
		e.Capacity = math.NaN()
		if in[v] > 0 && e.Busy > 0 {
			e.Capacity = in[v] / e.Busy
		}
		if len(g.Vertices[v].Inputs) > 0 {
			continue
		}
		e.Target = in[v]
		if e.Pending >= 0 && from.Pending[v] >= 0 {
			e.Target = max(0, in[v]+float64(e.Pending-from.Pending[v])/seconds)
			if a.cfg.CatchUp > 0 {
				e.CatchUp = float64(e.Pending) / a.cfg.CatchUp.Seconds()
			}
		} else if held > 0 {
			e.Target = in[v] / max(1-held, leastFree)
		}
		if a.cfg.CatchUp > 0 {
			e.CatchUp += e.Target * a.cfg.Restart.Seconds() / a.cfg.CatchUp.Seconds()
		}
	}
	for v := range out { // in topological order
		e := &out[v]
		total := 0.0
		for _, i := range g.Vertices[v].Inputs {
			total += sent[index[i.From]]
		}
		for _, i := range g.Vertices[v].Inputs {
			if u := index[i.From]; total > 0 && in[u] > 0 {
				ratio := in[v] * (sent[u] / total) / in[u]
				e.Target += out[u].Target * ratio
				e.CatchUp += out[u].CatchUp * ratio
			}
		}
		e.UpBelow, e.DownAbove = e.Target/a.cfg.Max+e.CatchUp, e.Target/a.cfg.Min+e.CatchUp
		e.Recommended = a.recommend(v, e)
	}
	return out
}

// leastFree is the least share of time that a source that is held back is taken to be free in, so that one report does not make its target
// grow beyond all measure.
const leastFree = 0.2

// recommend is the parallelism for a vertex.
func (a *Autoscaler) recommend(v int, e *Evaluation) int {
	x := &a.graph.Vertices[v]
	switch {
	case x.MaxParallelism == 1 || slices.Contains(a.cfg.Exclude, x.ID.String()) || math.IsNaN(e.Capacity):
		return e.Parallelism
	case e.Capacity >= e.UpBelow && e.Capacity <= e.DownAbove:
		return e.Parallelism
	}
	p := float64(e.Parallelism)
	want := math.Ceil(p*(e.Target/a.cfg.Target+e.CatchUp)/e.Capacity - 1e-9)
	want = min(want, math.Floor(p*(1+a.cfg.UpFactor)))
	want = max(want, math.Ceil(p*(1-a.cfg.DownFactor)-1e-9))
	return int(max(1, min(max(want, float64(a.cfg.MinParallelism)), float64(min(a.cfg.MaxParallelism, x.MaxParallelism)))))
}

// decide says what to change. Vertices that are joined by forward edges have the greatest parallelism that is recommended for one of them.
func (a *Autoscaler) decide(at time.Time, vs []Evaluation) graph.Parallelism {
	groups := a.groups()
	for v := range vs {
		for w := range vs {
			if groups[w] == groups[v] {
				vs[v].Recommended = max(vs[v].Recommended, min(vs[w].Recommended, a.graph.Vertices[v].MaxParallelism))
			}
		}
	}
	out, change := a.graph.Parallelism(), false
	for v := range vs {
		e, d := &vs[v], &a.down[v]
		switch {
		case e.Recommended > e.Parallelism:
			*d = fewer{}
			out[a.graph.Vertices[v].ID], change = e.Recommended, true
		case e.Recommended == e.Parallelism:
			*d = fewer{}
		default:
			if d.since.IsZero() {
				*d = fewer{since: at}
			}
			d.most = max(d.most, e.Recommended)
			if at.Sub(d.since) >= a.cfg.ScaleDown {
				out[a.graph.Vertices[v].ID], change = d.most, true
			}
		}
	}
	if !change {
		return nil
	}
	return out
}

// groups numbers the vertices such that those joined by forward edges have one number.
func (a *Autoscaler) groups() []int {
	n := make([]int, len(a.graph.Vertices))
	for v := range n {
		n[v] = v
		for _, in := range a.graph.Vertices[v].Inputs {
			if in.Partitioner != graph.Forward {
				continue
			}
			for u := range v {
				if a.graph.Vertices[u].ID == in.From {
					old := n[v]
					for w := range v + 1 {
						if n[w] == old {
							n[w] = n[u]
						}
					}
				}
			}
		}
	}
	return n
}
