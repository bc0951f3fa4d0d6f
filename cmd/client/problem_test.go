package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/thalweg/thalweg/am/control"
	"github.com/thalweg/thalweg/config"
	yarnpb "github.com/thalweg/thalweg/yarnrpc/proto/yarn"
)

const noRoom = "29 containers of 30 are not granted yet: queue root.default has 2880 MiB, 1 vcores free on 2 nodes"

func TestProblemsTellOnlyNews(t *testing.T) {
	now := time.Now()
	j := &control.Job{State: "CREATED"}
	var p problems
	at := func(d time.Duration, problem, want string) {
		t.Helper()
		j.Problem = problem
		if got := p.next(j, now.Add(d)); got != want {
			t.Errorf("after %s: %q, want %q", d, got, want)
		}
	}
	at(0, "", "")
	at(1*time.Second, "2 of 3 missing", "2 of 3 missing")
	at(2*time.Second, "2 of 3 missing", "")
	at(3*time.Second, "1 of 3 missing", "") // only numbers
	at(4*time.Second, "no node", "no node")
	at(5*time.Second, "", "")
	at(6*time.Second, "no node", "")
	at(7*time.Second, "1 of 3 missing", "1 of 3 missing")
	at(18*time.Second, "2 of 3 missing", "2 of 3 missing") // after a while numbers are news
	at(40*time.Second, "2 of 3 missing", "")
	j.State = "RUNNING"
	at(41*time.Second, "2 of 3 missing", "") // it runs
	j.State = "RESTARTING"
	at(42*time.Second, "2 of 3 missing", "2 of 3 missing")
}

// The attached run tells in a line of its own what keeps the job from running.
func TestFollowTellsTheProblem(t *testing.T) {
	for _, form := range []string{"text", "json"} {
		k, s := newConsole(t), newStage(t, "CREATED", "CREATED", "RUNNING")
		k.c.output, s.problem = form, noRoom
		wait := k.follow(t, s)
		<-s.lookedAt
		s.end(yarnpb.FinalApplicationStatusProto_APP_SUCCEEDED)
		out, errs, err := wait()
		if err != nil {
			t.Error(err)
		}
		if form == "text" {
			if strings.Count(errs, noRoom+"\n") != 1 || strings.Count(errs, "problem") != 1 {
				t.Errorf("%q", errs)
			}
			continue
		}
		found := 0
		for line := range strings.Lines(out) {
			var e map[string]any
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			if e["event"] == "problem" && e["problem"] == noRoom && e["state"] == "CREATED" && e["cause"] == nil {
				found++
			}
		}
		if found != 1 {
			t.Errorf("%q", out)
		}
	}
}

