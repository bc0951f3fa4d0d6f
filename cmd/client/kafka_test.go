package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/checkpoint/storage"
	"github.com/thalweg/thalweg/connector/connectortest"
	"github.com/thalweg/thalweg/connector/kafka"
	"github.com/thalweg/thalweg/connector/kafka/kafkatest"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/local"
	"github.com/thalweg/thalweg/runtime/graph"
)

// preparedSnapshot writes a checkpoint that holds what a sink has prepared, and something of another sink.
func preparedSnapshot(t *testing.T, cp *connectortest.SinkCheckpoint) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "chk-1")
	item := func(p metadata.Prepared) []byte {
		b, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	operator := func(id byte, name string, items ...[]byte) metadata.Operator {
		return metadata.Operator{ID: graph.OperatorID{ID: graph.ID{id}}, Name: name, Parallelism: 1, MaxParallelism: 128, Subtasks: []metadata.Subtask{{
			Lists: []metadata.ListState{{Name: metadata.PreparedState, Items: [][]byte{item(metadata.Prepared{Checkpoint: cp.ID, Items: items})}}},
		}}}
	}
	reg := &fs.Registry{}
	local.Register(reg)
	f, _, err := reg.Resolve(t.Context(), "file://"+dir)
	if err != nil {
		t.Fatal(err)
	}
	all := metadata.Checkpoint{ID: cp.ID, Trigger: time.UnixMilli(0), JobName: "orders", Operators: []metadata.Operator{
		operator(1, "totals-out", cp.Committables...), operator(2, "files-out", []byte(`{"final":"part-0"}`)),
	}}
	if _, _, err := storage.WriteMetadata(t.Context(), f, "file://"+dir, all); err != nil {
		t.Fatal(err)
	}
	return dir
}

