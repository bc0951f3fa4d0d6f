package integration

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/thalweg/thalweg/connector/kafka/kafkatest"
)

// The same bounded input gives the same multiset of results: at parallelism 1 undisturbed, and at 3 with workers killed, on each backend.
func TestSameResultsWhateverHappens(t *testing.T) {
	k := kafkaCluster(t)
	s := spec(30_000)
	in := wholeInput(t, k, s)
	want := expected(s, s.Records)
	for _, backend := range []string{"hashmap", "pebble"} {
		args := func(out, txn string) []string {
			return []string{"--brokers", cluster.KafkaBootstrap, "--in", in, "--out", out, "--group", out, "--txn-prefix", txn, "--bounded"}
		}
		conf := []string{"-Dexecution.checkpointing.interval=500ms", "-Dstate.backend.type=" + backend, "-Drestart-strategy.exponential-delay.initial-backoff=200ms"}
		t.Run(backend+" undisturbed", func(t *testing.T) {
			out, txn := k.Topic(t, 2), kafkatest.Name("txn")+"-"
			j := submit(t, append(conf, "-p", "1"), totals, args(out, txn)...)
			if a := j.awaitEnd(); a.Final != "SUCCEEDED" {
				t.Fatalf("%s/%s: %s", a.State, a.Final, a.Diagnostics)
			}
			same(t, "parallelism 1", allCommitted(t, k, out), want)
			noOpenTransactions(t, k, txn)
		})
		t.Run(backend+" with kills", func(t *testing.T) {
			out, txn := k.Topic(t, 2), kafkatest.Name("txn")+"-"
			killed := filepath.Join(t.TempDir(), "killed") // until then the input does not come to its end
			j := submit(t, append(conf, "-p", "3"), totals, append(args(out, txn), "--delay", "5ms", "--delay-until", killed)...)
			var last int64
			for range 2 {
				j.awaitRunning()
				last = j.awaitCheckpoint(last)
				workers := j.workers()
				if len(workers) == 0 {
					t.Fatal("no worker process found")
				}
				before, err := j.state()
				if err != nil {
					t.Fatal(err)
				}
				if err := syscall.Kill(workers[len(workers)-1], syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
				until(t, patience, "the restart after a kill", func() (bool, error) {
					st, err := j.state()
					return st.running() && st.Restarts > before.Restarts, err
				})
			}
			write(t, killed, "")
			if a := j.awaitEnd(); a.Final != "SUCCEEDED" {
				t.Fatalf("%s/%s: %s", a.State, a.Final, a.Diagnostics)
			}
			same(t, "parallelism 3 with kills", allCommitted(t, k, out), want)
			noOpenTransactions(t, k, txn)
		})
	}
}
