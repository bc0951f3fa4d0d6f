// Package sim runs a whole job (sources, keyed functions, windows, a transactional sink) with its checkpoints, its restarts and the restarts
// of its application master in one goroutine, under one seeded scheduler that chooses what happens next and what goes wrong. The same seed
// gives the same run. It is layer L7: tests alone.
//
// Real are: checkpoint/coordinator, checkpoint/{metadata,savepoint,storage}, runtime/ha's file store, runtime/scheduler, runtime/task/barrier,
// the operators with their state and their two-phase commits, the exchange's partitions and gates, and the Kafka source's enumerator core.
// Models, of a few lines each, are the shells around them: a task's loop (task.go) and what of it barriers that overtake need (unaligned.go),
// the files that incremental checkpoints share (tables.go, over the real state/increment), workers, TaskManagers and their links (worker.go), the
// JobMaster (master.go), the coordinator process (process.go), the brokers (broker.go), and a source and a sink over them.
//
// A run is a job of one pipeline or of two that are not connected, and fail apart, in a few phases: all but the last end with a stop-with-savepoint or are cancelled, and the next one starts from what they
// left, at another parallelism. While faults are left in the plan of the seed they strike at named points (plan.go). When none is left the
// run must come to its end within a bound of steps. Along the way and at the end it is judged (oracle.go):
//
//   - committed output is that of the reference: as a multiset, and in the order of each key;
//   - a completed checkpoint is the fold of the records before its barrier: the totals of each key, what is committed and prepared, and what
//     an unaligned one found under way;
//   - no transaction is committed twice or after it was given up, none stays open;
//   - what a pointer names can be read, at any moment; at the end no file is left that nobody names;
//   - named rare states are reached (Sometimes).
//
// A failing seed is shrunk to the faults that matter and told with the command that repeats it.
package sim
