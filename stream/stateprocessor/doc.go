// Package stateprocessor reads, changes and writes savepoints without a running job: to look into state with one's own types, to correct it, to
// start a job with state that was made from files, to change a max parallelism. It is public, of layer L4.
//
// Main flow: Open a savepoint (or a retained checkpoint, of either backend and form), read it with Keyed and OperatorState; or take its Writer, or a
// New one, say what is to be changed (With, Remove, ChangeUID), and Write. What is written is a savepoint in canonical form, which a job of either
// backend starts from at any parallelism: thalweg run -s.
//
// States are opened by the functions of the caller with the handles of a job's functions (stream.RuntimeContext: ValueState, ListState, MapState, ...), under
// the same names and with the same types, or types that these may become (docs/write-a-job.md).
//
// Invariants: what was opened is never changed; what is not named is in the new savepoint as it was; a savepoint is whole when it can be seen.
//
// Source: Flink's State Processor API.
package stateprocessor