// A job that will not come back: its transactions are listed, what its last checkpoint prepared is committed, the rest aborted.
func TestTransactionsOfADeadJob(t *testing.T) {
	kafkatest.Each(t, func(t *testing.T, k *kafkatest.Cluster) {
		topic, prefix := k.Topic(t, 1), kafkatest.Name("orders")+"-"
		sink := kafka.Sink[string](kafkatest.Text{}, kafka.Brokers(k.Brokers...), kafka.Topic(topic), kafka.ExactlyOnce(prefix))
		r := connectortest.MustStartSink(t, sink, 2, nil, connectortest.SinkOptions{})
		r.Write(0, "whole")
		cp := r.Checkpoint()
		r.Write(1, "cut off")
		if err := r.Writer(1).Flush(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		r.Abandon()
		dir, at := preparedSnapshot(t, cp), []string{"--bootstrap-server", strings.Join(k.Brokers, ",")}
		step := func(code int, want, wantErr string, args ...string) {
			t.Helper()
			out, errs, got := thalweg(t, nil, append(append([]string{"kafka-transactions"}, args...), at...)...)
			if got != code || !regexp.MustCompile("^(?s:"+want+")$").MatchString(out) || !regexp.MustCompile("^(?s:"+wantErr+")$").MatchString(errs) {
				t.Fatalf("%v: code %d\n%s\n%s\nwant %s\n%s", args, got, out, errs, want, wantErr)
			}
		}
		const foreign = `what operator "files-out" .* left alone\n`
		step(0, `TRANSACTIONAL ID +STATE +PRODUCER +EPOCH +AGE +TIME-OUT +PREPARED BY +PARTITIONS\n`+prefix+`0-0 +Ongoing +\d+ +\d+ +\d+s +15m0s +- +`+topic+`-0\n`+prefix+`1-0 +Ongoing .*\n`, "",
			"list", "--prefix", prefix)
		step(0, `\{"transactionalId":"`+prefix+`0-0","state":"Ongoing","producerId":\d+,"producerEpoch":\d+,"startTimestamp":\d+,("ageMs":\d+,)?"timeoutMs":900000,"coordinatorId":\d+,`+
			`"partitions":\[\{"topic":"`+topic+`","partition":0\}\],"preparedByCheckpoint":1\}\n`, foreign, "list", "-o", "json", "--transactional-id", prefix+"0-0", "--snapshot", dir)
		step(exitUsage, "", `.*there is nobody to answer: add --yes\n`, "abort", "--prefix", prefix)
		step(0, prefix+`1-0: aborted\n`, foreign+`1 transactions that the snapshot has prepared are kept.*`, "abort", "--prefix", prefix, "--snapshot", dir, "--yes")
		step(0, prefix+`0-0: committed \(checkpoint 1\)\n`, foreign, "commit", "--snapshot", dir)
		step(0, `\{"checkpointId":1,"outcome":"committed before","transactionalId":"`+prefix+`0-0"\}\n`, foreign, "commit", "--snapshot", dir, "-o", "json")
		if _, err := k.OpenTransactions(t.Context(), prefix); err != nil { // waits for ends in progress
			t.Fatal(err)
		}
		step(0, `No open transaction.\n`, "", "list", "--prefix", prefix)
		step(0, `No open transaction to abort.\n`, "", "abort", "--prefix", prefix, "--yes")
		if recs := k.Read(t, topic, true); len(recs) != 1 || string(recs[0].Value) != "whole" {
			t.Errorf("committed: %v", recs)
		}
	})
}

// What was aborted by the brokers before it was committed is lost: the commit says so, and its exit code too.
func TestCommitOfWhatIsLost(t *testing.T) {
	k := kafkatest.NewFake(t)
	topic := k.Topic(t, 1)
	r := connectortest.MustStartSink(t, kafka.Sink[string](kafkatest.Text{}, kafka.Brokers(k.Brokers...), kafka.Topic(topic), kafka.ExactlyOnce("x-")), 1, nil, connectortest.SinkOptions{})
	r.Write(0, "a")
	dir := preparedSnapshot(t, r.Checkpoint())
	if err := k.AbortTransactions(t.Context(), "x-"); err != nil {
		t.Fatal(err)
	}
	_, errs, code := thalweg(t, nil, "kafka-transactions", "commit", "--bootstrap-server", k.Brokers[0], "--snapshot", dir)
	if code != exitFailed || !strings.Contains(errs, "LOST") || !strings.Contains(errs, topic+"-0 offsets 0 to 0") {
		t.Errorf("code %d, %s", code, errs)
	}
}

func TestAbortAsksFirst(t *testing.T) {
	k := kafkatest.NewFake(t)
	topic := k.Topic(t, 1)
	r := connectortest.MustStartSink(t, kafka.Sink[string](kafkatest.Text{}, kafka.Brokers(k.Brokers...), kafka.Topic(topic), kafka.ExactlyOnce("x-")), 1, nil, connectortest.SinkOptions{})
	r.Write(0, "a")
	if err := r.Writer(0).Flush(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		answer, says string
		code         int
	}{{"n\n", "nothing was aborted", exitFailed}, {"", "nothing was aborted", exitFailed}, {"y\n", "is lost, too (--snapshot keeps it)", 0}} {
		in := filepath.Join(t.TempDir(), "in")
		if err := os.WriteFile(in, []byte(c.answer), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(in)
		if err != nil {
			t.Fatal(err)
		}
		var out, errs strings.Builder
		cl := newCLI(&out, &errs, func(string) string { return "" })
		cl.in, cl.inTTY = f, true
		code := cl.execute(t.Context(), cl.root(), []string{"kafka-transactions", "abort", "--bootstrap-server", k.Brokers[0], "--prefix", "x-"})
		_ = f.Close() // read
		if code != c.code || !strings.Contains(errs.String(), c.says) || !strings.Contains(errs.String(), "Abort 1 transactions?") || !strings.Contains(out.String(), "x-0-0") {
			t.Errorf("%q: code %d\n%s%s", c.answer, code, out.String(), errs.String())
		}
	}
}

func TestFaultsOfKafkaTransactionsAreOneLine(t *testing.T) {
	props := func(text string) string {
		p := filepath.Join(t.TempDir(), "client.properties")
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"list", exitUsage, "--bootstrap-server is missing"},
		{"list --bootstrap-server ,", exitUsage, "names no broker"},
		{"commit --bootstrap-server a:1", exitUsage, "commit needs --snapshot"},
		{"abort --bootstrap-server a:1", exitUsage, "abort needs --prefix or --transactional-id"},
		{"list --bootstrap-server 127.0.0.1:1 --timeout 200ms", exitUnreachable, "connect to brokers 127.0.0.1:1"},
		{"commit --bootstrap-server a:1 --snapshot " + t.TempDir(), exitUsage, "no checkpoint or savepoint: "},
		{"list --bootstrap-server a:1 --command-config /nix", exitUsage, "/nix"},
		{"list --command-config " + props("bootstrap.servers=a:1\nsecurity.protocol=SASL_SSL\nsasl.mechanism=GSSAPI\n"), exitUsage, "sasl.mechanism=GSSAPI"},
		{"list --command-config " + props("bootstrap.servers=a:1\nsecurity.protocol=SSL\nssl.truststore.location=/a.jks\n"), exitUsage, "ssl.truststore.type=PEM"},
		{"list --command-config " + props("bootstrap.servers=a:1\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"), exitUsage, "sasl.jaas.config lacks"},
		{"list --command-config " + props("bootstrap.servers"), exitUsage, "line 1 is not key=value"},
	} {
		out, errs, code := thalweg(t, nil, append([]string{"kafka-transactions"}, strings.Fields(c.args)...)...)
		if code != c.code || out != "" || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, c.want) {
			t.Errorf("%s: code %d, %q, %q; want %q", c.args, code, out, errs, c.want)
		}
	}
}

// The brokers want a password: that of Kafka's own properties file is used.
func TestClientPropertiesOfKafkasTools(t *testing.T) {
	for _, mechanism := range []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"} {
		f, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.EnableSASL(), kfake.Superuser(mechanism, "ops", `s3"cret`))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(f.Close)
		p := filepath.Join(t.TempDir(), "client.properties")
		text := "# by hand\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism = " + mechanism + "\nsasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\\n  username=\"ops\" password=\"s3\\\"cret\";\n"
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		out, errs, code := thalweg(t, nil, "kafka-transactions", "list", "--bootstrap-server", f.ListenAddrs()[0], "--command-config", p, "--timeout", "10s")
		if code != 0 || out != "No open transaction.\n" {
			t.Errorf("%s: code %d, %q, %q", mechanism, code, out, errs)
		}
	}
}
