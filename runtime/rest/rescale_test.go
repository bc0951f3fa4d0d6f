package rest_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/thalweg/thalweg/runtime/jobmaster/jobtest"
)

// The parallelism of a running job is read and changed in Flink's form, and what cannot be is refused with the reason.
func TestResourceRequirements(t *testing.T) {
	r := start(t, nil)
	job := "/jobs/" + r.job
	src, sink := jobtest.Op(1).String(), jobtest.Op(2).String()
	body := func(p, q string) string {
		return `{"` + src + `":{"parallelism":{"lowerBound":1,"upperBound":` + p + `}},"` + sink + `":{"parallelism":{"lowerBound":1,"upperBound":` + q + `}}}`
	}
	if got, want := r.get(job+"/resource-requirements", 200), `{"`+src+`":{"parallelism":{"lowerBound":2,"upperBound":2}},"`+sink+`":{"parallelism":{"lowerBound":3,"upperBound":3}}}`; strings.TrimSpace(got) != want {
		t.Errorf("requirements %s, want %s", got, want)
	}
	if got := r.get(job+"/rescales/overview", 200); !strings.Contains(got, `{"latest":{"completed":null,"failed":null,"ignored":null},"rescalesCounts":{"completed":0,"failed":0,"ignored":0,"inProgress":0}}`) {
		t.Errorf("overview %s", got)
	}
	if got := r.get(job+"/rescales/config", 200); !strings.Contains(got, `"executingCooldownTimeoutInMillis":30000`) || !strings.Contains(got, `"maximumDelayForTriggeringRescaleInMillis":10800000`) {
		t.Errorf("config %s", got)
	}
	for text, want := range map[string]string{
		"":               "The body is missing",
		"[]":             "could not parse",
		`{"xyz":{}}`:     "want 32 hex digits",
		`{"a":{"b":1}}`:  "could not parse",
		body("2", "0"):   "the upper bound 0 is below the lower bound 1",
		body("2", "129"): "129 is above its max parallelism 128",
		`{"` + src + `":{"parallelism":{"lowerBound":1,"upperBound":1}}}`: "name every vertex",
	} {
		if got := r.call("PUT", job+"/resource-requirements", text, 400); !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	r.call("PUT", "/jobs/"+strings.Repeat("0", 32)+"/resource-requirements", body("1", "1"), 404)
	if got := r.call("PUT", job+"/resource-requirements", body("1", "2"), 200); strings.TrimSpace(got) != "{}" {
		t.Errorf("answer %s", got)
	}
	if got := r.get(job+"/resource-requirements", 200); strings.TrimSpace(got) != body("1", "2") {
		t.Errorf("requirements %s", got)
	}
	r.until("another parallelism", func() bool {
		return strings.Contains(r.get(job+"/rescales/overview", 200), `"rescalesCounts":{"completed":1,`)
	})
	var history []map[string]any
	if err := json.Unmarshal([]byte(r.get(job+"/rescales/history", 200)), &history); err != nil || len(history) != 1 {
		t.Fatalf("%v, %v", history, err)
	}
	h := decode(t, r.get(job+"/rescales/details/"+history[0]["rescaleUuid"].(string), 200))
	if v := h["vertices"].(map[string]any)[sink].(map[string]any); h["terminalState"] != "COMPLETED" || h["triggerCause"] != "UPDATE_REQUIREMENT" || h["terminatedReason"] != "SUCCEEDED" ||
		v["preRescaleParallelism"] != 3.0 || v["postRescaleParallelism"] != 2.0 || v["desiredParallelism"] != 2.0 || v["sufficientParallelism"] != 1.0 {
		t.Errorf("details %v", h)
	}
	if s := h["slots"].(map[string]any)["default"].(map[string]any); s["preRescaleSlots"] != 3.0 || s["postRescaleSlots"] != 2.0 || s["minimalRequiredSlots"] != 1.0 {
		t.Errorf("slots %v", h["slots"])
	}
	r.get(job+"/rescales/details/"+strings.Repeat("0", 32), 404)
	r.get(job+"/rescales/details/x", 400)
	if got := r.get(job+"/vertices/"+sink, 200); !strings.Contains(got, `"parallelism":2`) {
		t.Errorf("vertex %s", got)
	}
	if got := r.get(job+"/metrics?get=numRescales,numRestarts", 200); !strings.Contains(got, `{"id":"numRescales","value":"1"}`) || !strings.Contains(got, `{"id":"numRestarts","value":"0"}`) {
		t.Errorf("metrics %s", got)
	}
}
