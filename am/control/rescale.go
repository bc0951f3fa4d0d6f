package control

import (
	"context"
	"net/http"
)

// Requirements are the bounds of the parallelism of each vertex of a job, by its id.
type Requirements map[string]VertexRequirements

// VertexRequirements are those of one vertex.
type VertexRequirements struct {
	Parallelism struct {
		Lower int `json:"lowerBound"`
		Upper int `json:"upperBound"`
	} `json:"parallelism"`
}

// Requirements returns what is required of a job's parallelism.
func (r *REST) Requirements(ctx context.Context, id string) (q Requirements, err error) {
	return q, r.do(ctx, http.MethodGet, "/jobs/"+id+"/resource-requirements", nil, &q)
}

// Require changes it. Rescales tells how it goes.
func (r *REST) Require(ctx context.Context, id string, q Requirements) error {
	return r.do(ctx, http.MethodPut, "/jobs/"+id+"/resource-requirements", q, nil)
}

// Rescale is how a change of a job's parallelism goes.
type Rescale struct {
	ID     string `json:"rescaleUuid"`
	Cause  string `json:"triggerCause"`
	State  string `json:"terminalState"` // COMPLETED, FAILED, IGNORED (another request took its place), or "" while it goes on
	States []struct {
		Failure string `json:"stringifiedException"`
	} `json:"schedulerStates"`
}

// Failure is why it FAILED.
func (r *Rescale) Failure() string {
	for _, s := range r.States {
		if s.Failure != "" {
			return s.Failure
		}
	}
	return "no reason was given"
}

// Rescales returns the changes of a job's parallelism, newest first.
func (r *REST) Rescales(ctx context.Context, id string) (all []Rescale, err error) {
	return all, r.do(ctx, http.MethodGet, "/jobs/"+id+"/rescales/history", nil, &all)
}

// Rescale returns one of them.
func (r *REST) Rescale(ctx context.Context, id, rescale string) (x Rescale, err error) {
	return x, r.do(ctx, http.MethodGet, "/jobs/"+id+"/rescales/details/"+rescale, nil, &x)
}
