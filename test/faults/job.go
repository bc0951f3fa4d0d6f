package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"time"

	"github.com/thalweg/thalweg/test/rig"
)

// job is the submitted application, seen through the ResourceManager's proxy as a user would.
type job struct {
	cluster *rig.Cluster
	bin     string // folder with the thalweg binary
	app, id string
}

// user is whose applications are: one who may not do everything in HDFS.
const user = "alice"

// thalweg runs the client.
func thalweg(ctx context.Context, c *rig.Cluster, bin string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, bin+"/thalweg", args...)
	cmd.Env = append(append(cmd.Environ(), c.Env()...), "HADOOP_USER_NAME="+user)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("thalweg %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}

// submit submits order-totals detached.
func submit(ctx context.Context, c *rig.Cluster, bin string, conf []string, args ...string) (*job, error) {
	cmd := append([]string{"run", "-t", "yarn-application", "-d", "-o", "json"}, conf...)
	cmd = append(append(cmd, bin+"/examples/order-totals"), args...)
	out, err := thalweg(ctx, c, bin, cmd...)
	if err != nil {
		return nil, err
	}
	var r struct{ ApplicationID, JobID string }
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &r); err != nil || r.ApplicationID == "" {
		return nil, fmt.Errorf("faults: the client printed %q: %w", out, err)
	}
	return &job{cluster: c, bin: bin, app: r.ApplicationID, id: r.JobID}, nil
}

var httpClient = &http.Client{Timeout: 3 * time.Second}

// get reads a path of the job's REST interface.
func (j *job) get(ctx context.Context, path string, v any) error {
	return j.getURL(ctx, j.cluster.ResourceManagerWeb+"/proxy/"+j.app+path, v)
}

func (j *job) getURL(ctx context.Context, url string, v any) error {
	text, err := j.textURL(ctx, url)
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(text), v)
}

// text reads a path of the job's REST interface as it is.
func (j *job) text(ctx context.Context, path string) (string, error) {
	return j.textURL(ctx, j.cluster.ResourceManagerWeb+"/proxy/"+j.app+path)
}

func (j *job) textURL(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	res, err := httpClient.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, 8<<20))
	if err != nil {
		return "", err
	}
	if res.StatusCode != http.StatusOK {
		return "", fmt.Errorf("faults: GET %s: %s", url, res.Status)
	}
	return string(b), nil
}

// state of the job as REST shows it.
type state struct {
	State     string `json:"state"`
	Restarts  int    `json:"restarts"`
	StartTime int64  `json:"start-time"`
	Vertices  []struct {
		Name        string         `json:"name"`
		Parallelism int            `json:"parallelism"`
		Tasks       map[string]int `json:"tasks"`
	} `json:"vertices"`
}

func (s state) running() bool {
	if s.State != "RUNNING" || len(s.Vertices) == 0 {
		return false
	}
	for _, v := range s.Vertices {
		if v.Tasks["RUNNING"] != v.Parallelism {
			return false
		}
	}
	return true
}

// errOver says that nothing is to be waited for any more.
var errOver = errors.New("the application is over")

func (j *job) state(ctx context.Context) (state, error) {
	var s state
	err := j.get(ctx, "/jobs/"+j.id, &s)
	if err != nil {
		if over, oerr := j.ended(ctx); over {
			err = errors.Join(fmt.Errorf("faults: %s: %w", j.app, errOver), oerr)
		}
	}
	return s, err
}

// containers lists the ids of the registered TaskManagers.
func (j *job) containers(ctx context.Context) ([]string, error) {
	var r struct {
		TaskManagers []struct {
			ID string `json:"id"`
		} `json:"taskmanagers"`
	}
	if err := j.get(ctx, "/taskmanagers", &r); err != nil {
		return nil, err
	}
	var ids []string
	for _, t := range r.TaskManagers {
		ids = append(ids, t.ID)
	}
	return ids, nil
}

// completed is the number of the latest completed checkpoint.
func (j *job) completed(ctx context.Context) (int64, error) {
	var r struct {
		Latest struct {
			Completed *struct {
				ID int64 `json:"id"`
			} `json:"completed"`
		} `json:"latest"`
	}
	if err := j.get(ctx, "/jobs/"+j.id+"/checkpoints", &r); err != nil {
		return 0, err
	}
	if r.Latest.Completed == nil {
		return 0, nil
	}
	return r.Latest.Completed.ID, nil
}

// answered asks REST until it answers: on a busy machine a single request may be too slow.
func answered[T any](ctx context.Context, what string, ask func(context.Context) (T, error)) (v T, err error) {
	err = until(ctx, time.Minute, what, func(ctx context.Context) (bool, error) {
		var err error
		v, err = ask(ctx)
		return err == nil, err
	})
	return v, err
}

// until polls a condition; its error is the last failure of the condition.
func until(ctx context.Context, limit time.Duration, what string, cond func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		ok, err := cond(ctx)
		if ok {
			return nil
		}
		if errors.Is(err, errOver) {
			return err
		}
		if err != nil && ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("faults: %s not within %v: %w (last: %v)", what, limit, context.Cause(ctx), last) //nolint:errorlint // the last one is only told
		case <-tick.C:
		}
	}
}
