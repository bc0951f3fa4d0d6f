package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/thalweg/thalweg/connector/kafka/kafkatest"
	"github.com/thalweg/thalweg/test/rig/rigtest"
)

// prefix begins the name of every application of this run.
var prefix = kafkatest.Name("it") + "-"

// secret is planted where a user might put one; it must not come out anywhere.
const secret = "s3cr3t-swordfish"

// result is what a command line did.
type result struct {
	args           []string
	stdout, stderr string
	code           int
}

func (r result) String() string {
	return fmt.Sprintf("thalweg %s: exit code %d\nstderr:\n%s\nstdout:\n%s", strings.Join(r.args, " "), r.code, r.stderr, r.stdout)
}

// thalweg runs the client; env comes over the cluster's variables.
func thalweg(t *testing.T, env []string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "thalweg"), args...)
	cmd.Env = append(append(os.Environ(), cluster.Env()...), append([]string{"THALWEG_CONF_DIR=" + t.TempDir()}, env...)...)
	cmd.WaitDelay = 5 * time.Second
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		t.Fatalf("thalweg %s: %v (%v)\n%s%s", strings.Join(args, " "), err, ctx.Err(), out.String(), errs.String())
	}
	return result{args, out.String(), errs.String(), cmd.ProcessState.ExitCode()}
}

// job is a submitted job.
type job struct {
	t         *testing.T
	app, id   string
	name      string
	sentBytes int64
	staging   string
}

// submit runs an artifact detached under a name of this run.
func submit(t *testing.T, conf []string, artifact string, args ...string) *job {
	t.Helper()
	j := &job{t: t, name: kafkatest.Name(prefix + strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-")))}
	line := append([]string{"run", "-t", "yarn-application", "-d", "-o", "json", "-Dyarn.application.name=" + j.name, "-Duser.api.password=" + secret}, conf...)
	r := thalweg(t, nil, append(append(line, artifact), args...)...)
	if r.code != 0 {
		t.Fatal(r)
	}
	var s struct {
		ApplicationID, JobID, StagingDirectory string
		SentBytes                              int64
	}
	lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &s); err != nil || s.ApplicationID == "" || s.JobID == "" {
		t.Fatalf("no application id: %v\n%s", err, r)
	}
	j.app, j.id, j.sentBytes, j.staging = s.ApplicationID, s.JobID, s.SentBytes, s.StagingDirectory
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if _, err := cluster.YarnCLI(ctx, "application", "-kill", j.app); err != nil {
			t.Log(err)
		}
	})
	return j
}

// with is the same job for a subtest.
func (j job) with(t *testing.T) *job {
	j.t = t
	return &j
}

// do runs an action on the job by its application id.
func (j *job) do(args ...string) string {
	j.t.Helper()
	r := thalweg(j.t, nil, append(args, "-Dyarn.application.id="+j.app)...)
	if r.code != 0 {
		j.t.Fatal(r)
	}
	return r.stdout
}

// patience bounds the wait for one step of a job (-patience).
var patience = 2 * time.Minute

var web = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// getJSON reads an address.
func getJSON(ctx context.Context, url string, v any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	res, err := web.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close() //nolint:errcheck // only read
	b, err := io.ReadAll(io.LimitReader(res.Body, 16<<20))
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", url, res.Status)
	}
	return json.Unmarshal(b, v)
}

// rest reads a path of the job's REST interface through the ResourceManager's proxy.
func (j *job) rest(path string, v any) error {
	return getJSON(j.t.Context(), cluster.ResourceManagerWeb+"/proxy/"+j.app+path, v)
}

// jobState is the job as REST shows it.
type jobState struct {
	State    string `json:"state"`
	Restarts int    `json:"restarts"`
	Adopted  int    `json:"adopted-tasks"`
	Vertices []struct {
		ID          string         `json:"id"`
		Name        string         `json:"name"`
		Parallelism int            `json:"parallelism"`
		Tasks       map[string]int `json:"tasks"`
	} `json:"vertices"`
}

func (s jobState) running() bool {
	if s.State != "RUNNING" || len(s.Vertices) == 0 {
		return false
	}
	for _, v := range s.Vertices {
		if v.Tasks["RUNNING"]+v.Tasks["FINISHED"] != v.Parallelism {
			return false
		}
	}
	return true
}

func (j *job) state() (s jobState, err error) {
	err = j.rest("/jobs/"+j.id, &s)
	return s, err
}

// awaitRunning waits until all tasks run.
func (j *job) awaitRunning() jobState {
	j.t.Helper()
	var s jobState
	until(j.t, patience, "the job RUNNING", func() (ok bool, err error) {
		s, err = j.state()
		return s.running(), err
	})
	return s
}

// completed is the number of the latest completed checkpoint, 0 for none.
func (j *job) completed() (int64, error) {
	var r struct {
		Latest struct {
			Completed *struct {
				ID int64 `json:"id"`
			} `json:"completed"`
		} `json:"latest"`
	}
	if err := j.rest("/jobs/"+j.id+"/checkpoints", &r); err != nil || r.Latest.Completed == nil {
		return 0, err
	}
	return r.Latest.Completed.ID, nil
}

// awaitCheckpoint waits until a checkpoint after number n is complete and returns its number.
func (j *job) awaitCheckpoint(n int64) (id int64) {
	j.t.Helper()
	until(j.t, patience, fmt.Sprintf("a checkpoint after %d", n), func() (ok bool, err error) {
		id, err = j.completed()
		return id > n, err
	})
	return id
}

