package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/thalweg/thalweg/connector/kafka/kafkatest"
	"github.com/thalweg/thalweg/test/eos"
)

// consoleLines are records from to to of the input as keyed lines for the console producer.
func consoleLines(s eos.Spec, from, to int64) (lines []string) {
	for n := from; n < to; n++ {
		lines = append(lines, s.Purchase(n).Customer+"|"+string(s.Value(n)))
	}
	return lines
}

// closingLines close all windows: records of so many keys that each partition gets some.
func closingLines(s eos.Spec) (lines []string) {
	p := s.Sentinel(0)
	for i := range 30 {
		p.Customer = fmt.Sprintf("~end-%d", i)
		b, _ := json.Marshal(p)
		lines = append(lines, p.Customer+"|"+string(b))
	}
	return lines
}

// What the README shows: input by Kafka's console producer, output by its console consumer, one job stopped with a savepoint and continued
// at another parallelism, without loss or duplicate; what YARN's own tools say agrees with each other.
func TestMainPath(t *testing.T) {
	k := kafkaCluster(t)
	in, out := k.Topic(t, 3), k.Topic(t, 3)
	txn := kafkatest.Name("txn") + "-"
	s := spec(900)
	args := []string{"--brokers", cluster.KafkaBootstrap, "--in", in, "--out", out, "--group", in, "--txn-prefix", txn, "--window", "1s", "--out-of-orderness", "1s", "--idle", "0"}
	conf := []string{"-Dexecution.checkpointing.interval=1s"}
	example := bin + "/examples/order-totals"

	writeByConsole(t, in, true, consoleLines(s, 0, 500))
	first := submit(t, append(conf, "-p", "2"), example, args...)
	if st := first.awaitRunning(); st.Vertices[0].Parallelism != 2 {
		t.Errorf("parallelism %d, want 2", st.Vertices[0].Parallelism)
	}
	first.awaitCheckpoint(0)
	t.Run("list", func(t *testing.T) {
		if l := thalweg(t, nil, "list"); l.code != 0 || !hasRow(l.stdout, first.app, first.name, first.id, "RUNNING") {
			t.Errorf("no row of the running job\n%s", l)
		}
		if l := thalweg(t, nil, "list", "-Dyarn.application.name="+first.name); l.code != 0 || !hasRow(l.stdout, first.app, first.id, "RUNNING") {
			t.Errorf("no row of the job found by name\n%s", l)
		}
	})
	t.Run("status while it runs", func(t *testing.T) { statusAgrees(t, first, "RUNNING", "UNDEFINED") })
	t.Run("web page", func(t *testing.T) {
		res, err := web.Get(cluster.ResourceManagerWeb + "/proxy/" + first.app + "/")
		if err != nil || res.StatusCode != http.StatusOK {
			t.Fatalf("%v %v", res, err)
		}
		_ = res.Body.Close() // the status is what counts
	})
	t.Run("secrets are hidden", func(t *testing.T) { secretsAreHidden(t, first) })
	stopped := thalweg(t, nil, "stop", "-p", "hdfs:///savepoints", "-Dyarn.application.name="+first.name)
	savepoint := regexp.MustCompile(`hdfs:\S+/savepoint-\S+`).FindString(stopped.stdout)
	if stopped.code != 0 || savepoint == "" {
		t.Fatal(stopped)
	}
	if a := first.awaitEnd(); a.State != "FINISHED" || a.Final != "SUCCEEDED" {
		t.Errorf("after stop: %s/%s: %s", a.State, a.Final, a.Diagnostics)
	}
	t.Run("status after stop", func(t *testing.T) { statusAgrees(t, first, "FINISHED", "SUCCEEDED") })
	t.Run("logs", func(t *testing.T) { logsAreThere(t, first, 2) })
	t.Run("state of the savepoint", func(t *testing.T) { savepointIsReadable(t, savepoint) })

	writeByConsole(t, in, true, consoleLines(s, 500, s.Records))
	second := submit(t, append(conf, "-p", "3", "--fromSavepoint", savepoint), example, args...)
	if second.sentBytes != 0 {
		t.Errorf("the second submission of the same program sent %d bytes, want 0", second.sentBytes)
	}
	if st := second.awaitRunning(); st.Vertices[0].Parallelism != 3 {
		t.Errorf("parallelism %d, want 3", st.Vertices[0].Parallelism)
	}
	writeByConsole(t, in, true, closingLines(s))
	want := expected(s, s.Records)
	got := results(t, readByConsole(t, out, len(want)))
	same(t, "read_committed console consumer", got, want)
	second.awaitCheckpoint(second.awaitCheckpoint(0)) // whatever could come twice would be there by now
	same(t, "everything committed", allCommitted(t, k, out), want)

	cancelled := thalweg(t, nil, "cancel", "-Dyarn.application.name="+second.name)
	if cancelled.code != 0 {
		t.Error(cancelled)
	}
	if a := second.awaitEnd(); a.Final != "KILLED" {
		t.Errorf("after cancel: %s/%s: %s", a.State, a.Final, a.Diagnostics)
	}
	noOpenTransactions(t, k, txn)
	if l := thalweg(t, nil, "list"); l.code != 0 || strings.Contains(l.stdout, second.app) {
		t.Errorf("a cancelled job is still listed\n%s", l)
	}
	if l := thalweg(t, nil, "list", "-a"); l.code != 0 || !hasRow(l.stdout, second.app, "KILLED") || !hasRow(l.stdout, first.app, "SUCCEEDED") {
		t.Errorf("list -a lacks an ended job\n%s", l)
	}
}

