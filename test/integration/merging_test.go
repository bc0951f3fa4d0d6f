package integration

import (
	"fmt"
	"path"
	"strings"
	"syscall"
	"testing"

	"github.com/thalweg/thalweg/connector/kafka/kafkatest"
)

// With file merging the state of many subtasks is in few HDFS files, a killed application master included; another job starts from them at another
// parallelism, and the command line reads them.
func TestFileMerging(t *testing.T) {
	k := kafkaCluster(t)
	in, out, txn := k.Topic(t, 4), k.Topic(t, 3), kafkatest.Name("txn")+"-"
	s := spec(600)
	s.Partitions = 4
	args := []string{"--brokers", cluster.KafkaBootstrap, "--in", in, "--out", out, "--group", in, "--txn-prefix", txn, "--window", "1s", "--out-of-orderness", "1s", "--idle", "0"}
	const dir = "hdfs:///checkpoints/merged"
	conf := []string{"-Dexecution.checkpointing.interval=1s", "-Dtaskmanager.numberOfTaskSlots=4", "-Dtaskmanager.memory.process.size=2g", "-Dstate.backend.type=pebble",
		"-Dexecution.checkpointing.fs.memory-threshold=0", "-Dexecution.checkpointing.file-merging.enabled=true", "-Dexecution.checkpointing.dir=" + dir}
	writeByConsole(t, in, true, consoleLines(s, 0, 300))
	j := submit(t, append([]string{"-p", "4"}, conf...), bin+"/examples/order-totals", args...)
	j.awaitRunning()
	n := j.awaitCheckpoint(j.awaitCheckpoint(0))
	f, root := hdfsPath(t, "hdfs://x/checkpoints/merged/"+j.id)
	files := func(n int64) (all []string) {
		for _, d := range []string{fmt.Sprintf("chk-%d", n), "shared"} {
			infos, err := f.List(t.Context(), path.Join(root, d))
			if err != nil {
				continue // removed, or there is none
			}
			for _, i := range infos {
				if strings.HasPrefix(path.Base(i.Path), fmt.Sprintf("%d-", n)) {
					all = append(all, i.Path)
				}
			}
		}
		return all
	}
	few := func(n int64) {
		t.Helper()
		// Four subtasks share one file of their own and one that later checkpoints may need; one more of each when a barrier was late.
		if all := files(n); len(all) > 4 {
			t.Errorf("checkpoint %d has %d files: %v", n, len(all), all)
		}
	}
	few(n)
	writeByConsole(t, in, true, consoleLines(s, 300, 600))
	n = j.awaitCheckpoint(n)
	few(n)
	for _, pid := range j.masters() {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	n = j.awaitCheckpoint(n)
	j.awaitRunning()
	few(n)
	j.do("cancel")
	j.awaitEnd()

	infos, err := f.List(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	retained := ""
	for _, i := range infos {
		if strings.HasPrefix(path.Base(i.Path), "chk-") {
			retained = dir + "/" + j.id + "/" + path.Base(i.Path)
		}
	}
	if r := thalweg(t, nil, "state", "ls", "--read", retained); r.code != 0 || !strings.Contains(r.stdout, "customer-totals") {
		t.Errorf("%s", r)
	}
	j = submit(t, append([]string{"-p", "2", "-s", retained}, conf...), bin+"/examples/order-totals", args...)
	j.awaitRunning()
	writeByConsole(t, in, true, closingLines(s))
	want := expected(s, s.Records)
	same(t, "read_committed console consumer", results(t, readByConsole(t, out, len(want))), want)
	j.awaitCheckpoint(j.awaitCheckpoint(0))
	j.do("cancel")
	j.awaitEnd()
}
