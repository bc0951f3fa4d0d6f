package flink

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// REST reads the REST interface of a JobManager; Thalweg's has the same paths and fields.
type REST struct {
	base string
	http *http.Client
}

// submitWait is how long a request may take: a submission plans the job, which takes Flink's SQL seconds.
const submitWait = 2 * time.Minute

// NewREST makes a client for a base URL.
func NewREST(base string) *REST {
	return &REST{base: strings.TrimSuffix(base, "/"), http: &http.Client{Timeout: submitWait}}
}

// Get reads a path into v.
func (r *REST) Get(ctx context.Context, path string, v any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.base+path, nil)
	if err != nil {
		return fmt.Errorf("flink: GET %s: %w", path, err)
	}
	return r.do(req, v)
}

func (r *REST) do(req *http.Request, v any) error {
	what := req.Method + " " + req.URL.String()
	res, err := r.http.Do(req)
	if err != nil {
		return fmt.Errorf("flink: %w", err)
	}
	defer res.Body.Close() //nolint:errcheck // read below
	b, err := io.ReadAll(io.LimitReader(res.Body, 16<<20))
	if err != nil {
		return fmt.Errorf("flink: %s: %w", what, err)
	}
	if res.StatusCode >= 300 {
		return fmt.Errorf("flink: %s: %s: %.500s", what, res.Status, b)
	}
	if v == nil {
		return nil
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("flink: %s: %w", what, err)
	}
	return nil
}

// Job is a job's state.
type Job struct {
	State      string           `json:"state"`
	Timestamps map[string]int64 `json:"timestamps"`
	Vertices   []struct {
		ID          string         `json:"id"`
		Parallelism int            `json:"parallelism"`
		Tasks       map[string]int `json:"tasks"`
	} `json:"vertices"`
}

// Ended says that the job is in a state that it stays in.
func (j Job) Ended() bool {
	return j.State == "FINISHED" || j.State == "FAILED" || j.State == "CANCELED"
}

// Runs says that every task of the job runs, or has run to its end.
func (j Job) Runs() bool {
	if j.State != "RUNNING" || len(j.Vertices) == 0 {
		return false
	}
	for _, v := range j.Vertices {
		if v.Tasks["RUNNING"]+v.Tasks["FINISHED"] != v.Parallelism {
			return false
		}
	}
	return true
}

// Require asks for another parallelism of each vertex, in their order: as many subtasks as there are slots for, up to that.
func (r *REST) Require(ctx context.Context, id string, parallelism ...int) error {
	j, err := r.Job(ctx, id)
	if err != nil {
		return err
	}
	if len(j.Vertices) != len(parallelism) {
		return fmt.Errorf("flink: the job has %d vertices, not %d", len(j.Vertices), len(parallelism))
	}
	type bounds struct {
		Lower int `json:"lowerBound"`
		Upper int `json:"upperBound"`
	}
	body := map[string]map[string]bounds{}
	for i, v := range j.Vertices {
		body[v.ID] = map[string]bounds{"parallelism": {1, parallelism[i]}}
	}
	b, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("flink: require: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, r.base+"/jobs/"+id+"/resource-requirements", bytes.NewReader(b))
	if err != nil {
		return fmt.Errorf("flink: require: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	return r.do(req, nil)
}

// Job reads a job's state.
func (r *REST) Job(ctx context.Context, id string) (Job, error) {
	var j Job
	err := r.Get(ctx, "/jobs/"+id, &j)
	return j, err
}

// Jobs lists the ids of the jobs.
func (r *REST) Jobs(ctx context.Context) ([]string, error) {
	var o struct {
		Jobs []struct {
			ID string `json:"id"`
		} `json:"jobs"`
	}
	if err := r.Get(ctx, "/jobs", &o); err != nil {
		return nil, err
	}
	var ids []string
	for _, j := range o.Jobs {
		ids = append(ids, j.ID)
	}
	return ids, nil
}

// RootCause is why a job failed, as far as it is known.
func (r *REST) RootCause(ctx context.Context, id string) string {
	var e struct {
		History struct {
			Entries []struct {
				Stack string `json:"stacktrace"`
			} `json:"entries"`
		} `json:"exceptionHistory"`
	}
	if err := r.Get(ctx, "/jobs/"+id+"/exceptions", &e); err != nil || len(e.History.Entries) == 0 {
		return "no cause is known"
	}
	return fmt.Sprintf("%.1500s", e.History.Entries[0].Stack)
}

// Upload brings a jar to a session cluster and returns its id.
func (r *REST) Upload(ctx context.Context, jar string) (string, error) {
	b, err := os.ReadFile(jar)
	if err != nil {
		return "", fmt.Errorf("flink: upload: %w", err)
	}
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	part, err := w.CreateFormFile("jarfile", filepath.Base(jar))
	if err != nil {
		return "", fmt.Errorf("flink: upload: %w", err)
	}
	if _, err = part.Write(b); err == nil {
		err = w.Close()
	}
	if err != nil {
		return "", fmt.Errorf("flink: upload: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.base+"/jars/upload", &body)
	if err != nil {
		return "", fmt.Errorf("flink: upload: %w", err)
	}
	req.Header.Set("Content-Type", w.FormDataContentType())
	var o struct {
		Filename string `json:"filename"`
	}
	err = r.do(req, &o)
	return filepath.Base(o.Filename), err
}

// RunJar starts a class of an uploaded jar and returns the job's id.
func (r *REST) RunJar(ctx context.Context, jar, class string, parallelism int, args []string) (string, error) {
	b, err := json.Marshal(map[string]any{"entryClass": class, "parallelism": parallelism, "programArgsList": args})
	if err != nil {
		return "", fmt.Errorf("flink: run: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.base+"/jars/"+jar+"/run", bytes.NewReader(b))
	if err != nil {
		return "", fmt.Errorf("flink: run: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	var o struct {
		JobID string `json:"jobid"`
	}
	err = r.do(req, &o)
	return o.JobID, err
}
