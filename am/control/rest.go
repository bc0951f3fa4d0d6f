package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/thalweg/thalweg/runtime/graph"
)

// maxBody bounds an answer, in bytes.
const maxBody = 32 << 20

// REST is a client of one application's REST interface. Safe for concurrent use.
type REST struct {
	base string
	http *http.Client
}

// NewREST makes a client of the interface at base, such as "http://host:8081". timeout bounds one request.
func NewREST(base string, timeout time.Duration) *REST {
	t := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 2, IdleConnTimeout: 30 * time.Second}
	return &REST{base: strings.TrimSuffix(base, "/"), http: &http.Client{Timeout: timeout, Transport: t}}
}

// Close ends idle connections.
func (r *REST) Close() { r.http.CloseIdleConnections() }

// Base is the address of the interface.
func (r *REST) Base() string { return r.base }

// StatusError is an answer other than 2xx.
type StatusError struct {
	Code    int
	Message string // the server's words
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("control: the REST interface answers %d: %s", e.Code, e.Message)
}

// UnreachableError says that the REST interface does not answer.
type UnreachableError struct {
	URL string
	Err error
}

func (e *UnreachableError) Error() string {
	hint := "is the host reachable from here?"
	if e.Refused() {
		hint = "nothing listens there: has the job ended, or is the port another one?"
	}
	return fmt.Sprintf("control: the REST interface at %s does not answer: %v (%s)", e.URL, e.Err, hint)
}

// Refused reports whether the host answered that nothing listens at the port.
func (e *UnreachableError) Refused() bool { return errors.Is(e.Err, syscall.ECONNREFUSED) }

// Sent reports whether the request may have been read before the connection was lost.
func (e *UnreachableError) Sent() bool {
	var op *net.OpError
	return !errors.As(e.Err, &op) || op.Op != "dial"
}

func (e *UnreachableError) Unwrap() error { return e.Err }

// raw is an answer that is no JSON.
type raw []byte

