// Package minicluster runs a whole cluster in one process: dispatcher, JobMaster, ResourceManager, TaskManagers, REST, and the job's own
// code as goroutines, over links in memory. It is layer L3. --target local, streamtest and the runtime's own tests use it; it is the
// same code as on YARN but for the Driver and the launchers. Functions of the job are injected, so that this package does not
// know the SDK.
//
// Invariant: when Run returns, everything that it started has ended.
package minicluster