// troubledJob is a job that restarts, for want of room, whose operations are refused at once or later.
func troubledJob(t *testing.T, state string, later, deletes bool) string {
	const refusal = "jobmaster: stop: not all tasks of the job are running"
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text := ""
		switch path := strings.TrimPrefix(r.URL.Path, "/jobs/"+id); {
		case r.URL.Path == "/jobs/overview":
			text = fmt.Sprintf(`{"jobs":[{"jid":%q,"name":"orders","state":%q,"tasks":{"running":1,"total":3}},{"jid":"f0f0","name":"old","state":"FINISHED"}]}`, id, state)
		case path == "":
			text = fmt.Sprintf(`{"jid":%q,"state":%q,"problem":%q,"vertices":[{"parallelism":3,"tasks":{"RUNNING":1}}]}`, id, state, noRoom)
		case path == "/exceptions":
			text = `{"exceptionHistory":{"entries":[{"exceptionName":"x","stacktrace":"boom\nat main.go:7","taskName":"Map (1/2)"}]}}`
		case path == "/checkpoints/config":
			text = fmt.Sprintf(`{"externalization":{"enabled":true,"delete_on_cancellation":%v}}`, deletes)
		case path == "/checkpoints" && r.Method == http.MethodGet:
			text = `{"latest":{"completed":{"id":7,"external_path":"hdfs://nn/ckp/chk-7"}}}`
		case r.Method == http.MethodPost && later:
			text = `{"request-id":"t"}`
		case r.Method == http.MethodPost:
			w.WriteHeader(http.StatusBadRequest)
			text = fmt.Sprintf(`{"errors":[%q]}`, refusal)
		default:
			text = fmt.Sprintf(`{"status":{"id":"COMPLETED"},"operation":{"failure-cause":{"stack-trace":%q},"failureCause":{"stack-trace":%q}}}`, refusal, refusal)
		}
		_, _ = w.Write([]byte(text))
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// An operation that needs a running job tells of one that does not run how it is, why, and what to do.
func TestRefusalOfAJobThatDoesNotRun(t *testing.T) {
	for _, later := range []bool{false, true} {
		addr := troubledJob(t, "RESTARTING", later, false)
		for _, action := range []string{"stop", "savepoint", "checkpoint"} {
			_, errs, code := thalweg(t, nil, action, "-m", addr)
			for _, want := range []string{notRunning + ": it is RESTARTING with 1 of 3 tasks running", noRoom, "last failure: Map (1/2): boom;", "wait until it runs",
				"thalweg cancel -m " + addr + " " + id + ") and start it", "run -s hdfs://nn/ckp/chk-7"} {
				if code != exitFailed || !strings.Contains(errs, want) || strings.Count(errs, "\n") != 1 {
					t.Errorf("%s, later %v: exit %d %q lacks %q", action, later, code, errs, want)
				}
			}
		}
	}
	if _, errs, _ := thalweg(t, nil, "stop", "-m", troubledJob(t, "RESTARTING", false, true)); !strings.Contains(errs, "deletes its checkpoints") || strings.Contains(errs, "run -s") {
		t.Errorf("checkpoints that do not last: %q", errs)
	}
	if _, errs, _ := thalweg(t, nil, "stop", "-m", troubledJob(t, "CANCELLING", false, false)); !strings.Contains(errs, "about to end") || strings.Contains(errs, "thalweg cancel") {
		t.Errorf("a job that ends: %q", errs)
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestListTellsTheProblem(t *testing.T) {
	addr := troubledJob(t, "RESTARTING", false, false)
	out, errs, code := thalweg(t, nil, "list", "-m", addr)
	lines := strings.Split(out, "\n")
	if code != 0 || len(lines) != 6 || !strings.Contains(lines[1], id) || lines[2] != "    why: Map (1/2): boom" || lines[3] != "    problem: "+noRoom ||
		!strings.Contains(lines[4], "f0f0") || strings.Index(lines[1], id) != strings.Index(lines[4], "f0f0") {
		t.Errorf("exit %d %q %q", code, out, errs)
	}
	out, errs, code = thalweg(t, nil, "list", "-m", addr, "-o", "json")
	var row struct{ Jobs []map[string]any }
	if err := json.Unmarshal([]byte(out), &row); err != nil || code != 0 || len(row.Jobs) != 2 || row.Jobs[0]["problem"] != noRoom || row.Jobs[0]["lastFailure"] != "Map (1/2): boom\nat main.go:7" {
		t.Errorf("exit %d %q %q %v", code, out, errs, err)
	} else if _, ok := row.Jobs[1]["problem"]; ok {
		t.Errorf("a job that has ended: %v", row.Jobs[1])
	}
	if out, _, _ = thalweg(t, nil, "list", "-m", troubledJob(t, "FAILED", false, false)); !strings.Contains(out, "\n    why: Map (1/2): boom\n") || strings.Contains(out, "problem") {
		t.Errorf("a job that has failed: %q", out)
	}
	http.DefaultClient.CloseIdleConnections()
}

// One line keeps what the user needs: the first mistake of a list, and the advice at the end of a long cause.
func TestOneLine(t *testing.T) {
	const cause = "kafka: topic orders partition 3 offset 17: record cannot be decoded: invalid character 'x' looking for beginning of value (kafka.OnDecodeError can skip such records or write them to a dead-letter topic)"
	long := "Source: orders (1/4): " + strings.Repeat("v", 200) + cause
	for in, want := range map[string]string{
		" boom\nat main.go:7": "boom",
		"ops: the graph has mistakes:\n  main.go:7: no sink\n  main.go:9: UID twice\n    of a and b\n  main.go:12: no key": "ops: the graph has mistakes: main.go:7: no sink (and 2 more)",
		"the program ops did not build its job graph: ops: the graph has mistakes:\n  main.go:7: no sink":                  "the program ops did not build its job graph: ops: the graph has mistakes: main.go:7: no sink",
		"panic:\ngoroutine 1\nmain.main": "panic: goroutine 1",
		"only:":                          "only:", "only:\n\n": "only:", "": "",
		long: long,
	} {
		if got := oneLine(in); got != want {
			t.Errorf("%q\n got %q\nwant %q", in, got, want)
		}
	}
	if got := oneLine(strings.Repeat("\u00e9", 5000) + cause); len(got) > longestLine+5 || !strings.HasSuffix(got, "dead-letter topic)") || !strings.Contains(got, " ... ") || !utf8.ValidString(got) {
		t.Errorf("%d bytes: %q", len(got), got)
	}
}

func TestNothingToList(t *testing.T) {
	env := fakeYARN(t)
	for want, args := range map[string][]string{
		"No application of type Thalweg runs (thalweg list -a shows those that have ended, too).\n":                {},
		"No application of type Thalweg named \"nope\" runs (thalweg list -a shows those that have ended, too).\n": {"-D" + config.YarnName.Key + "=nope"},
		"No application of type Thalweg named \"nope\" runs, and YARN knows of none that has ended.\n":             {"-D" + config.YarnName.Key + "=nope", "-a"},
	} {
		if out, errs, code := thalweg(t, env, append([]string{"list"}, args...)...); code != 0 || out != want {
			t.Errorf("%v: exit %d %q %q", args, code, out, errs)
		}
	}
}