func (r *REST) do(ctx context.Context, method, path string, body, out any) error {
	var in io.Reader = http.NoBody
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("control: %s %s: %w", method, path, err)
		}
		in = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, r.base+path, in)
	if err != nil {
		return fmt.Errorf("control: %s %s: %w", method, path, err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return r.send(req, r.http, out)
}

func (r *REST) send(req *http.Request, c *http.Client, out any) error {
	resp, err := c.Do(req)
	if err != nil {
		if ctx := req.Context(); ctx.Err() != nil {
			return ctx.Err()
		}
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err
		}
		return &UnreachableError{URL: r.base, Err: err}
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err != nil {
		return &UnreachableError{URL: r.base, Err: err}
	}
	if resp.StatusCode/100 != 2 {
		return &StatusError{Code: resp.StatusCode, Message: errorText(b)}
	}
	if out == nil {
		return nil
	}
	if t, ok := out.(*raw); ok {
		*t = b
		return nil
	}
	if err := json.Unmarshal(b, out); err != nil {
		return fmt.Errorf("control: %s %s: the answer is no JSON of Flink's REST API: %w", req.Method, req.URL.Path, err)
	}
	return nil
}

// errorText takes the message out of {"errors":["..."]}; the first line of a Java stack is enough.
func errorText(b []byte) string {
	var e struct {
		Errors []string `json:"errors"`
	}
	text := string(b)
	if json.Unmarshal(b, &e) == nil && len(e.Errors) > 0 {
		text = e.Errors[0]
	}
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	if text == "" {
		return "no message"
	}
	return text
}

// Overview is the cluster in numbers.
type Overview struct {
	TaskManagers   int    `json:"taskmanagers"`
	SlotsTotal     int    `json:"slots-total"`
	SlotsAvailable int    `json:"slots-available"`
	Running        int    `json:"jobs-running"`
	Finished       int    `json:"jobs-finished"`
	Cancelled      int    `json:"jobs-cancelled"`
	Failed         int    `json:"jobs-failed"`
	Version        string `json:"flink-version"`
}

// Overview returns the cluster in numbers.
func (r *REST) Overview(ctx context.Context) (o Overview, err error) {
	return o, r.do(ctx, http.MethodGet, "/overview", nil, &o)
}

// JobOverview is a line of a list of jobs. Times are milliseconds since 1970; EndTime is -1 while the job runs.
type JobOverview struct {
	ID        string         `json:"jid"`
	Name      string         `json:"name"`
	State     string         `json:"state"`
	StartTime int64          `json:"start-time"`
	EndTime   int64          `json:"end-time"`
	Duration  int64          `json:"duration"`
	Tasks     map[string]int `json:"tasks"`
	// What AddProblem fills in, and Jobs leaves empty.
	Problem     string `json:"problem,omitempty"`     // why it waits for containers
	LastFailure string `json:"lastFailure,omitempty"` // why it restarts, fails or has failed: the newest failure, with its stack
}

// Runs reports whether the job is RUNNING with all its tasks.
func (j *JobOverview) Runs() bool {
	return j.State == "RUNNING" && j.Tasks["running"]+j.Tasks["finished"] >= j.Tasks["total"]
}

// Jobs lists the jobs.
func (r *REST) Jobs(ctx context.Context) ([]JobOverview, error) {
	var o struct {
		Jobs []JobOverview `json:"jobs"`
	}
	return o.Jobs, r.do(ctx, http.MethodGet, "/jobs/overview", nil, &o)
}

// AddProblem asks why a job does not run fully, or has failed. What cannot be learned is left empty.
func (r *REST) AddProblem(ctx context.Context, j *JobOverview) {
	if j.Runs() || ended(j.State) && j.State != "FAILED" {
		return
	}
	if !ended(j.State) {
		d, err := r.Job(ctx, j.ID)
		if err != nil || d.Runs() {
			return
		}
		j.Problem = d.Problem
	}
	if text, err := r.RootCause(ctx, j.ID); err == nil {
		j.LastFailure = text
	}
}

// Job is a job's present state, as far as the command line shows it.
type Job struct {
	ID           string         `json:"jid"`
	Name         string         `json:"name"`
	State        string         `json:"state"`
	Type         string         `json:"job-type"` // STREAMING or BATCH
	StartTime    int64          `json:"start-time"`
	EndTime      int64          `json:"end-time"`
	Duration     int64          `json:"duration"`
	Vertices     []Vertex       `json:"vertices"`
	StatusCounts map[string]int `json:"status-counts"`
	Restarts     int            `json:"restarts"`
	Rescaling    bool           `json:"rescaling"` // it is RESTARTING for another parallelism
	Problem      string         `json:"problem"`   // why slots are missing; "" for nothing known
	Plan         struct {
		Nodes []PlanNode `json:"nodes"`
	} `json:"plan"`
}

// Vertex is a vertex of a Job.
type Vertex struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Parallelism int    `json:"parallelism"`

	MaxParallelism int `json:"maxParallelism"`
	Operators      []struct {
		UID  string `json:"uid"`
		Name string `json:"name"`
	} `json:"operators"`

	Status  string         `json:"status"`
	Tasks   map[string]int `json:"tasks"`
	Metrics struct {
		ReadRecords  int64 `json:"read-records"`
		WriteRecords int64 `json:"write-records"`
	} `json:"metrics"`
}

// PlanNode is a vertex of a Job's plan.
type PlanNode struct {
	ID     string      `json:"id"`
	Inputs []PlanInput `json:"inputs"`
}

// PlanInput names the vertex that an input of a PlanNode comes from.
type PlanInput struct {
	ID string `json:"id"`
}

// Count returns how many tasks run or have finished, and how many there are.
func (j *Job) Count() (running, total int) {
	for _, v := range j.Vertices {
		total += v.Parallelism
		running += v.Tasks["RUNNING"] + v.Tasks["FINISHED"]
	}
	return running, total
}

// Runs reports whether the job is RUNNING with all its tasks.
func (j *Job) Runs() bool {
	running, total := j.Count()
	return j.State == "RUNNING" && running >= total
}

// Job returns a job.
func (r *REST) Job(ctx context.Context, id string) (j Job, err error) {
	return j, r.do(ctx, http.MethodGet, "/jobs/"+id, nil, &j)
}