// application is one as the ResourceManager's page shows it.
type application struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	State       string `json:"state"`
	Final       string `json:"finalStatus"`
	Diagnostics string `json:"diagnostics"`
	TrackingURL string `json:"trackingUrl"`
	Type        string `json:"applicationType"`
	User        string `json:"user"`
	Aggregation string `json:"logAggregationStatus"`
	Queue       string `json:"queue"`
	Containers  int    `json:"runningContainers"`
}

func (a application) active() bool {
	return a.State != "FINISHED" && a.State != "FAILED" && a.State != "KILLED"
}

func (j *job) application() (application, error) {
	var r struct{ App application }
	err := getJSON(j.t.Context(), cluster.ResourceManagerWeb+"/ws/v1/cluster/apps/"+j.app, &r)
	return r.App, err
}

// awaitEnd waits until YARN says that the application has ended.
func (j *job) awaitEnd() (a application) {
	j.t.Helper()
	until(j.t, 3*time.Minute, "the end of "+j.app, func() (ok bool, err error) {
		a, err = j.application()
		return err == nil && !a.active(), err
	})
	return a
}

// applications are those of this run.
func applications(ctx context.Context) ([]application, error) {
	all, err := allApplications(ctx)
	return slices.DeleteFunc(all, func(a application) bool { return !strings.HasPrefix(a.Name, prefix) }), err
}

func allApplications(ctx context.Context) ([]application, error) {
	var r struct {
		Apps struct {
			App []application
		}
	}
	if err := getJSON(ctx, cluster.ResourceManagerWeb+"/ws/v1/cluster/apps", &r); err != nil {
		return nil, err
	}
	return r.Apps.App, nil
}

// until polls a condition; the failure carries the condition's last error.
func until(t *testing.T, limit time.Duration, what string, cond func() (bool, error)) {
	t.Helper()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		ok, err := cond()
		if ok {
			return
		}
		if err != nil {
			last = err
		}
		select {
		case <-t.Context().Done():
			t.Fatalf("%s: %v (last: %v)", what, t.Context().Err(), last)
		case <-deadline.C:
			t.Fatalf("%s: not within %s (last: %v)", what, limit, last)
		case <-tick.C:
		}
	}
}

// workers are the worker processes of the application: those whose environment names one of its containers and the role.
func (j *job) workers() []int {
	return j.processes(func(env, _ []byte) bool { return bytes.Contains(env, []byte("THALWEG_ROLE=worker\x00")) })
}

func (j *job) taskManagers() []int {
	return j.processes(func(env, cmd []byte) bool {
		return !bytes.Contains(env, []byte("THALWEG_ROLE=")) && bytes.Contains(cmd, []byte("thalweg-taskmanager\x00")) && !bytes.HasPrefix(cmd, []byte("/bin/bash"))
	})
}

func (j *job) processes(match func(env, cmd []byte) bool) (pids []int) {
	if cluster.External {
		notOurs(j.t, j.app)
	}
	id := []byte(strings.TrimPrefix(j.app, "application"))
	for _, p := range cluster.Containers() {
		dir := filepath.Join("/proc", strconv.Itoa(p))
		env, err1 := os.ReadFile(filepath.Join(dir, "environ"))
		cmd, err2 := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err1 == nil && err2 == nil && bytes.Contains(env, id) && match(append(env, 0), append(cmd, 0)) {
			pids = append(pids, p)
		}
	}
	return pids
}

// notOurs ends an application of a cluster that others run, which would hold its containers for long, and skips what would go on with its processes.
func notOurs(t *testing.T, app string) {
	t.Helper()
	if _, err := cluster.YarnCLI(t.Context(), "application", "-kill", app); err != nil {
		t.Error(err)
	}
	rigtest.Needs(t, cluster, rigtest.Daemons)
}

// kafkaCluster reaches the broker without the product.
func kafkaCluster(t *testing.T) *kafkatest.Cluster {
	t.Helper()
	return kafkatest.Connect(t, cluster.KafkaBootstrap)
}

// writeByConsole writes lines to a topic with Kafka's own console producer.
func writeByConsole(t *testing.T, topic string, keyed bool, lines []string) {
	t.Helper()
	args := []string{"--bootstrap-server", cluster.KafkaBootstrap, "--topic", topic}
	if keyed {
		args = append(args, "--property", "parse.key=true", "--property", "key.separator=|")
	}
	if _, err := cluster.CLI(t.Context(), strings.Join(lines, "\n")+"\n", "kafka-console-producer", args...); err != nil {
		t.Fatal(err)
	}
}

// readByConsole reads what a read_committed console consumer sees until it has n lines.
func readByConsole(t *testing.T, topic string, n int) []string {
	t.Helper()
	out, err := cluster.CLI(t.Context(), "", "kafka-console-consumer", "--bootstrap-server", cluster.KafkaBootstrap, "--topic", topic, "--from-beginning",
		"--isolation-level", "read_committed", "--max-messages", strconv.Itoa(n), "--timeout-ms", "60000")
	if err != nil {
		t.Fatalf("%v\nread so far: %d lines", err, strings.Count(out, "\n"))
	}
	return strings.Split(strings.TrimSpace(out), "\n")
}

func getText(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	res, err := web.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close() //nolint:errcheck // only read
	b, err := io.ReadAll(io.LimitReader(res.Body, 16<<20))
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s", url, res.Status)
	}
	return string(b), err
}
