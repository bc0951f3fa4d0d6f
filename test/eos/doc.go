// Package eos is the exactly-once checker: it writes a deterministic input, recomputes the windows' totals on its own, reads what the job
// wrote, and judges it. Every fault run uses it; cmd/thalweg-check is the program.
//
// It shares no code with the engine or its Kafka connector. Everything that is judged is first put down in a History (a file of JSON
// lines), so that a run can be judged again later, also by a later version of the judge.
//
// The checks, by number:
//
//	0 the input topic holds exactly what the generator made (a fault here is the test's own)
//	1 every (customer, window) of the reference appears exactly once with the right value
//	2 there is no output without input
//	3 the windows of a customer appear in order
//	4 a reader that ran along, with read_committed, saw no record that was retracted or repeated
//	5 the last stable offset reaches the end within 2 s of the job's end: no open transaction
//	6 transactional ids in use are at most parallelism times pool
//	7 committed group offsets never run ahead of the last completed checkpoint
//	8 after stops and restores the union of all output holds 1 to 4
//	9 per operator, in = out + late + filtered; over the whole job, each record is in a result, late, a dead letter or in an open window
//	10 each transaction ended the same way in all of its partitions, and readers with read_committed see exactly the committed ones
//
// A check whose evidence is not in the history is reported as not checked, never as passed.
package eos
