// Package am is the YARN ApplicationMaster: the Driver that turns workers wanted into containers (on top of allocator and
// yarnrpc), the launch contexts of the two processes that YARN starts, and the life of the master itself. Layer L5.
//
// Main flow of an application attempt (Run): read what the client put into the container's credentials (container.Application), take the next
// epoch of the high-availability store (while its file system is away: register and wait, see early.go), register with the ResourceManager; meanwhile fetch the user's binary and run it in
// role plan; submit the graph to the dispatcher, or recover it from the store; wait for the job's end; unregister with the true final
// status; remove the staging folder.
//
// Main flow of the Driver: one loop calls allocate, fast while something is open, and at once when an ask appears; all that it learns goes
// through the allocator's Step, and the effects start containers (in parallel, one call per node), stop them, and tell the
// ResourceManager of package resourcemanager (whose events are delivered by a goroutine of their own, in order).
//
// Invariants:
//
//  1. User code never runs in this process.
//  2. Secrets and the configuration travel in the container's credentials, which YARN writes for the owner only and hands over without a
//     localiser; never in the environment or on a command line.
//  3. Unregistering survives a termination signal.
//  4. An attempt that is not the newest one touches nothing any more: the store, the staging folder and the containers belong to the next.
package am
