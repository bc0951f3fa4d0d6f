// Package autoscale decides how many subtasks each vertex of a running job should have, from what its tasks report. It is layer L3 and a
// pure core: no goroutine, clock, I/O or randomness; runtime/jobmaster feeds it and asks the scheduler for what it decides.
//
// Main flow: Step(sample) Result, every few seconds while all tasks run. Samples of the metrics window, which begins anew with each attempt
// of the tasks, give the rates:
//
//	capacity     records per second that the vertex could process: what it did process, divided by the share of time that its busiest subtask was busy
//	target       records per second that come to it: at sources what they read and what their backlog grows by, or, when nobody knows the backlog,
//	             what they would read if nothing held them back; behind them by the ratios of records out to records in
//	catch-up     what is to be processed beside it, to work off the backlog, and what comes in during a restart, within the catch-up duration
//	need(u)      target / u + catch-up: the capacity at which the vertex is busy for the share u of its time
//
// A vertex whose capacity is not within need(max) and need(min) gets as many subtasks as need(target) says. As long as all are within,
// nothing happens.
//
// Source: Flink Kubernetes operator 1.12, JobVertexScaler, ScalingMetricEvaluator (FLIP-271); keys job.autoscaler.*.
//
// Invariants:
//
//  1. Nothing is decided before the stabilization interval and a whole metrics window of one attempt have passed.
//  2. Decisions are within the bounds of the configuration and the max parallelism; vertices joined by forward edges have one.
//  3. A decision to have fewer holds for the scale-down interval, without a break, before it is told.
package autoscale
