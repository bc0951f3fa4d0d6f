// Package memory divides a container's size among the processes in it and derives GOMEMLIMIT and GOMAXPROCS. It is layer L1; the
// ApplicationMaster, the TaskManagers and the embedded cluster all take their numbers from here.
//
// The NodeManager kills a container whose process tree is resident above its size, so the parts sum to the size, and what the Go runtime
// does not account for (stacks of the operating system, the page cache mapped by the process, the binary itself) has its own share.
//
//	TaskManager container = taskmanager.memory.process.size
//	  TaskManager process      1/16 of the container, 40 MiB to 128 MiB: supervision, blob cache, heartbeats
//	  margin                   1/10 of the container, 16 MiB to 1 GiB: outside of Go's heap
//	  worker processes         the rest, shared by the jobs that run there
//	    managed                taskmanager.memory.managed.fraction of it, with state.backend.type pebble: block cache and memtables
//	    network                1/10 of it, 4 MiB to 1 GiB: exchange buffers
//	    user                   the rest: records, functions, state of the hashmap backend
//
// A static binary (no cgo) holds Pebble's cache and the buffers on Go's heap, so that the worker's GOMEMLIMIT covers all three.
//
//	AM container = jobmanager.memory.process.size
//	  AM process               2/5 of what the margin leaves
//	  job process              3/5 of it: the user's binary in the roles plan and coordinator
//	  margin                   1/8 of the container, 16 MiB at least
package memory

import (
	"fmt"
	"strconv"

	"github.com/thalweg/thalweg/config"
)

const (
	mib = config.Bytes(1 << 20)
	// minUser is the least that a worker's functions get; below it the garbage collector would run all the time.
	minUser = 24 * mib
)

// TaskManager is the division of a TaskManager's container. All sizes in bytes.
type TaskManager struct {
	Container config.Bytes
	Process   config.Bytes // the TaskManager itself
	Margin    config.Bytes
	Worker    config.Bytes // all workers together = Managed + Network + User; their GOMEMLIMIT
	Managed   config.Bytes // pebble: block cache and memtables of all stores of the worker; 0 with hashmap
	Network   config.Bytes
	User      config.Bytes
	Cores     int // GOMAXPROCS of a worker
}

// ForTaskManager divides a container of c's taskmanager.memory.process.size. The error names the keys when the parts do not fit.
func ForTaskManager(c config.Configuration) (TaskManager, error) {
	size := config.TaskManagerMemory.Value(c)
	t := TaskManager{Container: size, Process: process(size), Margin: margin(size), Worker: worker(size), Cores: WorkerCores(c)}
	if config.StateBackend.Value(c) == "pebble" {
		f, err := config.ManagedFraction.Get(c)
		if err != nil {
			return t, err
		}
		t.Managed = config.Bytes(float64(t.Worker) * f)
	}
	t.Network = clamp(t.Worker/10, 4*mib, 1024*mib)
	t.User = t.Worker - t.Managed - t.Network
	if t.User < minUser {
		return t, fmt.Errorf("memory: %s = %s leaves %s for the job's functions, want %s at least: raise it, or lower %s",
			config.TaskManagerMemory.Key, size, max(t.User, 0), minUser, config.ManagedFraction.Key)
	}
	return t, nil
}

// Managed is what a container of that size has for state on disk, all slots together, whatever the backend is.
func Managed(container config.Bytes, c config.Configuration) config.Bytes {
	return config.Bytes(float64(worker(container)) * config.ManagedFraction.Value(c))
}

// worker is what the TaskManager itself and the margin leave.
func worker(container config.Bytes) config.Bytes {
	return container - process(container) - margin(container)
}

func process(container config.Bytes) config.Bytes { return clamp(container/16, 40*mib, 128*mib) }
func margin(container config.Bytes) config.Bytes  { return clamp(container/10, 16*mib, 1024*mib) }

// Master is the division of the ApplicationMaster's container.
type Master struct {
	Container config.Bytes
	Process   config.Bytes // GOMEMLIMIT of the AM
	Job       config.Bytes // GOMEMLIMIT of the job's process in the roles plan and coordinator
	Margin    config.Bytes
	Cores     int // GOMAXPROCS of each
}

// ForMaster divides a container of c's jobmanager.memory.process.size.
func ForMaster(c config.Configuration) Master {
	size := config.JobManagerMemory.Value(c)
	m := Master{Container: size, Margin: max(size/8, 16*mib), Cores: config.YarnMasterCores.Value(c)}
	m.Process = (size - m.Margin) * 2 / 5
	m.Job = size - m.Margin - m.Process
	return m
}

// WorkerCores is yarn.containers.vcores, or the number of slots when that is -1: what YARN is asked for and GOMAXPROCS of a worker.
func WorkerCores(c config.Configuration) int {
	if n := config.YarnContainerCores.Value(c); n > 0 {
		return n
	}
	return config.TaskSlots.Value(c)
}

// CoresKey is the key that WorkerCores took its number from: the one to name when that does not fit.
func CoresKey(c config.Configuration) string {
	if config.YarnContainerCores.Value(c) > 0 {
		return config.YarnContainerCores.Key
	}
	return config.TaskSlots.Key
}

// Environment returns the variables of the Go runtime for a process with that limit and that many cores.
func Environment(limit config.Bytes, cores int) map[string]string {
	return map[string]string{"GOMEMLIMIT": strconv.FormatInt(int64(limit), 10), "GOMAXPROCS": strconv.Itoa(max(cores, 1))}
}

func clamp(v, lo, hi config.Bytes) config.Bytes { return min(max(v, lo), hi) }
