package rest

import (
	"encoding/json"
	"net/http"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/runtime/graph"
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
	s.job("GET /jobs/{jobid}/rescales/history", func(_ *http.Request, d *jobmaster.Details) (any, error) {
		all := []object{}
		for i := range d.RescaleHistory {
			all = append(all, rescaleJSON(d, &d.RescaleHistory[i]))
		}
		return all, nil
	})
	s.job("GET /jobs/{jobid}/rescales/details/{rescaleuuid}", rescaleDetails)
	s.job("GET /jobs/{jobid}/rescales/config", rescalesConfig)
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

// rescaleJSON is Flink's JobRescaleDetails. Slot sharing groups have names only, which stand for their ids.
func rescaleJSON(d *jobmaster.Details, r *jobmaster.Rescale) object {
	vertices, slots := object{}, object{}
	for _, v := range r.Vertices {
		after := any(nil)
		if v.After > 0 {
			after = v.After
		}
		vertices[v.ID.String()] = object{"jobVertexId": v.ID.String(), "jobVertexName": v.Name, "slotSharingGroupId": v.Group, "slotSharingGroupName": v.Group,
			"desiredParallelism": v.Desired, "sufficientParallelism": v.Least, "preRescaleParallelism": v.Before, "postRescaleParallelism": after}
		desired, least, before, now := 0, 0, 0, 0
		for _, w := range r.Vertices {
			if w.Group == v.Group {
				desired, least, before, now = max(desired, w.Desired), max(least, w.Least), max(before, w.Before), max(now, w.After)
			}
		}
		slots[v.Group] = object{"slotSharingGroupId": v.Group, "slotSharingGroupName": v.Group, "requestResourceProfile": nil, "desiredSlots": desired, "minimalRequiredSlots": least,
			"preRescaleSlots": before, "postRescaleSlots": now, "acquiredResourceProfile": nil}
	}
	states := []object{}
	if r.Failure != "" {
		states = append(states, object{"state": "Executing", "enterTimestampInMillis": r.Asked.UnixMilli(), "leaveTimestampInMillis": end(r.Ended),
			"durationInMillis": duration(r.Asked, r.Ended), "stringifiedException": d.Config.Redact(r.Failure)})
	}
	o := object{"rescaleUuid": r.ID.String(), "resourceRequirementsUuid": r.Requirements.String(), "rescaleAttemptId": r.Attempt, "vertices": vertices, "slots": slots,
		"schedulerStates": states, "startTimestampInMillis": r.Asked.UnixMilli(), "endTimestampInMillis": nil, "terminalState": nil, "triggerCause": r.Cause, "terminatedReason": nil}
	if r.State != "" {
		o["endTimestampInMillis"], o["terminalState"], o["terminatedReason"] = r.Ended.UnixMilli(), r.State, r.Reason
	}
	return o
}

func rescalesOverview(_ *http.Request, d *jobmaster.Details) (any, error) {
	open := 0
	latest := object{"completed": nil, "failed": nil, "ignored": nil}
	for i := range d.RescaleHistory {
		r := &d.RescaleHistory[i]
		name := map[string]string{"COMPLETED": "completed", "FAILED": "failed", "IGNORED": "ignored"}[r.State]
		switch {
		case name == "":
			open++
		case latest[name] == nil:
			latest[name] = rescaleJSON(d, r)
		}
	}
	return object{"rescalesCounts": object{"ignored": d.RescaleCounts["IGNORED"], "inProgress": open, "completed": d.RescaleCounts["COMPLETED"], "failed": d.RescaleCounts["FAILED"]},
		"latest": latest}, nil
}

func rescaleDetails(r *http.Request, d *jobmaster.Details) (any, error) {
	id, err := graph.ParseID(r.PathValue("rescaleuuid"))
	if err != nil {
		return nil, bad("Cannot resolve path parameter (rescaleuuid) from value %q: want 32 hex digits.", clip(r.PathValue("rescaleuuid")))
	}
	for i := range d.RescaleHistory {
		if d.RescaleHistory[i].ID == id {
			return rescaleJSON(d, &d.RescaleHistory[i]), nil
		}
	}
	return nil, notFound("Could not find the rescale %s; the last %d are remembered.", id, jobmaster.MaxRescales)
}

func rescalesConfig(_ *http.Request, d *jobmaster.Details) (any, error) {
	c := d.Config
	return object{"rescaleHistoryMax": jobmaster.MaxRescales, "schedulerExecutionMode": nil, "submissionResourceWaitTimeoutInMillis": config.AdaptiveWait.Value(c).Milliseconds(),
		"submissionResourceStabilizationTimeoutInMillis": config.AdaptiveStabilization.Value(c).Milliseconds(), "slotIdleTimeoutInMillis": config.TaskManagerTimeout.Value(c).Milliseconds(),
		"executingCooldownTimeoutInMillis": config.AdaptiveCooldown.Value(c).Milliseconds(), "executingResourceStabilizationTimeoutInMillis": config.AdaptiveExecutingStabilization.Value(c).Milliseconds(),
		"maximumDelayForTriggeringRescaleInMillis": jobmaster.RescaleMaxDelay(c).Milliseconds(), "rescaleOnFailedCheckpointCount": config.RescaleMaxFailures.Value(c)}, nil
}
