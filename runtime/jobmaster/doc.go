// Package jobmaster runs one job: an event loop around the pure cores runtime/scheduler (what to deploy, cancel, restart) and
// checkpoint/coordinator (when to checkpoint, what is complete), with the links to TaskManagers (through runtime/resourcemanager) and to the job's
// coordinator process. It is layer L3.
//
// Main flow: New, Run. Everything that happens (messages of workers, slots, timers, requests of REST) is an event in one queue; the loop feeds
// the cores and carries out their effects in order.
//
// Invariants:
//
//  1. State belongs to the loop. Other goroutines post events; queries are answered from snapshots made by the loop.
//  2. Events of the coordinator process that arrive after its snapshot of checkpoint n are relayed after n's trigger messages.
//  3. Messages of earlier attempts, and of workers that were replaced, are dropped.
//  4. Nothing the loop does waits for the network or the file system; such work runs beside it and posts its result.
package jobmaster
