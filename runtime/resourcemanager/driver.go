package resourcemanager

import (
	"context"
	"fmt"
	"time"

	"github.com/thalweg/thalweg/config"
)

// WorkerID names a worker (a TaskManager's process and the container around it). On YARN it is the container id; a TaskManager registers
// under the same id.
type WorkerID string

// WorkerSpec is the size of a worker. It is comparable: a driver keeps one account per spec.
type WorkerSpec struct {
	MemoryBytes int64
	Cores       int
	Slots       int
}

// SpecOf reads the worker's size from the cluster's configuration.
func SpecOf(c config.Configuration) WorkerSpec {
	slots := config.TaskSlots.Value(c)
	cores := config.YarnContainerCores.Value(c)
	if cores < 1 {
		cores = slots
	}
	return WorkerSpec{MemoryBytes: int64(config.TaskManagerMemory.Value(c)), Cores: cores, Slots: slots}
}

func (s WorkerSpec) String() string {
	return fmt.Sprintf("%s, %d vcores, %d slots", config.Bytes(s.MemoryBytes), s.Cores, s.Slots)
}

// FinalStatus is the end of an application as the deployment shows it.
type FinalStatus int

const (
	StatusUndefined FinalStatus = iota
	StatusSucceeded
	StatusFailed
	StatusKilled
)

func (s FinalStatus) String() string {
	return [...]string{"UNDEFINED", "SUCCEEDED", "FAILED", "KILLED"}[s]
}

// Exit is how a worker's process or container ended.
type Exit struct {
	Code int    // exit code as the deployment reports it; YARN's negative codes included
	Text string // diagnostics with the last lines of standard error, as far as known
	// Preempted says that the deployment took the worker away (preemption, decommissioned node): not a failure of the job.
	Preempted bool
	// Memory says that it was ended for using more than the container has.
	Memory bool
}

// Driver starts and ends workers for the Manager. Its methods are called from one goroutine at a time, must not block on the network
// (queue the request, wake the loop, return) and must not call Events synchronously.
type Driver interface {
	// Start begins to deliver events. It returns the workers of an earlier application attempt that still run and are to be counted
	// as existing; they will register again by themselves, or be lost. Start may block until the deployment has accepted this
	// application attempt.
	Start(ctx context.Context, events Events) (previous []WorkerID, err error)
	// RequestWorkers sets how many workers of this size are to exist: open requests, starting and running ones, recovered ones of an
	// earlier attempt, all together. The number is absolute; a repeated call with the same number does nothing. A greater number
	// opens requests at once; a smaller one withdraws open requests and gives back grants that were not started yet, and never
	// ends a started worker (ReleaseWorker does): more may exist than are wanted, idle ones. A worker that is lost no longer counts, so
	// that the driver asks for another at once if fewer are left than wanted.
	RequestWorkers(spec WorkerSpec, n int)
	// ReleaseWorker ends a worker; WorkerLost follows (or not, when it was unknown). It no longer counts from this call on, and is
	// replaced if fewer are left than wanted.
	ReleaseWorker(id WorkerID)
	// WorkerRegistered tells that a worker's TaskManager has registered: its start has succeeded.
	WorkerRegistered(id WorkerID)
	// Deregister ends the application with its true final status and waits for the deployment to take note. No more workers are
	// started afterwards. It is the last call but Close.
	Deregister(ctx context.Context, status FinalStatus, diagnostics string) error
	// Close ends the driver's goroutines. Workers go on if Deregister was not called (another attempt may follow).
	Close() error
}

// Events is implemented by the Manager and called by a Driver from its own goroutines. The calls return at once.
type Events interface {
	// WorkerStarted tells that a worker was launched and should register soon.
	WorkerStarted(id WorkerID, spec WorkerSpec, host string)
	// WorkerLost tells that a worker ended or was taken away, whether it had registered or not. Told once per worker.
	WorkerLost(id WorkerID, exit Exit)
	// WorkerLeaving tells that the deployment will take a worker away at that time (zero: nobody knows when), and why: its work is to move
	// before. It may be told again with another time.
	WorkerLeaving(id WorkerID, until time.Time, reason string)
	// WorkerStays takes that back.
	WorkerStays(id WorkerID)
	// Problem is a line about requests that cannot be met at the moment ("queue root.a is full"), "" when it is over. It is shown to
	// the user while a job waits for slots and is part of the failure when the wait ends in a time-out.
	Problem(text string)
	// Fatal tells that the driver cannot go on: the application ends as FAILED with this error (unless err is ErrFenced: then
	// another attempt runs and this process ends without touching anything).
	Fatal(err error)
}