// hasRow looks for a line with all the words.
func hasRow(text string, words ...string) bool {
	for line := range strings.Lines(text) {
		n := 0
		for _, w := range words {
			if strings.Contains(line, w) {
				n++
			}
		}
		if n == len(words) {
			return true
		}
	}
	return false
}

// savepointIsReadable looks into a savepoint of the totals job without its program: the windows that are open have customers and sums.
func savepointIsReadable(t *testing.T, savepoint string) {
	t.Helper()
	if r := thalweg(t, nil, "state", "ls", "--read", savepoint); r.code != 0 || !strings.Contains(r.stdout, "customer-totals") {
		t.Error(r)
	}
	r := thalweg(t, nil, "state", "show", "--limit", "0", "-o", "json", savepoint, "customer-totals")
	if r.code != 0 || !regexp.MustCompile(`"namespace":\d+,"window":"[^"]+","key":"[^"]+","value":\{"Cents":\d+,"Count":\d+\}`).MatchString(r.stdout) {
		t.Error(r)
	}
	if r := thalweg(t, nil, "state", "diff", savepoint, savepoint); r.code != 0 || !strings.Contains(r.stdout, "No difference") {
		t.Error(r)
	}
}

// statusAgrees compares what `yarn application -status` prints with the ResourceManager's page.
func statusAgrees(t *testing.T, j *job, state, final string) {
	t.Helper()
	j = j.with(t)
	text, err := cluster.YarnCLI(t.Context(), "application", "-status", j.app)
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), " : "); ok {
			fields[k] = v
		}
	}
	page, err := j.application()
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"State": state, "Final-State": final, "Application-Name": j.name, "Application-Type": "Thalweg", "Queue": "root.default",
	} {
		if fields[key] != want {
			t.Errorf("%s is %q, want %q\n%s", key, fields[key], want, text)
		}
	}
	if page.State != state || page.Final != final || page.Name != j.name {
		t.Errorf("the ResourceManager's page says %+v", page)
	}
	// After the end there is nothing to look at; YARN says so.
	if u := fields["Tracking-URL"]; (state == "RUNNING") != strings.HasPrefix(u, "http://") || u == "" {
		t.Errorf("Tracking-URL is %q", u)
	} else if state == "RUNNING" {
		if text, err := getText(t.Context(), u+"/jobs/overview"); err != nil || !strings.Contains(text, j.id) {
			t.Errorf("the tracking URL does not show the job: %v", err)
		}
	}
}

// logsAreThere reads the logs as an operator does, after their aggregation.
func logsAreThere(t *testing.T, j *job, workers int) {
	t.Helper()
	j = j.with(t)
	until(t, 2*time.Minute, "log aggregation", func() (bool, error) {
		a, err := j.application()
		return a.Aggregation == "SUCCEEDED", err
	})
	text, err := cluster.YarnCLI(t.Context(), "logs", "-applicationId", j.app)
	if err != nil {
		t.Fatal(err)
	}
	for name, n := range map[string]int{"jobmanager.log": 1, "jobmanager.out": 1, "taskmanager.log": workers, "taskmanager.out": workers} {
		if got := strings.Count(text, "LogType:"+name+"\n"); got < n {
			t.Errorf("yarn logs shows %d of %s, want %d", got, name, n)
		}
	}
	if !strings.Contains(text, j.id) {
		t.Errorf("the logs do not name the job %s", j.id)
	}
}

// secretsAreHidden looks for a value of the configuration that nobody should see, where others can look.
func secretsAreHidden(t *testing.T, j *job) {
	t.Helper()
	for _, p := range []string{"/jobmanager/config", "/jobs/" + j.id + "/config", "/jobs/" + j.id, "/config", "/metrics", "/"} {
		text, err := getText(t.Context(), cluster.ResourceManagerWeb+"/proxy/"+j.app+p)
		if err != nil {
			t.Errorf("GET %s: %v", p, err)
		}
		if strings.Contains(text, secret) {
			t.Errorf("GET %s shows the value of user.api.password", p)
		}
	}
	for _, pid := range cluster.Containers() {
		for _, f := range []string{"cmdline", "environ"} {
			if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, f)); err == nil && strings.Contains(string(b), secret) {
				t.Errorf("the value of user.api.password is in /proc/%d/%s", pid, f)
			}
		}
	}
}
