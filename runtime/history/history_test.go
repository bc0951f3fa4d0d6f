package history_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/mem"
	"github.com/thalweg/thalweg/runtime/history"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func id(n int) string { return fmt.Sprintf("%032x", n) }

// cluster answers as a cluster's REST interface does, for jobs 1 and 2.
func cluster() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		one := "/jobs/" + id(1)
		body := map[string]string{
			"/jobs/overview":                        fmt.Sprintf(`{"jobs":[{"jid":%q,"name":"two","state":"RUNNING"},{"jid":%q,"name":"one","state":"FAILED","start-time":1,"end-time":9000,"duration":8999}]}`, id(2), id(1)),
			one:                                     `{"jid":"` + id(1) + `","name":"one","vertices":[{"id":"v1"}]}`,
			one + "/exceptions":                     `{"exceptionHistory":{"entries":[{"stacktrace":"boom"}]}}`,
			one + "/checkpoints":                    `{"history":[{"id":7},{"id":8}]}`,
			one + "/checkpoints/details/7":          `{"id":7}`,
			one + "/vertices/v1":                    `{"id":"v1"}`,
			one + "/checkpoints/details/8":          `{"id":8}`,
			one + "/checkpoints/details/8/subtasks": `{}`,
		}[r.URL.Path]
		if body == "" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte(body + "\n"))
	})
}

func get(t *testing.T, h http.Handler, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
	return w.Code, strings.TrimSpace(w.Body.String())
}

func store(t *testing.T, f fs.FileSystem) (*history.Store, http.Handler) {
	t.Helper()
	s := history.Open(func(uri string, err error) { t.Logf("%s: %v", uri, err) }, history.Folder{FS: f, Path: "/history"})
	if err := s.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s, history.Handler(s, 10*time.Second)
}

// What the cluster showed of a job when it ended is shown after it is gone, under the same paths; other jobs are not in it.
func TestDocumentsOutliveTheCluster(t *testing.T) {
	f := mem.New("nn")
	if err := history.Write(t.Context(), f, "/history", cluster(), id(1), "application_1_0001"); err != nil {
		t.Fatal(err)
	}
	s, h := store(t, f)
	if jobs := s.Jobs(); len(jobs) != 1 || jobs[0] != (history.Job{ID: id(1), Name: "one", State: "FAILED", Start: 1, End: 9000, Duration: 8999, Application: "application_1_0001"}) {
		t.Errorf("jobs %+v", jobs)
	}
	for path, want := range map[string]string{
		"/jobs/" + id(1):                            `"name":"one"`,
		"/v1/jobs/" + id(1) + "/exceptions/":        "boom",
		"/jobs/" + id(1) + "/checkpoints/details/7": `{"id":7}`,
		"/jobs/" + id(1) + "/vertices/v1":           `{"id":"v1"}`,
		"/jobs/overview":                            `"application-id":"application_1_0001"`,
		"/jobs":                                     `{"jobs":[{"id":"` + id(1) + `","status":"FAILED"}]}`,
		"/overview":                                 `"jobs-failed":1`,
		"/config":                                   `"web-history":true`,
		"/":                                         "<title>Thalweg</title>",
	} {
		if code, body := get(t, h, path); code != http.StatusOK || !strings.Contains(body, want) || strings.Contains(body, "two") {
			t.Errorf("GET %s: %d %s; want %s", path, code, body, want)
		}
	}
	for path, want := range map[string]int{"/jobs/" + id(2): 404, "/jobs/" + id(1) + "/metrics": 404, "/jobs/../etc/passwd": 404, "/taskmanagers": 404} {
		if code, body := get(t, h, path); code != want || !json.Valid([]byte(body)) {
			t.Errorf("GET %s: %d %s; want %d", path, code, body, want)
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPatch, "/jobs/"+id(1), http.NoBody))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("PATCH: %d", w.Code)
	}
	if err := history.Write(t.Context(), f, "/history", cluster(), id(3), ""); err == nil || !strings.Contains(err.Error(), "does not know the job") {
		t.Errorf("an unknown job: %v", err)
	}
}

// Flink's own archives are read, and files that are none hide no others.
func TestForeignFiles(t *testing.T) {
	f := mem.New("nn")
	if err := history.Write(t.Context(), f, "/history", cluster(), id(1), ""); err != nil {
		t.Fatal(err)
	}
	flinks := `{"archive":[{"path":"/jobs/overview","json":"{\"jobs\":[{\"jid\":\"` + id(4) + `\",\"name\":\"of Flink\",\"state\":\"FINISHED\",\"end-time\":10000}]}"},{"path":"/jobs/` + id(4) + `/config","json":"{\"jid\":1}"}]}`
	for name, text := range map[string]string{
		id(4): flinks, id(5): "not JSON", id(6): `{"archive":[]}`, id(7): strings.ReplaceAll(flinks, "of Flink", "under another's name"), "README": "hello", "." + id(8): flinks,
	} {
		if err := fs.WriteFile(t.Context(), f, "/history/"+name, []byte(text), false); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Mkdir(t.Context(), "/history/"+id(9), 0o700); err != nil {
		t.Fatal(err)
	}
	s, h := store(t, f)
	var names []string
	for _, j := range s.Jobs() {
		names = append(names, j.Name)
	}
	if got := strings.Join(names, ", "); got != "of Flink, one" {
		t.Errorf("jobs: %s", got)
	}
	if code, body := get(t, h, "/jobs/"+id(4)+"/config"); code != http.StatusOK || body != `{"jid":1}` {
		t.Errorf("%d %s", code, body)
	}
	if err := f.Remove(t.Context(), "/history/"+id(4), false); err != nil {
		t.Fatal(err)
	}
	if err := s.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if code, _ := get(t, h, "/jobs/"+id(4)+"/config"); code != http.StatusNotFound || len(s.Jobs()) != 1 {
		t.Errorf("an archive that is gone: %d, %v", code, s.Jobs())
	}
}

// The newest archives stay; a folder that does not exist is empty.
func TestRetention(t *testing.T) {
	f := mem.New("nn")
	s, _ := store(t, f)
	if len(s.Jobs()) != 0 {
		t.Errorf("jobs %v", s.Jobs())
	}
	many := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		var jobs []string
		for n := range 5 {
			jobs = append(jobs, fmt.Sprintf(`{"jid":%q,"name":"n%d","end-time":%d}`, id(n), n, n))
		}
		_, _ = fmt.Fprintf(w, `{"jobs":[%s]}`, strings.Join(jobs, ","))
	})
	for n := range 5 {
		if err := history.Write(t.Context(), f, "/history", many, id(n), ""); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := history.Prune(context.Background(), f, "/history", 2); n != 3 || err != nil {
		t.Errorf("removed %d, %v", n, err)
	}
	if err := s.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, j := range s.Jobs() {
		names = append(names, j.Name)
	}
	if got := strings.Join(names, " "); got != "n4 n3" {
		t.Errorf("left: %s", got)
	}
}
