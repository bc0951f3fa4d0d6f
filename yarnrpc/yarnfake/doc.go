// Package yarnfake is a ResourceManager and NodeManagers in one process that speak the real wire protocols: SIMPLE on the
// client port, TOKEN by DIGEST-MD5 on the scheduler and container manager ports. For tests only. Layer L1; imports
// yarnrpc/*.
//
// It behaves as YARN does where an ApplicationMaster can tell: asks are absolute counts per (priority, allocation request
// id, resource name) and grants lower them; grants come with a later beat than the ask; sizes are rounded up and, as with
// the CapacityScheduler's default calculator, vcores come back as 1; a repeated response id gets the earlier answer;
// NMTokens come with the first container of a node; an attempt that dies is followed by another, with or without the
// containers; a restarted ResourceManager forgets registrations and asks, keeps applications and containers, and counts
// its epoch in new container ids. Package yarntest runs the same suite against it and against real daemons.
//
// Main flow: Start, Cluster.Conf (or ConfDir for other processes), the yarnrpc clients, then the Cluster's methods that
// provoke what is under test: SetGrantsPerBeat, SetGrantDelay, SetLaunchCheck, KillContainer, StopNode,
// RestartResourceManager, RollKeys, DropAnswers. Stats tells what happened.
//
// What runs in a container is the Runner's business: Idle (nothing, until it is stopped), Processes (the command, as a
// process on this machine) or the test's own function.
//
// Invariants: one lock guards all state and is never held while a Runner runs or a socket is used; Close ends everything.
package yarnfake