// Checkpoint is one of a job's checkpoints.
type Checkpoint struct {
	ID       int64  `json:"id"`
	Status   string `json:"status"`
	Trigger  int64  `json:"trigger_timestamp"`
	Ack      int64  `json:"latest_ack_timestamp"`
	Duration int64  `json:"end_to_end_duration"` // ms
	Size     int64  `json:"state_size"`          // bytes
	Path     string `json:"external_path"`
	Failure  string `json:"failure_message"`
}

// Checkpoints are a job's checkpoints in numbers, with the latest ones; those are nil when there is none.
type Checkpoints struct {
	Counts struct {
		Total      int `json:"total"`
		InProgress int `json:"in_progress"`
		Completed  int `json:"completed"`
		Failed     int `json:"failed"`
		Restored   int `json:"restored"`
	} `json:"counts"`
	Latest struct {
		Completed *Checkpoint `json:"completed"`
		Savepoint *Checkpoint `json:"savepoint"`
		Failed    *Checkpoint `json:"failed"`
		Restored  *Checkpoint `json:"restored"` // what the job last started from; only ID and Path
	} `json:"latest"`
}

// Newest is the path of the newest checkpoint or savepoint to start from, "" when there is none.
func (c *Checkpoints) Newest() string {
	path, id := "", int64(-1)
	for _, p := range []*Checkpoint{c.Latest.Restored, c.Latest.Savepoint, c.Latest.Completed} {
		if p != nil && p.Path != "" && p.ID > id {
			path, id = p.Path, p.ID
		}
	}
	return path
}

// DeletesOnCancel reports whether the cancellation of a job deletes its checkpoints.
func (r *REST) DeletesOnCancel(ctx context.Context, id string) (bool, error) {
	var c struct {
		External struct {
			Enabled bool `json:"enabled"`
			Delete  bool `json:"delete_on_cancellation"`
		} `json:"externalization"`
	}
	err := r.do(ctx, http.MethodGet, "/jobs/"+id+"/checkpoints/config", nil, &c)
	return err == nil && (!c.External.Enabled || c.External.Delete), err
}

// Checkpoints returns a job's checkpoints.
func (r *REST) Checkpoints(ctx context.Context, id string) (c Checkpoints, err error) {
	return c, r.do(ctx, http.MethodGet, "/jobs/"+id+"/checkpoints", nil, &c)
}

// RootCause returns the newest failure of a job, "task: [whose] text", and "" when there was none.
func (r *REST) RootCause(ctx context.Context, id string) (string, error) {
	var e struct {
		History struct {
			Entries []struct {
				Name  string `json:"exceptionName"`
				Stack string `json:"stacktrace"`
				Task  string `json:"taskName"`
				Label struct {
					Type string `json:"type"`
				} `json:"failureLabels"`
			} `json:"entries"`
		} `json:"exceptionHistory"`
	}
	if err := r.do(ctx, http.MethodGet, "/jobs/"+id+"/exceptions?maxExceptions=1", nil, &e); err != nil || len(e.History.Entries) == 0 {
		return "", err
	}
	first := e.History.Entries[0]
	text := first.Stack
	if text == "" {
		text = first.Name
	}
	if first.Label.Type != "" {
		text = "[" + first.Label.Type + "] " + text
	}
	if first.Task != "" {
		text = first.Task + ": " + text
	}
	return text, nil
}

// Cancel asks for the end of a job; its state tells when it has ended.
func (r *REST) Cancel(ctx context.Context, id string) error {
	return r.do(ctx, http.MethodPatch, "/jobs/"+id+"?mode=cancel", nil, nil)
}

// SavepointRequest says what kind of savepoint is taken and where.
type SavepointRequest struct {
	Dir    string // URI; "" for execution.checkpointing.savepoint-dir
	Format string // CANONICAL or NATIVE; "" for CANONICAL
	Drain  bool   // stop only: the maximal watermark first
}

// trigger is an asynchronous operation.
type trigger struct {
	RequestID string `json:"request-id"`
}

func format(f string) string {
	if f == "" {
		return "CANONICAL"
	}
	return strings.ToUpper(f)
}

