package rest_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/local"
	"github.com/thalweg/thalweg/runtime/jobmaster/jobtest"
	"github.com/thalweg/thalweg/runtime/minicluster"
	"github.com/thalweg/thalweg/runtime/rest"
	"github.com/thalweg/thalweg/runtime/rpc/pb"
	"github.com/thalweg/thalweg/runtime/scheduler"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type rig struct {
	t    *testing.T
	h    http.Handler
	w    *jobtest.World
	c    *minicluster.Cluster
	job  string
	dir  string
	shut atomic.Bool
}

func start(t *testing.T, conf map[string]string) *rig {
	t.Helper()
	r := &rig{t: t, w: &jobtest.World{}, dir: t.TempDir()}
	reg := &fs.Registry{}
	local.Register(reg)
	c := config.Configuration{"execution.checkpointing.interval": "1 h", "execution.checkpointing.savepoint-dir": "file://" + r.dir + "/sp", "restart-strategy.exponential-delay.initial-backoff": "1 ms",
		"fs.s3a.secret.key": "hunter22"}
	for k, v := range conf {
		c[k] = v
	}
	var err error
	r.c, err = minicluster.Start(context.Background(), minicluster.Options{Graph: jobtest.Graph(2, 3), Config: c, RunWorker: r.w.RunWorker, RunCoordinator: r.w.RunCoordinator, FS: reg,
		Dir: filepath.Join(r.dir, "c"), Logger: zerolog.New(zerolog.NewTestWriter(t))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.c.Close)
	logs := filepath.Join(r.dir, "logs")
	if err := os.MkdirAll(logs, 0o750); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"logs/jobmanager.log": "hello log", "outside": "secret"} {
		if err := os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../outside", filepath.Join(logs, "link")); err != nil {
		t.Fatal(err)
	}
	check := func(_ context.Context, field, uri string) (string, error) {
		if strings.HasPrefix(uri, "ftp:") {
			return "", fmt.Errorf("%s = %s: no file system", field, uri)
		}
		return uri, nil
	}
	r.h = rest.New(rest.Options{CheckFolder: check, Dispatcher: r.c.Dispatcher, TaskManagers: r.c.Resources, Config: c, LogDir: logs, Shutdown: func() { r.shut.Store(true) }, Logger: zerolog.Nop()})
	r.job = r.c.JobID.String()
	r.until("running", func() bool {
		d, err := r.c.Dispatcher.Details(context.Background(), r.c.JobID)
		return err == nil && d.State == scheduler.JobRunning && r.w.Running() == 5 && strings.Contains(r.get("/jobs/overview", 200), `"running":5`)
	})
	return r
}

func (r *rig) until(what string, ok func() bool) {
	r.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !ok() {
		if time.Now().After(deadline) {
			r.t.Fatalf("timed out waiting for %s", what)
		}
		jobtest.Pause()
	}
}

