// Package kafka is the source and the sink for Apache Kafka, over franz-go. It is layer L1: it imports connector, serde and internal only.
//
// Source. The enumerator (coordinator process) finds partitions, turns the starting and stopping positions into plain offsets, and assigns
// each partition to the subtask (startIndex(topic) + partition) mod parallelism. A reader consumes its partitions directly (no group
// management): one goroutine polls the client and hands whole fetches over a channel of one, the task decodes from them. Offsets are
// committed to the consumer group when a checkpoint completes, for monitoring only; they are never used for recovery.
//
// Sink. NONE, AT_LEAST_ONCE, or EXACTLY_ONCE with one transaction per checkpoint interval and subtask. Transactional ids are pooled:
// prefix + subtask + "-" + slot. See txn.go for the life of a transaction, recover.go and outcome.go for what happens after a failure, and
// topics.go for topics that are deleted and created again.
//
// Invariants:
//  1. Nothing is skipped silently: an offset out of range, a recreated topic, a lost transaction or a bad record fails the job unless an
//     option says otherwise, and then it is counted.
//  2. A partition is, at each checkpoint, either in the enumerator's state or in exactly one reader's.
//  3. Group offsets never run ahead of the last completed checkpoint.
//  4. A transactional id is used by one subtask at a time; before a subtask writes, every id of its share is fenced, save the ids of
//     committables that were restored with the job, which their committers commit, and fence if more was begun under them.
//  5. A transaction whose end is unknown is asked about with the same producer id and epoch until it is decided; each transaction has an
//     epoch of its own.
//
// The isolation level is read_uncommitted by default, as that of Kafka's own client and of Flink; see ReadCommitted.
package kafka
