package control

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/yarnrpc/client"
	yarnpb "github.com/thalweg/thalweg/yarnrpc/proto/yarn"
	"github.com/thalweg/thalweg/yarnrpc/yarn"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const jobID = "00112233445566778899aabbccddeeff"

// server answers as Flink 2.3 does.
type server struct {
	mu       sync.Mutex
	requests []string
	bodies   []map[string]any
	polls    int
	drop     int // connections to break before they are answered
}

func (s *server) start(t *testing.T) *REST {
	t.Helper()
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	r := NewREST(h.URL, time.Minute)
	t.Cleanup(r.Close)
	return r
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r.Method+" "+r.URL.RequestURI())
	if b, _ := io.ReadAll(r.Body); len(b) > 0 {
		var m map[string]any
		_ = json.Unmarshal(b, &m)
		s.bodies = append(s.bodies, m)
	}
	if s.drop > 0 {
		s.drop--
		c, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			_ = c.Close()
		}
		return
	}
	answer := map[string]string{
		"GET /jobs/overview":                                 `{"jobs":[{"jid":"` + jobID + `","name":"orders","state":"RUNNING","start-time":5,"end-time":-1,"duration":7,"tasks":{"running":3}},{"jid":"f0f0","name":"old","state":"FINISHED"}]}`,
		"GET /jobs/" + jobID + "/checkpoints":                `{"counts":{"total":4,"completed":3,"failed":1},"latest":{"completed":{"id":3,"status":"COMPLETED","end_to_end_duration":80,"state_size":1024},"savepoint":null,"failed":null}}`,
		"PATCH /jobs/" + jobID + "?mode=cancel":              `{}`,
		"POST /jobs/" + jobID + "/savepoints":                `{"request-id":"t1"}`,
		"POST /jobs/" + jobID + "/stop":                      `{"request-id":"t2"}`,
		"GET /jobs/" + jobID + "/savepoints/t2":              `{"status":{"id":"COMPLETED"},"operation":{"failure-cause":{"class":"java.lang.Exception","stack-trace":"the folder cannot be written\n\tat x"}}}`,
		"POST /jobs/" + jobID + "/checkpoints":               `{"request-id":"t3"}`,
		"GET /jobs/" + jobID + "/checkpoints/t3":             `{"status":{"id":"COMPLETED"},"operation":{"checkpointId":9}}`,
		"GET /jobs/" + jobID + "/exceptions?maxExceptions=1": `{"exceptionHistory":{"entries":[{"exceptionName":"x","stacktrace":"boom","taskName":"Map (1/2)","failureLabels":{"type":"user","cause":"error"}}]}}`,
	}[r.Method+" "+r.URL.RequestURI()]
	if r.URL.Path == "/jobs/"+jobID+"/savepoints/t1" {
		if s.polls++; s.polls < 3 {
			answer = `{"status":{"id":"IN_PROGRESS"},"operation":null}`
		} else {
			answer = `{"status":{"id":"COMPLETED"},"operation":{"location":"hdfs://nn/sp-1"}}`
		}
	}
	if answer == "" {
		w.WriteHeader(http.StatusNotFound)
		answer = `{"errors":["Job could not be found.\n\tat java"]}`
	}
	_, _ = io.WriteString(w, answer)
}

