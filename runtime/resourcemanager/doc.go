// Package resourcemanager keeps the books of a cluster's TaskManagers and slots: it accepts their registrations, gives slots to jobs, asks
// the deployment's Driver for the workers that are missing and gives idle ones back. It is layer L3 and knows no deployment: am
// (YARN), the standalone and the embedded drivers plug in through Driver.
//
// Main flow: a JobMaster declares how many slots its job needs (Declare, an absolute number). The Manager allocates free slots and, for
// what is missing, sets the number of workers that should exist (Driver.RequestWorkers, absolute as well). A worker started by the
// driver dials in (Accept), registers, and its slots go to the jobs that wait. A worker that the driver loses before it registered is
// replaced by the same arithmetic. Whoever owns a slot is told by JobListener.
//
// Invariants:
//
//  1. A slot belongs to at most one job; every slot of a TaskManager is free again when its link ends.
//  2. RequestWorkers is sent whenever the number wanted changes, and never counts a lost worker.
//  3. A TaskManager is given back only when all of its slots were free for resourcemanager.taskmanager-timeout and the jobs do not
//     need it.
//  4. A TaskManager that served a newer epoch is refused: this JobMaster is the stale one, and ends (Fenced).
//  5. Listeners are called in the order of events, without the manager's lock held over anything that blocks.
package resourcemanager
