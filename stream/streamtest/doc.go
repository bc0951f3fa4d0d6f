// Package streamtest tests functions and whole programs of package stream in the test's own goroutine, in milliseconds: no cluster, no
// ports, no sleeping. It is layer L4, public.
//
// New and its relatives (KeyedProcess, Process, CoProcess, ...) make a Harness of one function or of any piece of a pipeline; Start makes
// a Job of a whole program, with inputs and outputs in the place of its sources and sinks:
//
//	h := streamtest.KeyedProcess(t, func(p Payment) string { return p.Card }, newBurst)
//	h.PushAt(at(0), Payment{"c1", 900})
//	h.Watermark(at(60))
//	h.Expect(Alert{"c1", 900})
//
// What runs are the job's own operators, state backends, exchanges (each record is encoded and decoded) and checkpoints; only the threads,
// the clock and the event loop are the test's. Everything happens in the calls of the test and is done when they return, so results are the same
// each time. Processing time stands still until Advance moves it. The mode is STREAMING, also of a program that sets BATCH: what such a program
// emits at the end is the same.
//
// State that is kept in fields of a function, and not in the handles of its context, is lost when a job restarts. So harnesses and jobs
// restart all by themselves, from a snapshot, after the 1st, 3rd, 7th, 15th, ... push; jobs of Start then also change their
// parallelism. A call of Push or PushAt is one push, however many records it has: push them one by one to have restarts in between. An
// output that differs from what is expected tells after which pushes there was one. NoRestarts turns them off.
//
// Main flow: Job.open builds the graph and every subtask of it; Job.settle moves records until none is left; Job.snapshot and open again
// are a restart. Invariants: all operators run on the goroutine that calls; no goroutine outlives the test.
package streamtest