func TestOperations(t *testing.T) {
	s := &server{}
	r := s.start(t)
	ctx := t.Context()
	jobs, err := r.Jobs(ctx)
	if err != nil || len(jobs) != 2 || jobs[0].ID != jobID || jobs[0].Tasks["running"] != 3 {
		t.Errorf("%v, %v", jobs, err)
	}
	if cp, err := r.Checkpoints(ctx, jobID); err != nil || cp.Latest.Completed == nil || cp.Latest.Completed.Duration != 80 || cp.Latest.Savepoint != nil || cp.Counts.Failed != 1 {
		t.Errorf("%+v, %v", cp, err)
	}
	if err := r.Cancel(ctx, jobID); err != nil {
		t.Error(err)
	}
	id, err := r.TriggerSavepoint(ctx, jobID, SavepointRequest{Dir: "hdfs://nn/sp", Format: "native"})
	if err != nil {
		t.Fatal(err)
	}
	if path, err := r.AwaitSavepoint(ctx, jobID, id); err != nil || path != "hdfs://nn/sp-1" || s.polls != 3 {
		t.Errorf("%s, %v after %d polls", path, err, s.polls)
	}
	if b := s.bodies[0]; b["target-directory"] != "hdfs://nn/sp" || b["formatType"] != "NATIVE" || b["cancel-job"] != false || len(b["triggerId"].(string)) != 32 {
		t.Errorf("savepoint body %v", b)
	}
	id, err = r.TriggerStop(ctx, jobID, SavepointRequest{Drain: true})
	if err != nil {
		t.Fatal(err)
	}
	var failed *OperationError
	if _, err := r.AwaitSavepoint(ctx, jobID, id); !errors.As(err, &failed) || err.Error() != "the folder cannot be written" {
		t.Errorf("stop: %v", err)
	}
	if b := s.bodies[1]; b["drain"] != true || b["formatType"] != "CANONICAL" || b["targetDirectory"] != nil {
		t.Errorf("stop body %v", b)
	}
	if id, err = r.TriggerCheckpoint(ctx, jobID, true); err != nil {
		t.Fatal(err)
	}
	if n, err := r.AwaitCheckpoint(ctx, jobID, id); err != nil || n != 9 {
		t.Errorf("%d, %v", n, err)
	}
	if c, err := r.RootCause(ctx, jobID); err != nil || c != "Map (1/2): [user] boom" {
		t.Errorf("%q, %v", c, err)
	}
}

func TestErrors(t *testing.T) {
	s := &server{}
	r := s.start(t)
	var st *StatusError
	if _, err := r.Job(t.Context(), "none"); !errors.As(err, &st) || st.Code != 404 || st.Message != "Job could not be found." {
		t.Errorf("unknown job: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Jobs(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	gone := NewREST("http://127.0.0.1:1", time.Second)
	defer gone.Close()
	var u *UnreachableError
	if _, err := gone.Jobs(t.Context()); !errors.As(err, &u) || !strings.Contains(err.Error(), "http://127.0.0.1:1") {
		t.Errorf("nobody there: %v", err)
	}
	html := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }))
	defer html.Close()
	other := NewREST(html.URL, time.Minute)
	defer other.Close()
	if _, err := other.Jobs(t.Context()); err == nil || !strings.Contains(err.Error(), "no JSON") {
		t.Errorf("another server: %v", err)
	}
}

// A trigger whose answer was lost is sent again under the same id, so that it runs once.
func TestTriggerIsRepeatedUnderItsID(t *testing.T) {
	s := &server{drop: 1}
	r := s.start(t)
	if id, err := r.TriggerStop(t.Context(), jobID, SavepointRequest{}); err != nil || id != "t2" {
		t.Fatalf("%s, %v", id, err)
	}
	if len(s.bodies) != 2 || s.bodies[0]["triggerId"] != s.bodies[1]["triggerId"] {
		t.Errorf("bodies %v", s.bodies)
	}
}

// apps is a ResourceManager.
type apps []*yarnpb.ApplicationReportProto

func (a apps) Report(_ context.Context, id yarn.ApplicationID) (*yarnpb.ApplicationReportProto, error) {
	for _, r := range a {
		if yarn.ApplicationIDOf(r.GetApplicationId()) == id {
			return r, nil
		}
	}
	return nil, yarn.ErrApplicationNotFound
}

func (a apps) Applications(_ context.Context, f client.Filter) ([]*yarnpb.ApplicationReportProto, error) {
	var out []*yarnpb.ApplicationReportProto
	for _, r := range a {
		if f.Name == "" || f.Name == r.GetName() {
			out = append(out, r)
		}
	}
	return out, nil
}

func app(n int32, name, url string, state yarnpb.YarnApplicationStateProto) *yarnpb.ApplicationReportProto {
	return &yarnpb.ApplicationReportProto{
		ApplicationId: yarn.ApplicationID{ClusterTimestamp: 1, ID: n}.Proto(), Name: &name, OriginalTrackingUrl: &url, YarnApplicationState: state.Enum(),
	}
}