func (r *rig) call(method, path, body string, status int) string {
	r.t.Helper()
	rec := httptest.NewRecorder()
	r.h.ServeHTTP(rec, httptest.NewRequest(method, path, strings.NewReader(body)))
	b, err := io.ReadAll(rec.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	if rec.Code != status {
		r.t.Fatalf("%s %s: status %d, want %d: %s", method, path, rec.Code, status, b)
	}
	return string(b)
}

func (r *rig) get(path string, status int) string {
	r.t.Helper()
	return r.call("GET", path, "", status)
}

func decode(t *testing.T, s string) map[string]any {
	t.Helper()
	m := map[string]any{}
	if err := json.Unmarshal([]byte(s), &m); err != nil {
		t.Fatalf("%v in %s", err, s)
	}
	return m
}

// poll asks for an operation until it is complete.
func (r *rig) poll(path string) map[string]any {
	r.t.Helper()
	var m map[string]any
	r.until(path, func() bool {
		m = decode(r.t, r.get(path, 200))
		return m["status"].(map[string]any)["id"] == "COMPLETED"
	})
	return m["operation"].(map[string]any)
}

func (r *rig) trigger(path, body string) string {
	r.t.Helper()
	return decode(r.t, r.call("POST", path, body, 202))["request-id"].(string)
}

func TestRoutes(t *testing.T) {
	r := start(t, nil)
	job := "/jobs/" + r.job
	for _, c := range []struct{ path, want string }{
		{"/overview", `"jobs-running":1`},
		{"/overview", `"slots-total":3`},
		{"/v1/overview", `"taskmanagers":1`},
		{"/config", `"refresh-interval":3000`},
		{"/config", `"web-cancel":true`},
		{"/jobs", `{"jobs":\[{"id":"` + r.job + `","status":"RUNNING"}\]}`},
		{"/jobs/overview", `"jid":"` + r.job + `"`},
		{"/jobs/overview", `"running":5`},
		{"/jobs/overview", `"end-time":-1`},
		{job, `"state":"RUNNING"`},
		{job, `"name":"Source: numbers"`},
		{job, `"status-counts":{[^}]*"RUNNING":2`},
		{job, `"ship_strategy":"HASH"`},
		{job, `"accumulated-busy-time":0`},
		{job + "/status", `^{"status":"RUNNING"}`},
		{job + "/plan", `"plan":{.*"nodes":`},
		{job + "/config", `"restart-strategy":"exponential-delay`},
		{job + "/exceptions", `{"exceptionHistory":{"entries":\[\],"truncated":false}}`},
		{job + "/execution-result", `"IN_PROGRESS"`},
		{job + "/checkpoints", `"counts":{"completed":0,"failed":0,"in_progress":0,"restored":0,"total":0}`},
		{job + "/checkpoints/config", `"interval":3600000`},
		{job + "/checkpoints/config", `"mode":"exactly_once"`},
		{job + "/metrics", `{"id":"numRestarts"}`},
		{job + "/metrics?get=numRestarts,nosuch", `{"id":"numRestarts","value":"0"}`},
		{job + "/vertices/" + jobtest.Op(1).String(), `"parallelism":2`},
		{job + "/vertices/" + jobtest.Op(1).String() + "/backpressure", `"backpressureLevel":"ok"`},
		{job + "/jobmanager/config", `execution.checkpointing.interval`},
		{"/taskmanagers", `"id":"taskmanager-1"`},
		{"/taskmanagers", `"assignedTasks":5`},
		{"/taskmanagers/taskmanager-1", `"allocatedSlots":\[{"index":0,"jobId":"` + r.job + `"`},
		{"/jobmanager/config", `"key":"execution.checkpointing.interval","value":"1 h"`},
		{"/jobmanager/logs", `"name":"jobmanager.log","size":9`},
		{"/jobmanager/logs/jobmanager.log", `^hello log$`},
		{"/jobmanager/log", `^hello log$`},
		{"/metrics", `flink_jobmanager_numRunningJobs{host="[^"]*"} 1`},
		{"/metrics", `flink_jobmanager_job_numRestarts{.*job_name="test-job"} 0`},
		{"/", `<title>Thalweg</title>`},
	} {
		if got := r.get(c.path, 200); !regexp.MustCompile(c.want).MatchString(got) {
			t.Errorf("%s: %s does not match %s", c.path, got, c.want)
		}
	}
}

func TestErrors(t *testing.T) {
	r := start(t, nil)
	none := strings.Repeat("0", 32)
	job := "/jobs/" + r.job
	for _, c := range []struct {
		method, path, body string
		status             int
	}{
		{"GET", "/nosuch", "", 404},
		{"GET", "/v2/overview", "", 404},
		{"GET", "/jobs/" + none, "", 404},
		{"GET", "/jobs/xyz", "", 400},
		{"PATCH", "/jobs/" + none, "", 404},
		{"PATCH", job + "?mode=stop", "", 400},
		{"GET", job + "/vertices/" + none, "", 404},
		{"GET", job + "/vertices/1", "", 400},
		{"GET", job + "/checkpoints/details/7", "", 404},
		{"GET", job + "/checkpoints/details/x", "", 400},
		{"GET", job + "/checkpoints/" + none, "", 404},
		{"GET", job + "/savepoints/" + none, "", 404},
		{"GET", job + "/exceptions?maxExceptions=0", "", 400},
		{"GET", job + "/exceptions?failureLabelFilter=type", "", 400},
		{"POST", job + "/savepoints", `{"formatType":"FANCY"}`, 400},
		{"POST", job + "/savepoints", `{"triggerId":"7"}`, 400},
		{"POST", job + "/savepoints", `{`, 400},
		{"POST", job + "/savepoints", strings.Repeat(" ", 2<<20), 413},
		{"POST", job + "/checkpoints", `{"checkpointType":"HALF"}`, 400},
		{"POST", "/savepoint-disposal", `{}`, 400},
		{"POST", "/savepoint-disposal", `{"savepoint-path":"ftp://h/x"}`, 400},
		{"POST", job + "/savepoints", `{"target-directory":"ftp://h/x"}`, 400},
		{"POST", job + "/stop", `{"targetDirectory":"ftp://h/x"}`, 400},
		{"GET", "//jobs//overview", "", 404},
		{"GET", "/jobs/./overview", "", 404},
		{"GET", "/jobs/../overview", "", 404},
		{"POST", "/jobs/overview", "", 404}, // as Flink's Router, no 405
		{"DELETE", job, "", 404},
		{"GET", "/savepoint-disposal/" + none, "", 404},
		{"GET", "/taskmanagers/nosuch", "", 404},
		{"GET", "/jobmanager/logs/nosuch", "", 404},
		{"GET", "/jobmanager/logs/..%2foutside", "", 404},
		{"GET", "/jobmanager/logs/%00", "", 404},
		{"GET", "/jobmanager/stdout", "", 404},
	} {
		got := decode(t, r.call(c.method, c.path, c.body, c.status))
		if errs, ok := got["errors"].([]any); !ok || len(errs) != 1 || errs[0] == "" {
			t.Errorf("%s %s: %v, want {\"errors\": [text]}", c.method, c.path, got)
		}
	}
	for _, p := range []string{"//jobs/overview", "/jobs/overview/", "/v1/jobs/overview/"} { // as Flink's Router
		r.get(p, 200)
	}
	if got := r.call("GET", "/jobmanager/logs/link", "", 500); strings.Contains(got, "secret") {
		t.Error("a link led out of the log folder")
	}
}

func TestSecretsAreHidden(t *testing.T) {
	r := start(t, nil)
	for _, p := range []string{"/jobmanager/config", "/jobs/" + r.job + "/jobmanager/config", "/jobs/" + r.job + "/config"} {
		if got := r.get(p, 200); strings.Contains(got, "hunter22") || !strings.Contains(got, "fs.s3a.secret.key") {
			t.Errorf("%s: %s", p, got)
		}
	}
}

func TestCheckpointAndSavepoint(t *testing.T) {
	r := start(t, nil)
	job := "/jobs/" + r.job
	id := r.trigger(job+"/checkpoints", `{"checkpointType":"FULL"}`)
	if op := r.poll(job + "/checkpoints/" + id); op["checkpointId"] != 1.0 {
		t.Fatalf("operation %v", op)
	}
	got := r.get(job+"/checkpoints", 200)
	if !strings.Contains(got, `"completed":1`) || !strings.Contains(got, `/chk-1"`) {
		t.Error(got)
	}
	if got := r.get(job+"/checkpoints/details/1", 200); !strings.Contains(got, `"num_acknowledged_subtasks":5`) || !strings.Contains(got, jobtest.Op(2).String()) {
		t.Error(got)
	}
	if got := r.get(job+"/checkpoints/details/1/subtasks/"+jobtest.Op(2).String(), 200); !strings.Contains(got, `"index":2`) {
		t.Error(got)
	}
	own := strings.Repeat("ab", 16)
	for range 2 { // the caller's id makes the request repeatable
		if id := r.trigger(job+"/savepoints", `{"triggerId":"`+own+`"}`); id != own {
			t.Fatalf("id %s", id)
		}
	}
	op := r.poll(job + "/savepoints/" + own)
	loc, _ := op["location"].(string)
	if !strings.HasPrefix(loc, "file://"+r.dir+"/sp/savepoint-") {
		t.Fatalf("operation %v", op)
	}
	if !strings.Contains(r.get(job+"/checkpoints", 200), `"total":2`) {
		t.Error("the repeated request took another savepoint")
	}
	id = r.trigger("/savepoint-disposal", `{"savepoint-path":"`+loc+`"}`)
	if op := r.poll("/savepoint-disposal/" + id); op["failure-cause"] != nil {
		t.Fatal(op)
	}
	id = r.trigger("/savepoint-disposal", `{"savepoint-path":"`+loc+`"}`)
	if op := r.poll("/savepoint-disposal/" + id); op["failure-cause"] == nil {
		t.Fatal("a savepoint was disposed of twice")
	}
}

// A checkpoint that a later one subsumed stays in the history as completed, and says that its data is gone; a savepoint is the user's.
func TestSubsumedCheckpointsAreDiscarded(t *testing.T) {
	r := start(t, nil)
	job := "/jobs/" + r.job
	r.poll(job + "/checkpoints/" + r.trigger(job+"/checkpoints", "{}"))
	r.poll(job + "/savepoints/" + r.trigger(job+"/savepoints", "{}"))
	r.poll(job + "/checkpoints/" + r.trigger(job+"/checkpoints", "{}"))
	type checkpoint struct {
		ID        int64
		Status    string
		Discarded *bool
	}
	var all struct {
		History []checkpoint
		Latest  struct{ Completed, Savepoint checkpoint }
	}
	if err := json.Unmarshal([]byte(r.get(job+"/checkpoints", 200)), &all); err != nil {
		t.Fatal(err)
	}
	want := map[int64]bool{1: true, 2: false, 3: false}
	if len(all.History) != len(want) {
		t.Fatalf("history %+v", all.History)
	}
	for _, c := range append(all.History, all.Latest.Completed, all.Latest.Savepoint) {
		if c.Status != "COMPLETED" || c.Discarded == nil || *c.Discarded != want[c.ID] {
			t.Errorf("checkpoint %d is shown as %+v, want discarded %v", c.ID, c, want[c.ID])
		}
		var one checkpoint
		if err := json.Unmarshal([]byte(r.get(fmt.Sprintf("%s/checkpoints/details/%d", job, c.ID), 200)), &one); err != nil || one.Discarded == nil || *one.Discarded != want[c.ID] {
			t.Errorf("details of checkpoint %d: %+v, %v", c.ID, one, err)
		}
	}
	if all.Latest.Completed.ID != 3 || all.Latest.Savepoint.ID != 2 {
		t.Errorf("latest %+v", all.Latest)
	}
	if page := r.get("/", 200); !strings.Contains(page, "discarded") {
		t.Error("the status page does not tell discarded checkpoints apart")
	}
}

func TestStop(t *testing.T) {
	r := start(t, nil)
	job := "/jobs/" + r.job
	id := r.trigger(job+"/stop", `{"targetDirectory":"file://`+r.dir+`/other","drain":true}`)
	if op := r.poll(job + "/savepoints/" + id); !strings.Contains(op["location"].(string), "/other/savepoint-") {
		t.Fatal(op)
	}
	if got := r.get(job+"/status", 200); !strings.Contains(got, "FINISHED") { // the answer comes when nothing can make the job run again
		t.Errorf("stopped, but the job is %s", got)
	}
	if got := r.get(job+"/execution-result", 200); !strings.Contains(got, `"application-status":"SUCCEEDED"`) {
		t.Error(got)
	}
	if got := r.get("/overview", 200); !strings.Contains(got, `"jobs-finished":1`) {
		t.Error(got)
	}
	r.call("PATCH", job+"?mode=cancel", "", 409)
}

func TestCancelWithSavepoint(t *testing.T) {
	r := start(t, nil)
	job := "/jobs/" + r.job
	r.poll(job + "/savepoints/" + r.trigger(job+"/savepoints", `{"cancel-job":true}`))
	r.until("canceled", func() bool { return strings.Contains(r.get(job+"/status", 200), "CANCELED") })
}

func TestCancelThroughTheProxy(t *testing.T) {
	r := start(t, nil)
	r.call("GET", "/jobs/"+r.job+"/yarn-cancel", "", 202)
	r.until("canceled", func() bool { return strings.Contains(r.get("/jobs/"+r.job+"/status", 200), "CANCELED") })
}

func TestExceptions(t *testing.T) {
	r := start(t, nil)
	w := r.w.Workers()[0]
	w.Fail(w.Tasks()[0], &pb.Failure{Message: "cannot log in with hunter22", Detail: "stack of it", Kind: "panic", Operator: "sum"})
	var got string
	r.until("history", func() bool {
		got = r.get("/jobs/"+r.job+"/exceptions", 200)
		return strings.Contains(got, "stack of it")
	})
	for _, want := range []string{`"exceptionName":"panic"`, `"taskManagerId":"taskmanager-1"`, `"endpoint":"data-of-taskmanager-1"`, `"failureLabels":{"cause":"panic","type":"user"}`, `"operator":"sum"`, `"concurrentExceptions":[`, `"taskName":"S`} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in %s", want, got)
		}
	}
	for filter, n := range map[string]int{"type:user": 1, "type:user,cause:panic": 1, "type:system": 0, "type:user,cause:error": 0} {
		if got := r.get("/jobs/"+r.job+"/exceptions?failureLabelFilter="+filter, 200); strings.Count(got, `"exceptionName":"panic"`) != n {
			t.Errorf("%s: %s", filter, got)
		}
	}
	if strings.Contains(got, "hunter22") {
		t.Error("a secret is in the exception history")
	}
}

func TestDeleteCluster(t *testing.T) {
	r := start(t, nil)
	r.call("DELETE", "/cluster", "", 200)
	if !r.shut.Load() {
		t.Error("the cluster was not shut down")
	}
}

func TestListen(t *testing.T) {
	r := start(t, nil)
	s, err := rest.Listen(context.Background(), "127.0.0.1:0", r.h, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://"+s.Addr.String()+"/jobs", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 || !strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") {
		t.Errorf("%v", resp)
	}
	// A body that breaks its own framing is the client's mistake.
	c, err := net.Dial("tcp", s.Addr.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "POST /jobs/%s/checkpoints HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n", r.job)
	broken, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer broken.Body.Close()
	if broken.StatusCode != 400 {
		t.Errorf("broken body: %s", broken.Status)
	}
}
