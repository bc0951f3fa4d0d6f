package integration

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/thalweg/thalweg/connector/kafka/kafkatest"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/test/rig"
)

// noise is what no user should see: stacks, source lines of ours, multi-line joins.
var noise = regexp.MustCompile(`goroutine \d+|\.go:\d+\s|^\s+at |runtime\.|<nil>|%!`)

// bad is one kind of bad input.
type bad struct {
	name string
	conf []string
	env  []string
	job  string // path of the artifact; the totals program when empty
	args []string
	want []string // parts of the line: what, where, what to do
	code int      // 0: any but 0
	app  string   // final status of the application that there was; "" for none at all
}

// Bad input gets one clear line on standard error and a non-zero exit code, and leaves no application, staged folder or open
// transaction behind.
func TestBadInput(t *testing.T) {
	k := kafkaCluster(t)
	in, out, empty := k.Topic(t, 1), k.Topic(t, 1), k.Topic(t, 1)
	s := spec(50)
	for n := range s.Records {
		k.Produce(t, in, 0, string(s.Value(n)))
	}
	undecodable := k.Topic(t, 2)
	k.Produce(t, undecodable, 0, string(s.Value(0)))
	k.Produce(t, undecodable, 1, string(s.Value(1)), "{not json")
	dir := t.TempDir()
	script, text := filepath.Join(dir, "job.sh"), filepath.Join(dir, "job.txt")
	write(t, script, "#!/bin/sh\nexit 0\n")
	write(t, text, "hello\n")
	wrong := filepath.Join(dir, "wrong.go")
	write(t, wrong, "package main\n\nfunc main() { nope() }\n")
	good, truncated := savepoints(t, k)

	topics := func(more ...string) []string {
		return append([]string{"--brokers", cluster.KafkaBootstrap, "--in", in, "--out", out, "--group", kafkatest.Name("g"), "--txn-prefix", kafkatest.Name(badTxn)}, more...)
	}
	every := "-Dexecution.checkpointing.interval=1s"
	alice, byAlice := as(rig.Alice)
	noRM := []string{"-Dthalweg.hadoop.yarn.resourcemanager.address=localhost:1", "-Dclient.connection-timeout=3s"}
	if cluster.Variant.RMHA {
		noRM = append(noRM, "-Dthalweg.hadoop.yarn.resourcemanager.address.rm1=localhost:1", "-Dthalweg.hadoop.yarn.resourcemanager.address.rm2=localhost:1")
	}
	nobody := "localhost:1"
	for _, b := range []bad{
		{name: "artifact missing", job: "./no-such-job", code: 2, want: []string{"./no-such-job does not exist", "give an executable"}},
		{name: "artifact is a script", job: script, code: 2, want: []string{script, "not an executable for linux/amd64", "script", "GOOS=linux GOARCH=amd64"}},
		{name: "artifact is a text", job: text, code: 2, want: []string{text, "not an executable for linux/amd64"}},
		{name: "artifact for another machine", job: foreign, code: 2, want: []string{foreign, "AARCH64", "not an executable for linux/amd64"}},
		{name: "artifact without the SDK", job: plain, code: 2, want: []string{plain, "does not link the SDK", "stream.Main"}},
		{name: "artifact does not compile", job: wrong, code: 2, want: []string{wrong, "does not build", "undefined: nope"}},
		{name: "unknown option", conf: []string{"-Dexecution.checkpointing.intervall=1s"}, code: 2, want: []string{`"execution.checkpointing.intervall"`, `did you mean "execution.checkpointing.interval"`}},
		{name: "bad value", conf: []string{"-Dexecution.checkpointing.interval=soon"}, code: 2, want: []string{"execution.checkpointing.interval", "soon"}},
		{name: "missing queue", conf: []string{"-Dyarn.application.queue=nope"}, code: 2, want: []string{`queue "nope" does not exist`, "yarn.application.queue"}},
		{name: "TaskManager too large", conf: []string{"-Dtaskmanager.memory.process.size=5g"}, code: 2, want: []string{"5120 MiB", "4096 MiB", "taskmanager.memory.process.size"}},
		{name: "application master too large", conf: []string{"-Djobmanager.memory.process.size=5g"}, code: 2, want: []string{"5120 MiB", "4096 MiB", "jobmanager.memory.process.size"}},
		{name: "NameNode unreachable", conf: []string{"-Dthalweg.hadoop.fs.defaultFS=hdfs://" + nobody, "-Dclient.connection-timeout=3s"}, code: 3, want: []string{nobody, "does not answer", "fs.defaultFS"}},
		{name: "ResourceManager unreachable", conf: noRM, code: 3, want: []string{"ResourceManager", nobody, "does not answer", "yarn.resourcemanager.address"}},
		{name: "staging folder not writable", env: alice, conf: append(byAlice, "-Dyarn.staging-directory=hdfs:///user/bob/staging"), code: 2, want: []string{"/user/bob/staging", "alice", "yarn.staging-directory"}},
		{name: "checkpoint folder not writable", env: alice, conf: append(byAlice, every, "-Dexecution.checkpointing.dir=hdfs:///user/bob/checkpoints"), code: 2, want: []string{"/user/bob/checkpoints", "alice", "execution.checkpointing.dir"}},
		{name: "checkpoint folder on a local disk", conf: []string{every, "-Dexecution.checkpointing.dir=file:///proc/nope"}, args: topics(), code: 2, want: []string{"execution.checkpointing.dir = file:///proc/nope", "local disk"}},
		{name: "savepoint folder of an unknown scheme", conf: []string{every, "-Dexecution.checkpointing.savepoint-dir=s3://b/x"}, args: topics(), code: 2, want: []string{"execution.checkpointing.savepoint-dir = s3://b/x", "no file system for this scheme"}},

		{name: "build differs", args: []string{"--collection", "--shaky"}, app: "FAILED", want: []string{"not deterministic", "numbers-1", "numbers-2", "map order"}},
		{name: "broker unreachable", conf: []string{every}, args: []string{"--brokers", nobody, "--in", "a", "--out", "b"}, app: "FAILED", want: []string{"connect to brokers " + nobody, "refused", "kafka.Brokers"}},
		{name: "missing input topic", conf: []string{every}, args: topics("--in", "no-such-topic"), app: "FAILED", want: []string{`topic "no-such-topic" does not exist`, "create it"}},
		{name: "missing output topic", conf: []string{every}, args: topics("--out", "no-such-topic"), app: "FAILED", want: []string{`topic "no-such-topic" does not exist`, "create it"}},
		{name: "transaction time-out above the maximum", conf: []string{every}, args: topics("--txn-timeout", "1h"), app: "FAILED", want: []string{"kafka.TransactionTimeout", "1h0m0s", "transaction.max.timeout.ms=900000"}},
		{name: "transaction time-out below the checkpoints", conf: []string{every}, args: topics("--txn-timeout", "1m"), app: "FAILED", want: []string{"kafka.TransactionTimeout", "1m0s", "execution.checkpointing.timeout (10m0s)"}},
		{name: "savepoint missing", conf: []string{every, "-s", "hdfs:///savepoints/none"}, args: topics(), code: 2, want: []string{"/savepoints/none", "no checkpoint or savepoint there"}},
		{name: "savepoint truncated", conf: []string{every, "-s", truncated}, args: topics(), code: 2, want: []string{truncated, "_metadata"}},
		{name: "savepoint does not fit the graph", conf: []string{every, "-s", good}, args: topics("--uid", "renamed"), app: "FAILED", want: []string{good, `uid "customer-totals"`, "--allowNonRestoredState"}},
		{name: "savepoint of other key groups", conf: []string{every, "-s", good}, args: topics("--max-parallelism", "256"), app: "FAILED", want: []string{good, "customer totals", "128", "256"}},
		{name: "undecodable record", conf: []string{every, "-Drestart-strategy.type=none"}, args: topics("--in", undecodable, "--bounded"), app: "FAILED", want: []string{undecodable, "partition 1", "offset 1"}},
		{name: "user panic", conf: []string{every, "-Drestart-strategy.type=fixed-delay", "-Drestart-strategy.fixed-delay.attempts=2", "-Drestart-strategy.fixed-delay.delay=100ms"},
			args: topics("--panic-on", s.Purchase(20).Customer), app: "FAILED", want: []string{"no mercy for", "look at purchase"}},
	} {
		t.Run(b.name, func(t *testing.T) { b.run(t) })
	}
	t.Run("nothing is left", func(t *testing.T) {
		noOpenTransactions(t, k, badTxn)
		if got := k.Read(t, out, true); len(got) > 0 {
			t.Errorf("%d records in the output", len(got))
		}
		if got := k.Read(t, empty, false); len(got) > 0 {
			t.Errorf("%d records in a topic that no job names", len(got))
		}
	})
	t.Run("undecodable record is skipped and counted", func(t *testing.T) { skipped(t, k, undecodable) })
	t.Run("undecodable record goes to the dead letters", func(t *testing.T) { deadLetters(t, k, undecodable) })
}

