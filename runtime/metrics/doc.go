// Package metrics is the registry of counters, gauges and meters of a process, Flink's scope formats and names, and the text form of
// Prometheus. It is layer L1 and imports nothing of the project.
//
// Main flow: each task and operator opens a Group with its Scope and registers metrics by name; the hot path does nothing but Counter.Add,
// a plain atomic addition on a line of its own. Collect reads everything; WritePrometheus prints it.
//
// Invariants:
//
//  1. A name is registered once per group; the second call returns the first metric.
//  2. A closed group is not collected any more; its counters may still be added to.
//  3. Gauge functions are called by Collect's goroutine and must be safe for that; a panicking one is left out.
package metrics
