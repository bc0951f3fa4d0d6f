package rest

import (
	"encoding/json"
	"net/http"

	"github.com/thalweg/thalweg/runtime/jobmaster"
	"github.com/thalweg/thalweg/runtime/scheduler"
)

func (s *server) rescaleRoutes() {
	s.job("GET /jobs/{jobid}/resource-requirements", func(_ *http.Request, d *jobmaster.Details) (any, error) {
		if d.Requirements == nil {
			return nil, notFound("Job %s has no resource requirements: it is not scheduled yet, or runs in BATCH.", d.JobID)
		}
		return d.Requirements, nil
	})
	s.route("PUT /jobs/{jobid}/resource-requirements", s.require)
	s.job("GET /jobs/{jobid}/rescales/overview", rescalesOverview)
}

func (s *server) require(r *http.Request) (any, error) {
	id, err := jobID(r)
	if err != nil {
		return nil, err
	}
	var text json.RawMessage
	if err := body(r, &text); err != nil {
		return nil, err
	}
	var req scheduler.Requirements
	if len(text) == 0 {
		return nil, bad("The body is missing: want {\"<vertex id>\": {\"parallelism\": {\"lowerBound\": 1, \"upperBound\": 4}}, ...}.")
	}
	if err := json.Unmarshal(text, &req); err != nil {
		return nil, bad("Bad request, could not parse the resource requirements: %v", err)
	}
	if err := s.opts.Dispatcher.Require(r.Context(), id, req); err != nil {
		return nil, err
	}
	return object{}, nil
}

func schedulerType(d *jobmaster.Details) string {
	if d.Adaptive {
		return "Adaptive"
	}
	return "Default"
}

// rescalesOverview tells how changes of the parallelism went. The counts are of this JobMaster; "latest" is the last one that was asked for.
func rescalesOverview(_ *http.Request, d *jobmaster.Details) (any, error) {
	var latest any
	if l := d.LastRescale; l != nil {
		o := object{"startTimestampInMillis": l.Asked.UnixMilli(), "endTimestampInMillis": end(l.Ended), "terminalState": nil, "failure": nil}
		switch {
		case l.Ended.IsZero():
		case l.Failure == "":
			o["terminalState"] = "COMPLETED"
		default:
			o["terminalState"], o["failure"] = "FAILED", d.Config.Redact(l.Failure)
		}
		latest = o
	}
	return object{"inProgress": d.Rescaling, "completed": d.Rescales, "latest": latest}, nil
}
