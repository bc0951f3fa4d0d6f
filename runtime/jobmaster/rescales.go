package jobmaster

import (
	"slices"
	"time"

	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/scheduler"
)

// Rescale is one change of the parallelism, or one that was asked for. Source: Flink 2.3 JobRescaleDetails (FLIP-487).
type Rescale struct {
	ID graph.ID
	// Requirements names what was required; Attempt numbers the changes under it, from 1.
	Requirements graph.ID
	Attempt      int
	Cause        string // as in Flink: one of the Cause constants
	Asked, Ended time.Time
	State        string // as in Flink: COMPLETED, FAILED, IGNORED; "" while it goes on
	Reason       string // likewise, why it ended so
	Failure      string // of FAILED, in words
	Vertices     []RescaledVertex
}

// RescaledVertex is what a Rescale does with a vertex.
type RescaledVertex struct {
	ID             graph.VertexID
	Name, Group    string
	Desired, Least int // the bounds
	Before, After  int // the parallelism; After is 0 as long as it is not known
}

// Causes of a Rescale.
const (
	CauseInitial      = "INITIAL_SCHEDULE"
	CauseRequirements = "UPDATE_REQUIREMENT"
	CauseResources    = "NEW_RESOURCE_AVAILABLE"
	CauseFailover     = "RECOVERABLE_FAILOVER"
)

// MaxRescales is how many are remembered. Source: Flink web.adaptive-scheduler.rescale-history.size.
const MaxRescales = 16

// rescales remembers them, newest first. What an entry points to is never changed: the loop replaces entries.
type rescales struct {
	all          []Rescale
	counts       map[string]int // by State
	requirements graph.ID
	attempt      int
}

// open is the one that goes on, or nil.
func (h *rescales) open() *Rescale {
	if len(h.all) > 0 && h.all[0].State == "" {
		return &h.all[0]
	}
	return nil
}

func (h *rescales) begin(cause string, g *graph.JobGraph, req scheduler.Requirements) {
	h.end("IGNORED", "RESOURCE_REQUIREMENTS_UPDATED", "")
	if cause == CauseRequirements || h.requirements == (graph.ID{}) {
		h.requirements, h.attempt = graph.NewID(), 0
	}
	h.attempt++
	r := Rescale{ID: graph.NewID(), Requirements: h.requirements, Attempt: h.attempt, Cause: cause, Asked: time.Now()}
	for i := range g.Vertices {
		v := &g.Vertices[i]
		r.Vertices = append(r.Vertices, RescaledVertex{ID: v.ID, Name: v.Name, Group: v.SlotSharingGroup, Desired: req[v.ID].Upper, Least: req[v.ID].Lower, Before: v.Parallelism})
	}
	h.all = slices.Insert(slices.Clone(h.all), 0, r)
	h.all = h.all[:min(len(h.all), MaxRescales)]
}

// end ends the one that goes on.
func (h *rescales) end(state, reason, failure string) {
	if r := h.open(); r != nil {
		h.all = slices.Clone(h.all)
		r = &h.all[0]
		r.State, r.Reason, r.Failure, r.Ended = state, reason, failure, time.Now()
		if h.counts == nil {
			h.counts = map[string]int{}
		}
		h.counts[state]++
	}
}

// became notes the parallelism that the one that goes on has led to.
func (h *rescales) became(g *graph.JobGraph) {
	if h.open() == nil {
		return
	}
	h.all = slices.Clone(h.all)
	r := &h.all[0]
	r.Vertices = slices.Clone(r.Vertices)
	for i := range r.Vertices {
		r.Vertices[i].After = g.Vertex(r.Vertices[i].ID).Parallelism
	}
}

// rescaleBegins notes a change that nobody asked for.
func (j *JobMaster) rescaleBegins(planned bool) {
	h := &j.scaling.history
	if h.open() != nil {
		return
	}
	cause := CauseFailover
	switch {
	case planned:
		cause = CauseResources
	case j.sched.Restarts() == 0:
		cause = CauseInitial
	}
	h.begin(cause, j.graph, j.sched.Requirements())
}

// rescaleRuns: all tasks run with the present parallelism.
func (j *JobMaster) rescaleRuns() {
	h := &j.scaling.history
	h.became(j.graph)
	if r := h.open(); r != nil && r.Cause != CauseRequirements { // of those the scheduler tells
		h.end("COMPLETED", "SUCCEEDED", "")
	}
}
