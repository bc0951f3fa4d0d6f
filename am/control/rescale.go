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

// Rescales is how changes of a job's parallelism went.
type Rescales struct {
	InProgress bool `json:"inProgress"`
	Latest     *struct {
		State   string `json:"terminalState"` // COMPLETED, FAILED, or "" while it goes on
		Failure string `json:"failure"`
	} `json:"latest"`
}

// Rescales returns how the last request for another parallelism went.
func (r *REST) Rescales(ctx context.Context, id string) (s Rescales, err error) {
	return s, r.do(ctx, http.MethodGet, "/jobs/"+id+"/rescales/overview", nil, &s)
}
