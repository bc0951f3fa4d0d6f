// Package faults runs the order-totals job on a real YARN cluster with a real Kafka broker, kills its processes while records flow, and
// judges what came out with the exactly-once checker (test/eos). The kinds of faults and their times are drawn from a seed, which is
// printed and repeats the run. For each fault it measures how long it took until output flowed again.
//
// Beside what is in Kafka, the checker gets the offsets in the metadata of each completed checkpoint, read from HDFS while the job runs,
// and the records that the operators counted since they were last restored, read from the metrics at the end.
//
// Only processes of the run's own application are killed: they are found by the application's container ids in their environment.
package faults
