package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

const rescaleJob = "0123456789abcdef0123456789abcdef"

// rescaling serves a job of three vertices and takes what is required of it.
type rescaling struct {
	t       *testing.T
	kind    string // STREAMING or BATCH
	lower   int
	refuse  string
	outcome string // of the rescale, as JSON
	got     atomic.Pointer[string]
	polls   atomic.Int32
}

func (s *rescaling) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	job := "/jobs/" + rescaleJob
	vertex := func(id string, name string, p, most int) string {
		return fmt.Sprintf(`{"id":%q,"name":%q,"parallelism":%d,"maxParallelism":%d,"operators":[{"uid":"uid-of-%s","name":"x"}]}`, id, name, p, most, id)
	}
	switch r.Method + " " + r.URL.Path {
	case "GET /jobs/overview":
		_, _ = fmt.Fprintf(w, `{"jobs":[{"jid":%q,"name":"orders","state":"RUNNING"}]}`, rescaleJob)
	case "GET " + job:
		_, _ = fmt.Fprintf(w, `{"jid":%q,"name":"orders","state":"RUNNING","job-type":%q,"vertices":[%s,%s,%s]}`, rescaleJob, s.kind,
			vertex("a1", "Source: orders -> Map", 2, 128), vertex("a2", "customer-totals", 2, 128), vertex("b3", "Window all", 1, 1))
	case "GET " + job + "/resource-requirements":
		one := func(id string, lower, upper int) string {
			return fmt.Sprintf(`%q:{"parallelism":{"lowerBound":%d,"upperBound":%d}}`, id, lower, upper)
		}
		_, _ = fmt.Fprintf(w, "{%s,%s,%s}", one("a1", s.lower, 2), one("a2", s.lower, 2), one("b3", 1, 1))
	case "PUT " + job + "/resource-requirements":
		b, err := io.ReadAll(r.Body)
		if err != nil {
			s.t.Error(err)
		}
		text := string(b)
		s.got.Store(&text)
		if s.refuse != "" {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = fmt.Fprintf(w, `{"errors":[%q]}`, s.refuse)
			return
		}
		_, _ = w.Write([]byte("{}"))
	case "GET " + job + "/rescales/history":
		_, _ = w.Write([]byte(`[{"rescaleUuid":"9","triggerCause":"NEW_RESOURCE_AVAILABLE","terminalState":"FAILED"},{"rescaleUuid":"7","triggerCause":"UPDATE_REQUIREMENT","terminalState":null}]`))
	case "GET " + job + "/rescales/details/7":
		if s.polls.Add(1) < 3 {
			_, _ = w.Write([]byte(`{"rescaleUuid":"7","terminalState":null}`))
			return
		}
		_, _ = w.Write([]byte(s.outcome))
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// The job is asked for what the user wants, with what it has for the rest.
func TestRescaleAsksForTheParallelism(t *testing.T) {
	for name, c := range map[string]struct {
		lower int
		args  []string
		want  string
	}{
		"all":                       {2, []string{"-p", "4"}, "a1 4-4, a2 4-4, b3 1-1"},
		"all of an adaptive job":    {1, []string{"-p", "4"}, "a1 1-4, a2 1-4, b3 1-1"},
		"bounds":                    {2, []string{"-p", "2-8"}, "a1 2-8, a2 2-8, b3 1-1"},
		"one by its name":           {2, []string{"-p", "customer-totals=6"}, "a1 2-2, a2 6-6, b3 1-1"},
		"one by its name's begin":   {2, []string{"-p", "orders=6"}, "a1 6-6, a2 2-2, b3 1-1"},
		"one by an operator's UID":  {2, []string{"-p", "uid-of-a2=5"}, "a1 2-2, a2 5-5, b3 1-1"},
		"one by its id":             {2, []string{"-p", "b3=1", "-p", "a2=1-3"}, "a1 2-2, a2 1-3, b3 1-1"},
		"all but one, in any order": {2, []string{"-p", "a1=8", "-p", "3"}, "a1 8-8, a2 3-3, b3 1-1"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &rescaling{t: t, kind: "STREAMING", lower: c.lower}
			h := httptest.NewServer(s)
			defer h.Close()
			out, errs, code := thalweg(t, nil, append([]string{"rescale", "-m", strings.TrimPrefix(h.URL, "http://")}, c.args...)...)
			if code != 0 || !strings.Contains(out, rescaleJob) {
				t.Fatalf("exit %d: %q %q", code, out, errs)
			}
			var got map[string]struct {
				Parallelism struct{ LowerBound, UpperBound int }
			}
			if err := json.Unmarshal([]byte(*s.got.Load()), &got); err != nil {
				t.Fatal(err)
			}
			var parts []string
			for _, id := range []string{"a1", "a2", "b3"} {
				parts = append(parts, fmt.Sprintf("%s %d-%d", id, got[id].Parallelism.LowerBound, got[id].Parallelism.UpperBound))
			}
			if text := strings.Join(parts, ", "); text != c.want || len(got) != 3 {
				t.Errorf("asked for %s, want %s", text, c.want)
			}
		})
	}
}