func TestFindJob(t *testing.T) {
	s := &server{}
	url := s.start(t).Base()
	running, finished, accepted := yarnpb.YarnApplicationStateProto_RUNNING, yarnpb.YarnApplicationStateProto_FINISHED, yarnpb.YarnApplicationStateProto_ACCEPTED
	y := apps{app(1, "orders", url, running), app(2, "twin", url, running), app(3, "twin", url, running), app(4, "gone", "N/A", finished), app(5, "new", "N/A", accepted)}
	named := func(kv ...string) config.Configuration {
		c := config.Configuration{}
		for i := 0; i < len(kv); i += 2 {
			c[kv[i]] = kv[i+1]
		}
		return c
	}
	for _, c := range []config.Configuration{named("yarn.application.id", "application_1_0001"), named("yarn.application.name", "orders")} {
		target, err := FindJob(t.Context(), y, c, "")
		if err != nil || target.Job.ID != jobID || target.App.ID.ID != 1 {
			t.Fatalf("%v: %+v, %v", c, target, err)
		}
		target.REST.Close()
	}
	target, err := FindJob(t.Context(), y, nil, jobID)
	if err != nil || target.App.ID.ID != 1 {
		t.Fatalf("by job: %+v, %v", target, err)
	}
	target.REST.Close()
	for want, c := range map[string]struct {
		conf config.Configuration
		job  string
	}{
		"which application?":         {nil, ""},
		"does not know":              {named("yarn.application.id", "application_1_0009"), ""},
		"application id":             {named("yarn.application.id", "nonsense"), ""},
		`none is named "x"`:          {named("yarn.application.name", "x"), ""},
		"2 applications are named":   {named("yarn.application.name", "twin"), ""},
		"has ended already":          {named("yarn.application.name", "gone"), ""},
		"has no master within 100ms": {named("yarn.application.name", "new", "client.connection-timeout", "100 ms"), ""},
		"has no job 1234; it has 00": {named("yarn.application.name", "orders"), "1234"},
		"none of the":                {nil, "1234"},
	} {
		target, err := FindJob(t.Context(), y, c.conf, c.job)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "()") {
			t.Errorf("%v %s: %+v, %v; want %q", c.conf, c.job, target, err, want)
		}
	}
	direct, err := Direct(t.Context(), strings.TrimPrefix(url, "http://"), nil, "")
	if err != nil || direct.Job.ID != jobID {
		t.Errorf("direct: %+v, %v", direct, err)
	}
	direct.REST.Close()
}

// A job that does not run fully is asked why, others are not; what it may start from is the newest of all.
func TestProblemsAndWhereToStart(t *testing.T) {
	asked := 0
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		answer := `{"state":"CREATED","problem":"no room"}`
		if strings.HasSuffix(r.URL.Path, "/exceptions") {
			answer = `{"exceptionHistory":{"entries":[{"exceptionName":"boom"}]}}`
		}
		if strings.HasSuffix(r.URL.Path, "/config") {
			answer = map[string]string{
				"keep": `{"externalization":{"enabled":true,"delete_on_cancellation":false}}`,
				"drop": `{"externalization":{"enabled":true,"delete_on_cancellation":true}}`,
				"none": `{"externalization":{"enabled":false,"delete_on_cancellation":false}}`,
			}[strings.Split(r.URL.Path, "/")[2]]
		}
		_, _ = io.WriteString(w, answer)
	}))
	defer h.Close()
	r := NewREST(h.URL, time.Minute)
	defer r.Close()
	for _, c := range []struct {
		state         string
		running       int
		problem, fail string
		asked         int
	}{{"RUNNING", 3, "", "", 0}, {"FINISHED", 0, "", "", 0}, {"RUNNING", 2, "no room", "boom", 2}, {"CREATED", 0, "no room", "boom", 2}, {"FAILED", 0, "", "boom", 1}} {
		asked = 0
		j := JobOverview{ID: jobID, State: c.state, Tasks: map[string]int{"running": c.running, "total": 3}}
		if r.AddProblem(t.Context(), &j); j.Problem != c.problem || j.LastFailure != c.fail || asked != c.asked {
			t.Errorf("%+v: %q, %q after %d questions", c, j.Problem, j.LastFailure, asked)
		}
	}
	for id, want := range map[string]bool{"keep": false, "drop": true, "none": true} {
		if got, err := r.DeletesOnCancel(t.Context(), id); got != want || err != nil {
			t.Errorf("%s: %v, %v", id, got, err)
		}
	}
	var p Checkpoints
	for _, c := range []struct {
		at   **Checkpoint
		id   int64
		want string
	}{{&p.Latest.Failed, 9, ""}, {&p.Latest.Restored, 3, "p3"}, {&p.Latest.Completed, 5, "p5"}, {&p.Latest.Savepoint, 4, "p5"}} {
		*c.at = &Checkpoint{ID: c.id, Path: "p" + string(rune('0'+c.id))}
		if got := p.Newest(); got != c.want {
			t.Errorf("%d: %q, want %q", c.id, got, c.want)
		}
	}
}