// TriggerSavepoint starts a savepoint and returns the operation's id.
func (r *REST) TriggerSavepoint(ctx context.Context, job string, s SavepointRequest) (string, error) {
	body := map[string]any{"cancel-job": false, "formatType": format(s.Format), "triggerId": graph.NewID().String()}
	if s.Dir != "" {
		body["target-directory"] = s.Dir
	}
	var t trigger
	return t.RequestID, r.repeat(ctx, "/jobs/"+job+"/savepoints", body, &t)
}

// TriggerStop starts a stop with savepoint and returns the operation's id.
func (r *REST) TriggerStop(ctx context.Context, job string, s SavepointRequest) (string, error) {
	body := map[string]any{"drain": s.Drain, "formatType": format(s.Format), "triggerId": graph.NewID().String()}
	if s.Dir != "" {
		body["targetDirectory"] = s.Dir
	}
	var t trigger
	return t.RequestID, r.repeat(ctx, "/jobs/"+job+"/stop", body, &t)
}

// TriggerCheckpoint starts a checkpoint and returns the operation's id.
func (r *REST) TriggerCheckpoint(ctx context.Context, job string, full bool) (string, error) {
	kind := "CONFIGURED"
	if full {
		kind = "FULL"
	}
	var t trigger
	return t.RequestID, r.repeat(ctx, "/jobs/"+job+"/checkpoints", map[string]any{"checkpointType": kind, "triggerId": graph.NewID().String()}, &t)
}

// repeat posts a request that carries its own id, once more when the answer was lost.
func (r *REST) repeat(ctx context.Context, path string, body, out any) error {
	err := r.do(ctx, http.MethodPost, path, body, out)
	var u *UnreachableError
	if errors.As(err, &u) && ctx.Err() == nil {
		return r.do(ctx, http.MethodPost, path, body, out)
	}
	return err
}

// OperationError says that an asynchronous operation failed.
type OperationError struct{ Cause string }

func (e *OperationError) Error() string { return e.Cause }

// operationPoll is the pause between two looks at an operation.
const operationPoll = 100 * time.Millisecond

// AwaitSavepoint waits for the end of a savepoint or a stop and returns where the savepoint is.
//
// Errors: *OperationError, and what a request may return.
func (r *REST) AwaitSavepoint(ctx context.Context, job, id string) (string, error) {
	var op struct {
		Location string  `json:"location"`
		Failure  failure `json:"failure-cause"`
	}
	if err := r.await(ctx, "/jobs/"+job+"/savepoints/"+id, &op); err != nil {
		return "", err
	}
	if c := op.Failure.text(); c != "" {
		return "", &OperationError{c}
	}
	return op.Location, nil
}

// AwaitCheckpoint waits for the end of a checkpoint and returns its number.
//
// Errors: *OperationError, and what a request may return.
func (r *REST) AwaitCheckpoint(ctx context.Context, job, id string) (int64, error) {
	var op struct {
		ID      int64   `json:"checkpointId"`
		Failure failure `json:"failureCause"`
	}
	if err := r.await(ctx, "/jobs/"+job+"/checkpoints/"+id, &op); err != nil {
		return 0, err
	}
	if c := op.Failure.text(); c != "" {
		return 0, &OperationError{c}
	}
	return op.ID, nil
}

type failure struct {
	Class string `json:"class"`
	Stack string `json:"stack-trace"`
}

func (f failure) text() string {
	t, _, _ := strings.Cut(strings.TrimSpace(f.Stack), "\n")
	if t == "" {
		t = f.Class
	}
	return t
}

func (r *REST) await(ctx context.Context, path string, op any) error {
	for {
		var s struct {
			Status struct {
				ID string `json:"id"`
			} `json:"status"`
			Operation json.RawMessage `json:"operation"`
		}
		if err := r.do(ctx, http.MethodGet, path, nil, &s); err != nil {
			return err
		}
		if s.Status.ID == "COMPLETED" {
			if len(s.Operation) == 0 || string(s.Operation) == "null" {
				return nil
			}
			if err := json.Unmarshal(s.Operation, op); err != nil {
				return fmt.Errorf("control: %s: %w", path, err)
			}
			return nil
		}
		timer := time.NewTimer(operationPoll)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}