// badTxn begins the transactional ids of the jobs that fail.
const badTxn = "bad-txn-"

func (b bad) run(t *testing.T) {
	name := kafkatest.Name(prefix + "bad-" + strings.ReplaceAll(b.name, " ", "-"))
	if b.job == "" {
		b.job = totals
	}
	if b.app == "" && b.args == nil {
		b.args = []string{"--collection"}
	}
	line := append([]string{"run", "-t", "yarn-application", "-Dyarn.application.name=" + name}, b.conf...)
	begin := time.Now()
	r := thalweg(t, b.env, append(append(line, b.job), b.args...)...)
	t.Logf("after %s: %s", time.Since(begin).Round(time.Millisecond), lastLine(r.stderr))
	if r.code == 0 || b.code != 0 && r.code != b.code {
		t.Errorf("exit code %d, want %d\n%s", r.code, b.code, r)
	}
	said := errorLines(r.stderr)
	if len(said) != 1 {
		t.Fatalf("%d lines that are no progress, want one\n%s", len(said), r)
	}
	if noise.MatchString(said[0]) || len(said[0]) > 700 {
		t.Errorf("the line is no clear one: %s", said[0])
	}
	for _, w := range b.want {
		if !strings.Contains(said[0], w) {
			t.Errorf("the line lacks %q: %s", w, said[0])
		}
	}
	apps, err := applications(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, a := range apps {
		if a.Name != name {
			continue
		}
		found++
		if a.active() || a.Final != b.app {
			t.Errorf("%s is %s/%s, want %q", a.ID, a.State, a.Final, b.app)
		}
		if d := strings.TrimSpace(a.Diagnostics); b.app != "" && !strings.Contains(said[0], d) && !strings.Contains(d, strings.TrimPrefix(said[0], "thalweg: ")) {
			t.Errorf("YARN's diagnostics %q do not agree with the client's line %q", d, said[0])
		}
		noFolder(t, a)
	}
	if want := map[bool]int{true: 1}[b.app != ""]; found != want {
		t.Errorf("%d applications named %s, want %d", found, name, want)
	}
}

// errorLines are the lines that are not progress of an attached run.
func errorLines(stderr string) (lines []string) {
	progress := regexp.MustCompile(`^(check|stage|submit) +[0-9.]+m?s$|^[A-Z]+ +after |^[A-Z]+  \d+/\d+ tasks |^building: |^still trying to reach |^(problem|waits|restarted) +after `)
	for line := range strings.Lines(stderr) {
		line = strings.TrimRight(line, "\n")
		if line != "" && !progress.MatchString(line) {
			lines = append(lines, line)
		}
	}
	return lines
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

// savepoints makes one of a totals job, and a copy whose metadata is cut.
func savepoints(t *testing.T, k *kafkatest.Cluster) (good, truncated string) {
	t.Helper()
	in, out := k.Topic(t, 1), k.Topic(t, 1)
	k.Produce(t, in, 0, string(spec(1).Value(0)))
	j := submit(t, []string{"-Dexecution.checkpointing.interval=1s"}, totals, "--brokers", cluster.KafkaBootstrap, "--in", in, "--out", out,
		"--group", in, "--txn-prefix", kafkatest.Name("txn")+"-")
	j.awaitRunning()
	good = regexp.MustCompile(`hdfs:\S+/savepoint-\S+`).FindString(j.do("stop", "-p", "hdfs:///savepoints"))
	if good == "" {
		t.Fatal("no savepoint")
	}
	j.awaitEnd()
	f, p := hdfsPath(t, good)
	b, err := fs.ReadFile(t.Context(), f, path.Join(p, "_metadata"), 64<<20)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Mkdir(t.Context(), p+"-cut", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := fs.WriteFile(t.Context(), f, path.Join(p+"-cut", "_metadata"), bytes.Clone(b[:len(b)/2]), true); err != nil {
		t.Fatal(err)
	}
	return good, good + "-cut"
}

// skipped runs a bounded job that skips what it cannot decode: it ends well and has counted.
func skipped(t *testing.T, k *kafkatest.Cluster, in string) {
	out := k.Topic(t, 1)
	j := submit(t, []string{"-Dexecution.checkpointing.interval=1s"}, totals, "--brokers", cluster.KafkaBootstrap, "--in", in, "--out", out,
		"--group", kafkatest.Name("g"), "--txn-prefix", kafkatest.Name("txn")+"-", "--policy", "skip")
	j.awaitRunning()
	until(t, patience, "numRecordsSkipped 1", func() (bool, error) {
		n, err := j.metric("numRecordsSkipped")
		return n == 1, err
	})
	j.do("cancel")
	j.awaitEnd()
}

// deadLetters runs order-totals with a topic for what cannot be decoded.
func deadLetters(t *testing.T, k *kafkatest.Cluster, in string) {
	out, dead := k.Topic(t, 1), k.Topic(t, 1)
	j := submit(t, []string{"-Dexecution.checkpointing.interval=1s"}, bin+"/examples/order-totals", "--brokers", cluster.KafkaBootstrap, "--in", in,
		"--out", out, "--group", kafkatest.Name("g"), "--txn-prefix", kafkatest.Name("txn")+"-", "--dead-letter", dead, "--bounded", "--window", "1s")
	if a := j.awaitEnd(); a.Final != "SUCCEEDED" {
		t.Fatalf("%s/%s: %s", a.State, a.Final, a.Diagnostics)
	}
	recs := k.Read(t, dead, true)
	if len(recs) != 1 {
		t.Fatalf("%d dead letters, want 1", len(recs))
	}
	h := map[string]string{}
	for _, x := range recs[0].Headers {
		h[x.Key] = string(x.Value)
	}
	if string(recs[0].Value) != "{not json" || h["topic"] != in || h["partition"] != "1" || h["offset"] != "1" || h["error"] == "" {
		t.Errorf("dead letter %q with headers %v", recs[0].Value, h)
	}
	same(t, "good records", allCommitted(t, k, out), expected(spec(2), 2))
}

// metric is the sum of a metric over the series that /metrics shows.
func (j *job) metric(name string) (float64, error) {
	text, err := getText(j.t.Context(), fmt.Sprintf("%s/proxy/%s/metrics", cluster.ResourceManagerWeb, j.app))
	if err != nil {
		return 0, err
	}
	var sum float64
	found := false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		series, _, _ := strings.Cut(line, "{")
		var v float64
		f := strings.Fields(line)
		if !strings.HasSuffix(series, name) || len(f) < 2 {
			continue
		}
		if _, err := fmt.Sscan(f[len(f)-1], &v); err == nil {
			sum, found = sum+v, true
		}
	}
	if !found {
		return 0, fmt.Errorf("/metrics has no %s", name)
	}
	return sum, nil
}
