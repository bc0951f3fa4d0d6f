package integration

import (
	"testing"

	"github.com/thalweg/thalweg/connector/kafka/kafkatest"
)

// A job on this machine keeps its checkpoints in the cluster's file system, without which nothing of it is committed; also in that of a secured cluster, where
// the client logs in, and the program has its tokens.
func TestLocalJobWithFilesOfTheCluster(t *testing.T) {
	k := kafkaCluster(t)
	s := spec(400)
	in, out, txn := wholeInput(t, k, s), k.Topic(t, 1), kafkatest.Name("txn")+"-"
	r := thalweg(t, nil, append([]string{"run", "-t", "local", "-p", "2", "-Dexecution.checkpointing.interval=300ms",
		"-Dexecution.checkpointing.dir=hdfs:///checkpoints/" + kafkatest.Name("local"), "-Drest.port=0", totals}, totalsArgs(in, out, txn, "--bounded")...)...)
	if r.code != 0 {
		t.Fatal(r)
	}
	same(t, "committed", allCommitted(t, k, out), expected(s, s.Records))
	noOpenTransactions(t, k, txn)
}