// With --wait the outcome is told, and a failure is one.
func TestRescaleWaits(t *testing.T) {
	s := &rescaling{t: t, kind: "STREAMING", lower: 2, outcome: `{"rescaleUuid":"7","terminalState":"COMPLETED"}`}
	h := httptest.NewServer(s)
	defer h.Close()
	addr := strings.TrimPrefix(h.URL, "http://")
	out, errs, code := thalweg(t, nil, "rescale", "-m", addr, "-p", "2", "--wait", "-o", "json")
	var o struct {
		Event       string
		JobID       string `json:"jobId"`
		Parallelism map[string]int
	}
	if err := json.Unmarshal([]byte(out), &o); err != nil || code != 0 || o.Event != "rescaled" || o.JobID != rescaleJob || o.Parallelism["a2"] != 2 || o.Parallelism["b3"] != 1 {
		t.Errorf("exit %d: %q %q %v", code, out, errs, err)
	}
	s.outcome = `{"rescaleUuid":"7","terminalState":"FAILED","schedulerStates":[{"stringifiedException":"3 of 4 slots within 5m0s (slot.request.timeout): queue root.a is full"}]}`
	if out, errs, code = thalweg(t, nil, "rescale", "-m", addr, "-p", "4", "--wait"); code != exitFailed || !strings.Contains(errs, "goes on with the parallelism of before: 3 of 4 slots") || out != "" {
		t.Errorf("exit %d: %q %q", code, out, errs)
	}
	s.outcome = `{"rescaleUuid":"7","terminalState":"IGNORED"}`
	if _, errs, code = thalweg(t, nil, "rescale", "-m", addr, "-p", "4", "--wait"); code != exitFailed || !strings.Contains(errs, "another parallelism meanwhile") {
		t.Errorf("exit %d: %q", code, errs)
	}
	s.outcome = `{"rescaleUuid":"7","terminalState":null}`
	if _, errs, code = thalweg(t, nil, "rescale", "-m", addr, "-p", "4", "--wait", "-Dclient.timeout=300ms"); code != exitFailed || !strings.Contains(errs, "client.timeout") {
		t.Errorf("exit %d: %q", code, errs)
	}
}

// What cannot be is said before the job is touched, or in the job's own words.
func TestRescaleRefuses(t *testing.T) {
	for want, c := range map[string]struct {
		kind, refuse string
		args         []string
	}{
		"give the parallelism":                {"STREAMING", "", nil},
		"want a number from 1 to 32768":       {"STREAMING", "", []string{"-p", "0"}},
		"two as in 2-8":                       {"STREAMING", "", []string{"-p", "8-2"}},
		"there is no task \"clicks\"":         {"STREAMING", "", []string{"-p", "clicks=2"}},
		"\"a\" begins several tasks":          {"STREAMING", "", []string{"-p", "a=2"}},
		"customer-totals (a2, UID uid-of-a2)": {"STREAMING", "", []string{"-p", "=2"}},
		"runs in BATCH":                       {"BATCH", "", []string{"-p", "2"}},
		"129 is above its max parallelism":    {"STREAMING", "vertex a1: 129 is above its max parallelism 128", []string{"-p", "129"}},
	} {
		s := &rescaling{t: t, kind: c.kind, lower: 2, refuse: c.refuse}
		h := httptest.NewServer(s)
		out, errs, code := thalweg(t, nil, append([]string{"rescale", "-m", strings.TrimPrefix(h.URL, "http://")}, c.args...)...)
		h.Close()
		if code != exitUsage || !strings.Contains(errs, want) || out != "" {
			t.Errorf("%q: exit %d, %q %q", want, code, out, errs)
		}
		if c.refuse == "" && s.got.Load() != nil {
			t.Errorf("%q: the job was asked for %s", want, *s.got.Load())
		}
	}
}
