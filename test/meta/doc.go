// Package meta runs one job with one input under odd configurations (tiny buffers, one key group, parallelism 7, no chaining, each state
// backend with next to no memory, BATCH, a checkpoint each few milliseconds with failures and restores in between) on the embedded cluster, and
// compares every output with that of a plain reference. It is layer L7: tests alone.
//
// A configuration that fails is shrunk to the options that matter, and told with the command that repeats it.
package meta
