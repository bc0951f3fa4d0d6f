package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/thalweg/thalweg/am/control"
	"github.com/thalweg/thalweg/am/login"
	"github.com/thalweg/thalweg/am/submit"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/internal/process"
	"github.com/thalweg/thalweg/runtime/rpc"
	"github.com/thalweg/thalweg/staging/artifact"
	"github.com/thalweg/thalweg/stream"
	"github.com/thalweg/thalweg/yarnrpc/client"
	"github.com/thalweg/thalweg/yarnrpc/conf"
	"github.com/thalweg/thalweg/yarnrpc/identity"
)

// TestMain is also a job: the command line runs this binary as its artifact. And it is the command line, for who wants to kill that.
func TestMain(m *testing.M) {
	if os.Getenv(clientRole) != "" && os.Getenv(rpc.EnvConfig) == "" {
		c := newCLI(os.Stdout, os.Stderr, func(string) string { return "" })
		os.Exit(c.execute(context.Background(), c.root(), os.Args[1:]))
	}
	if os.Getenv(rpc.EnvRole) == rpc.RolePlan {
		stream.Main("job", func(env *stream.Environment) error {
			if slices.Contains(env.Args(), "bad") {
				return errors.New("no topic")
			}
			env.FromCollection(1, 2).UID("in").Print().UID("out")
			return nil
		})
	}
	if os.Getenv(rpc.EnvConfig) != "" { // run here
		b, err := os.ReadFile(os.Getenv(rpc.EnvConfig))
		fmt.Println("config", string(b), err, "args", os.Args[1:])
		if slices.Contains(os.Args, "stay") {
			fmt.Println(process.Self())
			<-time.After(time.Minute) // killed before
		}
		if slices.Contains(os.Args, "fail") {
			os.Exit(7)
		}
		if slices.Contains(os.Args, "refuse") {
			os.Exit(programRefuses)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// thalweg runs a command line and returns what it prints and its exit code.
func thalweg(t *testing.T, env map[string]string, args ...string) (out, errs string, code int) {
	t.Helper()
	var o, e bytes.Buffer
	code = thalwegTo(t, &o, &e, env, args...)
	return o.String(), e.String(), code
}

// thalwegTo is thalweg whose output can be looked at while it runs.
func thalwegTo(t *testing.T, out, errs io.Writer, env map[string]string, args ...string) (code int) {
	t.Helper()
	if env == nil {
		env = map[string]string{}
	}
	if env["THALWEG_CONF_DIR"] == "" {
		env["THALWEG_CONF_DIR"] = t.TempDir()
	}
	c := newCLI(out, errs, func(k string) string { return env[k] })
	return c.execute(t.Context(), c.root(), args)
}

func TestFlinksSpellings(t *testing.T) {
	for in, want := range map[string]string{
		"run -cm claim -s sp ./job -cm x":           "run --claimMode claim -s sp ./job -cm x",
		"run -t local -d ./job -type native":        "run -t local -d ./job -type native",
		"run -rm=claim ./job":                       "run --claimMode=claim ./job",
		"stop -type native -p /x id":                "stop --type native -p /x id",
		"savepoint id dir -type native -detached":   "savepoint id dir --type native --detached",
		"run -D a=-cm ./job -cm":                    "run -D a=-cm ./job -cm",
		"-t local run -p 3 -cm no_claim ./j -- -cm": "-t local run -p 3 --claimMode no_claim ./j -- -cm",
		"submit -s -cm ./job":                       "submit -s -cm ./job",
	} {
		if got := strings.Join(rewrite(strings.Fields(in)), " "); got != want {
			t.Errorf("%s\n got %s\nwant %s", in, got, want)
		}
	}
}

func TestRunHere(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	conf := t.TempDir()
	if err := os.WriteFile(filepath.Join(conf, "config.yaml"), []byte("parallelism.default: 2\npipeline.name: file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, errs, code := thalweg(t, map[string]string{"THALWEG_CONF_DIR": conf}, "run", "-p", "5", "-Dpipeline.name=mine", "-s", "file:///sp", "-n", "-cm", "claim", self, "-p", "9", "--x")
	if code != 0 {
		t.Fatalf("exit %d: %s", code, errs)
	}
	for _, want := range []string{`"parallelism.default":"5"`, `"pipeline.name":"mine"`, `"execution.state-recovery.path":"file:///sp"`, `"execution.state-recovery.claim-mode":"claim"`, `"execution.state-recovery.ignore-unclaimed-state":"true"`, "args [-p 9 --x]"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q lacks %q", out, want)
		}
	}
	if _, _, code := thalweg(t, nil, "run", self, "fail"); code != 7 {
		t.Errorf("exit %d, want the program's", code)
	}
	for _, c := range []struct {
		args []string
		hint bool
	}{{[]string{"refuse", "-p", "3"}, true}, {[]string{"refuse", "-Drest.port=0"}, true}, {[]string{"refuse", "-port", "3"}, false}, {[]string{"fail", "-p", "3"}, false}} {
		if _, errs, code := thalweg(t, nil, append([]string{"run", self}, c.args...)...); code == 0 || strings.Contains(errs, "flags of thalweg go before the artifact") != c.hint {
			t.Errorf("%v: exit %d %q", c.args, code, errs)
		}
	}
	const retain = "-Dexecution.checkpointing.externalized-checkpoint-retention=RETAIN_ON_CANCELLATION"
	if _, errs, _ := thalweg(t, nil, "run", retain, self); !strings.Contains(errs, "temporary folder") {
		t.Errorf("checkpoints that are to be kept: %q", errs)
	}
	if _, errs, _ := thalweg(t, nil, "run", retain, "-Dexecution.checkpointing.dir=file:///ckp", self); errs != "" {
		t.Errorf("checkpoints that are kept: %q", errs)
	}
}

func TestInfo(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out, errs, code := thalweg(t, nil, "info", "-o", "json", self)
	var g struct {
		Nodes []struct {
			ID           int
			Type, Pact   string
			Predecessors []struct {
				ID       int
				Strategy string `json:"ship_strategy"`
			}
		}
	}
	if err := json.Unmarshal([]byte(out), &g); err != nil || code != 0 || len(g.Nodes) < 2 || g.Nodes[0].Pact != "Data Source" || g.Nodes[1].Predecessors[0].ID != 1 {
		t.Errorf("%s %s %d %v", out, errs, code, err)
	}
	out, errs, code = thalweg(t, nil, "info", "-p", "3", self)
	for _, want := range []string{"job: ", "1  parallelism ", "Source: "} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("no %q in %s %s %d", want, out, errs, code)
		}
	}
	if _, errs, code := thalweg(t, nil, "info", self, "bad"); code != exitUsage || !strings.Contains(errs, "no topic") {
		t.Errorf("%q, exit %d", errs, code)
	}
}

func TestFaultsOfTheCommandLine(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"jobs":[]}`)) }))
	defer s.Close()
	web := strings.TrimPrefix(s.URL, "http://")
	hadoop := t.TempDir()
	if err := os.WriteFile(filepath.Join(hadoop, "core-site.xml"), []byte("<configuration/>"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HADOOP_CONF_DIR", hadoop)
	for want, args := range map[string][]string{
		`did you mean "execution.checkpointing.interval"`: {"run", "-Dexecution.checkpointing.intervall=1s", self},
		"want local, yarn-application or yarn-session":    {"run", "-t", "mars", self},
		"does not exist":                                                {"run", "./no-such-job"},
		"run: give an artifact: an executable":                          {"run"},
		"info: give an artifact":                                        {"info"},
		`list takes no argument, not "extra"`:                           {"list", "extra"},
		`not "b" (see thalweg state ls --help)`:                         {"state", "ls", "a", "b"},
		`cancel takes only a job, not "b"`:                              {"cancel", "a", "b"},
		`savepoint takes only a job and a folder`:                       {"savepoint", "a", "b", "c"},
		"-d: a job that runs on this machine ends":                      {"run", "-d", self},
		"its main is the entry":                                         {"run", "-c", "com.example.Job", self},
		"-p two: want a whole number":                                   {"run", "-p", "two", self},
		"run --class: there is no such flag":                            {"run", "--class=X", self},
		"whether to cancel it":                                          {"run", "-sae", self},
		"it is -Dyarn.application.queue=... here":                       {"run", "-yqu", "q", self},
		"here they are -t yarn-application":                             {"run", "-yz", "q", self},
		"a job is a Go program":                                         {"run", "-pyfs", "x", self},
		"thalweg run -t yarn-application ARTIFACT":                      {"run-application", "-t", "yarn-application", self},
		"as ACCEPTED":                                                   {"list", "-s"},
		"--dispose takes the savepoint alone":                           {"savepoint", "-d", "file:///sp", "job"},
		"no checkpoint or savepoint there":                              {"savepoint", "--dispose=file:///sp/none"},
		"thalweg stop -p FOLDER":                                        {"cancel", "-s", "hdfs:///sp"},
		"passes only GET: use -Dyarn.application.id=application_1_0002": {"savepoint", "-m", "http://rm:8088/proxy/application_1_0002/", "hdfs:///sp"},
		"it is execution.checkpointing.dir now":                         {"run", "-Dstate.checkpoints.dir=hdfs:///x", self},
		"pebble is the counterpart":                                     {"run", "-Dstate.backend.type=rocksdb", self},
		"no topic (-p stands after the artifact":                        {"info", self, "bad", "-p", "3"},
		"unknown flag: --nope":                                          {"run", "--nope", self},
		"unknown command":                                               {"fly"},
		"-p -1":                                                         {"run", "-p", "-1", self},
		"-p 0":                                                          {"run", "-p", "0", self},
		"-p 100000: want 1 at least, 32768 at most":                     {"run", "-p", "100000", self},
		"parallelism.default":                                           {"run", "-Dparallelism.default=100000", self},
		"is above pipeline.max-parallelism = 4":                         {"run", "-p", "8", "-Dpipeline.max-parallelism=4", self},
		"yarn.application.priority":                                     {"run", "-Dyarn.application.priority=99999999999", self},
		"execution.checkpointing.dir":                                   {"run", "-Dexecution.checkpointing.dir=ckp", self},
		"-s/--fromSavepoint has no value":                               {"run", "-s", "-Dx=y", self},
		"-D/--define has no value":                                      {"run", "-D", "-d", self},
		"-t/--target has no value":                                      {"run", "-t", "-d", self},
		"--claimMode has no value":                                      {"run", "-cm", "-d", self},
		"-p/--savepointPath has no value":                               {"stop", "-p", "--drain"},
		"-m/--jobmanager has no value":                                  {"list", "-m", "-a"},
		`application id "nonsense"`:                                     {"cancel", "-Dyarn.application.id=nonsense"},
		"control: there is no job":                                      {"cancel", "-m", web, "ffffffffffffffffffffffffffffffff"},
		"--fromSavepoint is empty":                                      {"run", "-s", "", self},
		"want one of claim, no_claim":                                   {"run", "-cm", "mine", self},
		"want text or json":                                             {"list", "-o", "xml"},
		"want canonical or native":                                      {"stop", "-type", "odd", "-m", "x:1"},
		"-Dkey=value":                                                   {"list", "-D", "=x"},
	} {
		out, errs, code := thalweg(t, nil, args...)
		if code != exitUsage || !strings.Contains(errs, want) || strings.Count(strings.TrimSpace(errs), "\n") > 0 || out != "" {
			t.Errorf("%v: exit %d, out %q, err %q; want %q", args, code, out, errs, want)
		}
	}
}

// The folder of a savepoint is one that all containers see.
func TestSavepointFolder(t *testing.T) {
	hadoop := conf.FromMap(map[string]string{"fs.defaultFS": "hdfs://nn:8020"})
	who, err := identity.New(hadoop, identity.WithUser("ann"))
	if err != nil {
		t.Fatal(err)
	}
	k := &cluster{hadoop: hadoop, user: "ann", who: &login.Who{Identity: who}, wait: newPatience(patienceEnds, t.Logf)}
	for in, want := range map[string]string{"/sp": "hdfs://nn:8020/sp", "hdfs:///sp": "hdfs://nn:8020/sp", "hdfs://other:1/sp": "hdfs://other:1/sp"} {
		if got, err := k.folder(t.Context(), "-p", in); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", in, got, err, want)
		}
	}
	for in, want := range map[string]string{"file:///sp": "-p = file:///sp is on the local disk", "s3://b/sp": "-p = s3://b/sp: no file system", "sp": `-p = "sp" is no folder`} {
		if _, err := k.folder(t.Context(), "-p", in); err == nil || !strings.Contains(err.Error(), want) || exitCode(err) != exitUsage {
			t.Errorf("%s: %v; want %s", in, err, want)
		}
	}
}

// A job without a folder of its own refuses: the message says where to give one.
func TestNoSavepointFolder(t *testing.T) {
	const cause = "jobmaster: savepoint: no directory was given, and execution.checkpointing.savepoint-dir is not set"
	asked := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Method + " " + r.URL.Path {
		case "GET /jobs/overview":
			fmt.Fprintf(w, `{"jobs":[{"jid":%q,"name":"orders","state":"RUNNING"}]}`, id) //nolint:errcheck // a test
		case "POST /jobs/" + id + "/savepoints", "POST /jobs/" + id + "/stop":
			if asked++; asked%2 == 0 { // either way
				w.WriteHeader(http.StatusBadRequest)
				fmt.Fprintf(w, `{"errors":[%q]}`, cause) //nolint:errcheck // a test
				return
			}
			_, _ = w.Write([]byte(`{"request-id":"t"}`))
		default:
			fmt.Fprintf(w, `{"status":{"id":"COMPLETED"},"operation":{"failure-cause":{"class":"x","stack-trace":%q}}}`, cause) //nolint:errcheck // a test
		}
	}))
	defer s.Close()
	addr := strings.TrimPrefix(s.URL, "http://")
	for range 2 {
		for action, want := range map[string]string{"stop": "give it with -p/--savepointPath", "savepoint": "give it with an argument"} {
			_, errs, code := thalweg(t, nil, action, "-m", addr)
			if code != exitUsage || !strings.Contains(errs, want) || !strings.Contains(errs, "execution.checkpointing.savepoint-dir") {
				t.Errorf("%s: exit %d %q; want %q", action, code, errs, want)
			}
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

// A master that dies while it is asked to stop leaves it open whether the job stopped: that is what the client says, and where to look.
func TestMasterDiesDuringStop(t *testing.T) {
	for _, when := range []string{"POST", "GET"} { // before it answered the request, and after
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.URL.Path == "/jobs/overview":
				fmt.Fprintf(w, `{"jobs":[{"jid":%q,"name":"orders","state":"RUNNING"}]}`, id) //nolint:errcheck // a test
			case r.Method == when:
				panic(http.ErrAbortHandler)
			default:
				_, _ = w.Write([]byte(`{"request-id":"t"}`))
			}
		}))
		for action, want := range map[string]string{"stop": "file _metadata", "savepoint": "file _metadata", "checkpoint": "whether the job still runs"} {
			_, errs, code := thalweg(t, nil, action, "-m", strings.TrimPrefix(s.URL, "http://"))
			if code != exitUnreachable || !strings.Contains(errs, "the outcome of the "+action+" is unknown: thalweg list") || !strings.Contains(errs, want) {
				t.Errorf("%s, %s: exit %d %q", action, when, code, errs)
			}
		}
		s.Close()
	}
	if _, errs, _ := thalweg(t, nil, "stop", "-m", "127.0.0.1:1"); strings.Contains(errs, "outcome") {
		t.Errorf("nobody there: %q", errs)
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestExitCodes(t *testing.T) {
	for want, errs := range map[int][]error{
		exitUsage:       {&artifact.Error{Text: "x"}, fmt.Errorf("y: %w", &client.QueueNotFoundError{Queue: "q"}), &submit.SizeError{}, &submit.ConfigError{}, &control.SelectionError{}, control.ErrNotGiven, fmt.Errorf("%w: z", control.ErrNotFound)},
		exitUnreachable: {&client.UnreachableError{Err: errors.New("x")}, &control.UnreachableError{Err: errors.New("x")}, fmt.Errorf("x: %w", fs.ErrUnavailable)},
		exitInterrupted: {context.Canceled, &exitError{exitInterrupted, nil}},
		exitFailed:      {errors.New("x"), &control.OperationError{Cause: "x"}, &control.StatusError{Code: 500}},
	} {
		for _, err := range errs {
			if got := exitCode(err); got != want {
				t.Errorf("%T %v: exit %d, want %d", err, err, got, want)
			}
		}
	}
}

const id = "00112233445566778899aabbccddeeff"

func TestOperationsByAddress(t *testing.T) {
	state := "RUNNING"
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Method + " " + r.URL.Path {
		case "GET /jobs/overview":
			fmt.Fprintf(w, `{"jobs":[{"jid":%q,"name":"orders","state":%q,"start-time":1000}]}`, id, state) //nolint:errcheck // a test
		case "GET /jobs/" + id:
			fmt.Fprintf(w, `{"jid":%q,"state":%q}`, id, state) //nolint:errcheck // a test
		case "PATCH /jobs/" + id:
			state = "CANCELED"
			w.WriteHeader(http.StatusAccepted)
		case "POST /jobs/" + id + "/savepoints", "POST /jobs/" + id + "/stop":
			_, _ = w.Write([]byte(`{"request-id":"t"}`))
		case "GET /jobs/" + id + "/savepoints/t":
			_, _ = w.Write([]byte(`{"status":{"id":"COMPLETED"},"operation":{"location":"file:///sp/1"}}`))
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer s.Close()
	addr := strings.TrimPrefix(s.URL, "http://")
	if out, errs, code := thalweg(t, nil, "list", "-m", addr); code != 0 || !strings.HasPrefix(out, "NAME    JOB ") || !strings.Contains(out, "\norders  "+id+"  RUNNING ") || strings.Contains(out, "APPLICATION") {
		t.Errorf("list: %q %q %d", out, errs, code)
	}
	if out, errs, code := thalweg(t, nil, "savepoint", "-m", addr, "file:///sp"); code != 0 || out != "Savepoint completed: file:///sp/1\n" {
		t.Errorf("savepoint: %q %q %d", out, errs, code)
	}
	if out, errs, code := thalweg(t, nil, "stop", "-m", addr, "-o", "json", id); code != 0 || !strings.Contains(out, `"location":"file:///sp/1"`) {
		t.Errorf("stop: %q %q %d", out, errs, code)
	}
	if out, errs, code := thalweg(t, nil, "cancel", "-m", addr); code != 0 || !strings.Contains(out, "is CANCELED") {
		t.Errorf("cancel: %q %q %d", out, errs, code)
	}
	if _, errs, code := thalweg(t, nil, "cancel", "-m", "127.0.0.1:1"); code != exitUnreachable || !strings.Contains(errs, "does not answer") {
		t.Errorf("nobody there: %q %d", errs, code)
	}
	http.DefaultClient.CloseIdleConnections()
}

// A job that runs here ends with its process: its REST interface is gone before the next look, or in the middle of the answer.
func TestCancelEndsTheProcess(t *testing.T) {
	for _, answers := range []bool{true, false} {
		var s *httptest.Server
		s = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.Method + " " + r.URL.Path {
			case "GET /jobs/overview":
				fmt.Fprintf(w, `{"jobs":[{"jid":%q,"name":"orders","state":"RUNNING"}]}`, id) //nolint:errcheck // a test
			case "PATCH /jobs/" + id:
				_ = s.Listener.Close()
				w.Header().Set("Connection", "close")
				if !answers {
					panic(http.ErrAbortHandler)
				}
				w.WriteHeader(http.StatusAccepted)
			default:
				w.WriteHeader(http.StatusNotFound)
			}
		}))
		addr := strings.TrimPrefix(s.URL, "http://")
		if out, errs, code := thalweg(t, nil, "cancel", "-m", addr); code != 0 || !strings.Contains(out, "Job "+id+" is CANCELED") || errs != "" {
			t.Errorf("answered %v: %q %q %d", answers, out, errs, code)
		}
		if _, errs, code := thalweg(t, nil, "cancel", "-m", addr); code != exitUnreachable || !strings.Contains(errs, "nothing listens there") || strings.Contains(errs, "application") {
			t.Errorf("nobody there: %q %d", errs, code)
		}
		s.Close()
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestConfigAndVersion(t *testing.T) {
	if out, _, code := thalweg(t, nil, "config", "checkpointing.interval"); code != 0 || !strings.Contains(out, "execution.checkpointing.interval") {
		t.Errorf("%q %d", out, code)
	}
	if out, _, code := thalweg(t, nil, "config", "unaligned"); code != 0 || !strings.Contains(out, "allow-unaligned-source-splits (false)") || !strings.Contains(out, "\n    execution.checkpointing.unaligned.max-subtasks-per-channel-state-file: ") {
		t.Errorf("%q %d", out, code)
	}
	out, _, code := thalweg(t, nil, "version", "-o", "json")
	var v struct{ Protocol int }
	if err := json.Unmarshal([]byte(out), &v); err != nil || code != 0 || v.Protocol == 0 {
		t.Errorf("%q %d %v", out, code, err)
	}
	if out, _, code := thalweg(t, nil, "run", "--help"); code != 0 || !strings.Contains(out, "Everything after the artifact belongs to the program") {
		t.Errorf("%q %d", out, code)
	}
}

func TestTexts(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		if got := count(n); got != want {
			t.Errorf("count(%d) = %s", n, got)
		}
	}
	if got := bytesText(31 << 20); got != "31.0 MiB" {
		t.Error(got)
	}
	if got := round(1234567 * time.Microsecond); got != "1.23s" {
		t.Error(got)
	}
}

// Output that cannot be written is no success, whatever the action and the form.
func TestLostOutputIsAFailure(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close() //nolint:errcheck // a test
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/jobs/overview":
			fmt.Fprintf(w, `{"jobs":[{"jid":%q,"state":"RUNNING"}]}`, id) //nolint:errcheck // a test
		case r.Method == http.MethodPost:
			_, _ = w.Write([]byte(`{"request-id":"t"}`))
		case strings.HasSuffix(r.URL.Path, "/t"):
			_, _ = w.Write([]byte(`{"status":{"id":"COMPLETED"},"operation":{"location":"file:///sp/1","checkpointId":3}}`))
		default:
			fmt.Fprintf(w, `{"jid":%q,"state":"CANCELED"}`, id) //nolint:errcheck // a test
		}
	}))
	defer s.Close()
	addr := strings.TrimPrefix(s.URL, "http://")
	for _, args := range [][]string{
		{"--help"}, {"run", "--help"}, {"--version"}, {"version"}, {"config"}, {"config", "rest.port"}, {"info", self}, {"completion", "bash"},
		{"list", "-m", addr}, {"savepoint", "-m", addr, "file:///sp"}, {"savepoint", "-m", addr, "-detached"}, {"stop", "-m", addr}, {"stop", "-m", addr, "-detached"}, {"checkpoint", "-m", addr}, {"cancel", "-m", addr},
	} {
		for _, form := range []string{"text", "json"} {
			var e bytes.Buffer
			conf := t.TempDir()
			c := newCLI(full, &e, func(k string) string { return map[string]string{"THALWEG_CONF_DIR": conf}[k] })
			code := c.execute(t.Context(), c.root(), append([]string{"-o", form}, args...))
			if code != exitFailed || !strings.Contains(e.String(), "no space left on device") {
				t.Errorf("-o %s %v: exit %d, %q", form, args, code, e.String())
			}
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

// -m takes what people write for a job on this machine, and a folder that only they would know is refused before anything is asked.
func TestAddressAndFolderWithoutYARN(t *testing.T) {
	for in, want := range map[string]string{"localhost": "localhost:8081", "host:80": "host:80", "http://host": "http://host", "[::1]:8082": "[::1]:8082"} {
		var a restAddress
		if err := a.Set(in); err != nil || string(a) != want {
			t.Errorf("-m %s is %s, %v; want %s", in, a, err, want)
		}
	}
	for in, ok := range map[string]bool{"sp": false, "./sp": false, "/sp": true, "file:///sp": true, "hdfs:/sp": true} {
		if got, err := fullURI(t.Context(), "the folder", in); (err == nil) != ok || ok && got != in || !ok && exitCode(err) != exitUsage {
			t.Errorf("%s: %q, %v", in, got, err)
		}
	}
	t.Setenv("HADOOP_CONF_DIR", "")
	t.Setenv("YARN_CONF_DIR", "")
	if _, errs, code := thalweg(t, map[string]string{}, "savepoint"); code != exitUsage || !strings.Contains(errs, "-m localhost:8081") {
		t.Errorf("savepoint without a cluster: exit %d, %s", code, errs)
	}
}

// A reader that has all it wanted, such as head, ends the command without a complaint.
func TestClosedPipeIsSilent(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	defer w.Close() //nolint:errcheck // nothing is read from it
	for _, form := range []string{"text", "json"} {
		var e bytes.Buffer
		c := newCLI(w, &e, os.Getenv)
		if code := c.execute(t.Context(), c.root(), []string{"-o", form, "config"}); code != exitClosed || e.Len() > 0 {
			t.Errorf("-o %s: exit %d, %q", form, code, e.String())
		}
	}
}

// What the command line cannot do is refused with the way to it.
func TestConfigOfNothingAndHelpOfNothing(t *testing.T) {
	for _, c := range []struct {
		want string
		args []string
	}{
		{`no option has "nosuch" in its key (thalweg config`, []string{"config", "nosuch"}},
		{`did you mean "execution.checkpointing.interval"?`, []string{"config", "checkpointng.interval"}},
		{`did you mean \"execution.checkpointing.`, []string{"config", "-o", "json", "chekpointing"}},
		{`did you mean "rest.port"?`, []string{"config", "rest.prt"}},
		{`time to live is set in the program, for each state: stream.WithTTL`, []string{"config", "ttl"}},
		{`security.ssl.internal.enabled: connections are not encrypted yet`, []string{"config", "security.ssl.internal.enabled"}},
		{`state.checkpoints.dir is execution.checkpointing.dir now`, []string{"config", "state.checkpoints.dir"}},
		{`there is no action "nosuch"`, []string{"help", "nosuch"}},
		{`-m localhost:8081`, []string{"list", "-t", "local"}},
		{`want yarn-application`, []string{"cancel", "-t", "mars"}},
		{`-m x:1: a job is not sent`, []string{"run", "-m", "x:1", "./job"}},
	} {
		out, errs, code := thalweg(t, nil, c.args...)
		if code != exitUsage || !strings.Contains(out+errs, c.want) || strings.Count(out+errs, "\n") != 1 {
			t.Errorf("%v: exit %d, %q %q; want %q", c.args, code, out, errs, c.want)
		}
	}
	if got := nearestKey("zzzz"); got != "" {
		t.Errorf("zzzz is like %s", got)
	}
}

// Each action's help says what it does at some length, gives an example, and shows the global flags that it uses only.
func TestHelpTeaches(t *testing.T) {
	root := newCLI(io.Discard, io.Discard, os.Getenv).root()
	for _, cmd := range root.Commands() {
		name := cmd.Name()
		if name == "completion" || name == "help" || cmd.Hidden {
			continue
		}
		out, errs, code := thalweg(t, nil, name, "--help")
		if code != 0 || errs != "" || !strings.HasSuffix(out, "exit codes: thalweg help\n") || len(cmd.Long) < 60 || cmd.Example == "" && name != "version" {
			t.Errorf("%s --help: exit %d %q, %d bytes of explanation, example %q", name, code, errs, len(cmd.Long), cmd.Example)
		}
		if also, _, _ := thalweg(t, nil, "help", name); also != out {
			t.Errorf("help %s and %s --help differ", name, name)
		}
		for _, flag := range inapplicable[name] {
			if strings.Contains(out, "--"+flag+" ") {
				t.Errorf("%s --help shows --%s", name, flag)
			}
		}
		for _, l := range strings.Split(out, "\n") {
			if strings.Contains(l, "string  -") || strings.Contains(l, "  -detached:") {
				t.Errorf("%s --help: %s", name, l)
			}
			if len(l) > 160 {
				t.Errorf("%s --help: %d columns: %s", name, len(l), l)
			}
		}
	}
	out, _, code := thalweg(t, nil, "help")
	for _, want := range []string{"Exit codes:", "130  interrupted", "HADOOP_CONF_DIR", "THALWEG_CONF_DIR", "config.yaml", "-s PATH"} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("help lacks %q (exit %d)", want, code)
		}
	}
	for _, c := range []struct {
		want, not string
		args      []string
	}{
		{"execution.checkpointing.interval=", "execution.checkpointing.mode", []string{"list", "-D", "execution.checkpointing.i"}},
		{"-Dexecution.checkpointing.interval=", "execution.checkpointing.mode", []string{"list", "-Dexecution.checkpointing.i"}},
		{"-Dyarn.application.queue=", "-Drest.port", []string{"run", "-p", "3", "-Drest.port=0", "-Dyarn.application.q"}},
		{"-Dstate.backend.type=pebble\n", "hashmap", []string{"run", "-Dstate.backend.type=p"}},
		{":", "-Dyarn", []string{"run", "./job", "-Dyarn.app"}}, // the program's own
	} {
		out, _, code := thalweg(t, nil, append([]string{"__complete"}, c.args...)...)
		if code != 0 || !strings.HasPrefix(out, c.want) || strings.Contains(out, c.not) {
			t.Errorf("%v completes to %q", c.args, out)
		}
	}
}
