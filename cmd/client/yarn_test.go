package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/thalweg/thalweg/am"
	"github.com/thalweg/thalweg/am/container"
	rmclient "github.com/thalweg/thalweg/yarnrpc/am"
	yarnpb "github.com/thalweg/thalweg/yarnrpc/proto/yarn"
	"github.com/thalweg/thalweg/yarnrpc/yarnfake"
)

// fakeYARN is a cluster whose masters are functions: each serves a job that is RUNNING and ends as the job's first argument says.
func fakeYARN(t *testing.T, opts ...yarnfake.Option) map[string]string {
	t.Helper()
	var f *yarnfake.Cluster
	ready := make(chan struct{})
	end := make(chan struct{}) // closed when the client has seen the job
	master := func(ctx context.Context, l yarnfake.Launch) error {
		<-ready
		app, err := container.FromCredentials(l.Credentials)
		if err != nil {
			return err
		}
		seen := false
		web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/jobs/" + app.JobID:
				fmt.Fprintf(w, `{"jid":%q,"state":"RUNNING","vertices":[{"id":"a","parallelism":1,"tasks":{"RUNNING":1},"metrics":{"read-records":1500,"write-records":1400}},{"id":"b","parallelism":2,"tasks":{"RUNNING":2},"metrics":{"read-records":1400}}],"plan":{"nodes":[{"id":"a"},{"id":"b","inputs":[{"id":"a"}]}]}}`, app.JobID) //nolint:errcheck // a test
			case "/metrics": // the sink is chained to a window, which takes many records for one
				fmt.Fprintf(w, "flink_taskmanager_job_task_operator_numRecordsSend{job_id=%q,subtask_index=\"0\"} 12\n", app.JobID) //nolint:errcheck // a test
			case "/jobs/" + app.JobID + "/checkpoints":
				fmt.Fprint(w, `{"counts":{"total":2,"completed":1,"failed":1},"latest":{"completed":{"id":1,"end_to_end_duration":12,"state_size":2048}}}`) //nolint:errcheck // a test
				if !seen {
					seen = true
					end <- struct{}{}
				}
			default:
				w.WriteHeader(http.StatusNotFound)
			}
		}))
		defer web.Close()
		m, err := rmclient.FromCredentials(f.Conf(), l.Credentials)
		if err != nil {
			return err
		}
		defer m.Close() //nolint:errcheck // end of the test
		if _, err := m.Register(ctx, rmclient.Registration{Host: "h", RPCPort: -1, TrackingURL: web.URL}); err != nil {
			return err
		}
		select {
		case <-end:
		case <-ctx.Done():
			return ctx.Err()
		}
		status, text := yarnpb.FinalApplicationStatusProto_APP_SUCCEEDED, ""
		if len(app.Args) > 0 && app.Args[0] == "fail" {
			status, text = yarnpb.FinalApplicationStatusProto_APP_FAILED, "Map (1/2): boom\nat line 2"
		}
		return m.Finish(ctx, status, text, "")
	}
	var err error
	f, err = yarnfake.Start(append(opts, yarnfake.WithConf(map[string]string{"fs.defaultFS": "file:///"}), yarnfake.WithRunner(func(ctx context.Context, l yarnfake.Launch) (int32, string) {
		if err := master(ctx, l); err != nil {
			return 1, err.Error()
		}
		return 0, ""
	}))...)
	if err != nil {
		t.Fatal(err)
	}
	close(ready)
	t.Cleanup(func() { _ = f.Close() })
	dir := t.TempDir()
	if err := f.ConfDir(dir); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HADOOP_CONF_DIR", dir)
	lib, conf := t.TempDir(), t.TempDir()
	for _, n := range []string{am.MasterBinary, am.TaskManagerBinary} {
		if err := os.WriteFile(filepath.Join(lib, n), []byte(n), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(conf, "config.yaml"), []byte("yarn:\n  staging-directory: file://"+t.TempDir()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return map[string]string{"THALWEG_LIB_DIR": lib, "THALWEG_CONF_DIR": conf}
}

func TestAttachedRunTellsHowItWent(t *testing.T) {
	env := fakeYARN(t)
	self := job(t)
	out, errs, code := thalweg(t, env, "run", "-t", "yarn-application", "-Dyarn.application.name=orders", self, "good")
	if code != 0 || !strings.Contains(out, "ended: SUCCEEDED") || !strings.Contains(out, "Application  application_") || !strings.Contains(out, "(orders)") {
		t.Errorf("exit %d\n%s\n%s", code, out, errs)
	}
	for _, want := range []string{"stage", "RUNNING", "3/3 tasks", "in 1,500", "out 12 ", "checkpoint 1", "(12 ms, 2.0 KiB)", "1 failed"} {
		if !strings.Contains(errs, want) {
			t.Errorf("progress lacks %q: %s", want, errs)
		}
	}
	out, errs, code = thalweg(t, env, "run", "-t", "yarn-application", self, "fail")
	if code != exitFailed || !strings.Contains(out, "ended: FAILED") || !strings.Contains(errs, "Map (1/2): boom") {
		t.Errorf("exit %d\n%s\n%s", code, out, errs)
	}
	// For machines: one object a line.
	out, errs, code = thalweg(t, env, "run", "-t", "yarn-application", "-o", "json", self, "fail")
	var events []string
	for _, l := range strings.Split(strings.TrimSpace(out), "\n") {
		var e map[string]any
		if err := json.Unmarshal([]byte(l), &e); err != nil {
			t.Fatalf("%q: %v", l, err)
		}
		events = append(events, e["event"].(string))
		if e["event"] == "submitted" && (e["sentBytes"] != 0.0 || e["applicationId"] == "" || len(e["jobId"].(string)) != 32) {
			t.Errorf("%v: the third submission of the same programs sends nothing", e)
		}
		if e["event"] == "ended" && e["diagnostics"] != "Map (1/2): boom\nat line 2" {
			t.Errorf("%v", e)
		}
	}
	if code != exitFailed || events[0] != "phase" || events[len(events)-1] != "ended" || errs != "" {
		t.Errorf("exit %d, events %v, %q", code, events, errs)
	}
}

func TestDetachedRunAndList(t *testing.T) {
	env := fakeYARN(t)
	self := job(t)
	out, errs, code := thalweg(t, env, "run", "-t", "yarn-application", "-d", "-Dyarn.application.name=orders", self)
	if code != 0 || !strings.Contains(out, "thalweg stop -Dyarn.application.id=application_") || !strings.Contains(out, "why it failed if it did: thalweg list -Dyarn.application.id=application_") {
		t.Fatalf("exit %d\n%s\n%s", code, out, errs)
	}
	deadline := time.Now().Add(time.Minute)
	for !strings.Contains(out, "RUNNING") && time.Now().Before(deadline) {
		out, errs, code = thalweg(t, env, "list")
	}
	if code != 0 || !strings.Contains(out, "orders") || !strings.Contains(out, "RUNNING") {
		t.Errorf("exit %d\n%s\n%s", code, out, errs)
	}
	if _, errs, code := thalweg(t, env, "cancel", "-Dyarn.application.name=none"); code != exitUsage || !strings.Contains(errs, `none is named "none"`) {
		t.Errorf("exit %d %q", code, errs)
	}
	if _, errs, code := thalweg(t, env, "cancel"); code != exitUsage || !strings.Contains(errs, "or the id of a job; one runs, orders: -Dyarn.application.id=application_") {
		t.Errorf("exit %d %q", code, errs)
	}
}

// Why an application failed stands in the list, in one line among others and in whole for one.
func TestListTellsWhyAnApplicationFailed(t *testing.T) {
	env := fakeYARN(t)
	self := job(t)
	if _, errs, code := thalweg(t, env, "run", "-t", "yarn-application", self, "good"); code != 0 {
		t.Fatalf("exit %d: %s", code, errs)
	}
	out, errs, code := thalweg(t, env, "run", "-t", "yarn-application", "-Dyarn.application.name=orders", self, "fail")
	_, app, _ := strings.Cut(out, "Application  ")
	app, _, _ = strings.Cut(app, " ")
	if code != exitFailed {
		t.Fatalf("exit %d\n%s\n%s", code, out, errs)
	}
	if out, _, _ = thalweg(t, env, "list", "-Dyarn.application.id="+app); !strings.Contains(out, "\n    why: Map (1/2): boom\n    at line 2\n") {
		t.Errorf("a single one:\n%s", out)
	}
	if out, _, _ = thalweg(t, env, "list", "-a"); !strings.Contains(out, "\n    why: Map (1/2): boom\n") || strings.Contains(out, "at line 2") || strings.Count(out, "why:") != 1 || !strings.Contains(out, "SUCCEEDED") {
		t.Errorf("all:\n%s", out)
	}
}

func TestNoCluster(t *testing.T) {
	t.Setenv("HADOOP_CONF_DIR", "")
	t.Setenv("YARN_CONF_DIR", "")
	if _, errs, code := thalweg(t, nil, "list"); code != exitUsage || strings.Count(errs, "HADOOP_CONF_DIR") != 1 {
		t.Errorf("exit %d %q", code, errs)
	}
	dir := t.TempDir()
	site := "<configuration><property><name>yarn.resourcemanager.address</name><value>127.0.0.1:1</value></property></configuration>"
	if err := os.WriteFile(filepath.Join(dir, "yarn-site.xml"), []byte(site), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HADOOP_CONF_DIR", dir)
	if _, errs, code := thalweg(t, nil, "list", "-Dclient.connection-timeout=200ms"); code != exitUnreachable || !strings.Contains(errs, "yarn.resourcemanager.address") || !strings.Contains(errs, "yarn-site.xml") {
		t.Errorf("exit %d %q", code, errs)
	}
}
