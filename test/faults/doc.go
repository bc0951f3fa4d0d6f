// Package faults runs the order-totals job on a real YARN cluster with a real Kafka broker, does harm to it while records flow, and judges what
// came out with the exactly-once checker (test/eos). The faults and their times are drawn from a seed, which is printed and repeats the run.
//
// TestFaults, short, is part of make test: kill -9 of each process, restarts of the broker and the ResourceManager; it measures how long it
// took until output flowed again. TestEveryStep is make test-faults and make soak: processes are killed, stopped, delayed or given an error at
// each failpoint (docs/failpoints.md, points.go), and daemons, HDFS, the network between processes (cut.go), the local disk (disk.go) and the
// way to the broker (test/kafkaproxy) fail (around.go), a node falls silent or is decommissioned (node.go), a process is over its
// memory limit (memory.go), the folder of the checkpoints is read-only or renamed away (folder.go), one at a time and in pairs. After each fault the job must run, complete a checkpoint and
// write output; the job's user is alice, who may not do everything in HDFS. At the end memory and descriptors must not have grown, no file may be left below the folder of the checkpoints, and no process
// of the application. EndTxn requests that reach the broker late are make test-endtxn (endtxn.go). What cuts the network, fills the disk or limits memory takes
// root, and is left out for others; a node is decommissioned only in a cluster of two hosts (THALWEG_RIG_HOSTS=2), as YARN names nodes by their hosts.
//
// Beside what is in Kafka, the checker gets the offsets in the metadata of each completed checkpoint, read from HDFS while the job runs,
// and the records that the operators counted since they were last restored, read from the metrics at the end. All of it, with the faults and
// their times, is the run's history: a file that thalweg-check judge judges again.
//
// Only processes of the run's own application are killed: they are found by the application's container ids in their environment.
package faults
