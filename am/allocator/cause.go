package allocator

import (
	"fmt"
	"strings"

	"github.com/thalweg/thalweg/yarnrpc/yarn"
)

// Cause is why a container ended.
type Cause string

const (
	Exited       Cause = "exited"               // with status 0
	Crashed      Cause = "failed"               // with another status, or never started
	Memory       Cause = "killed for memory"    // more resident than the container's size
	Disks        Cause = "disks failed"         // of the node
	Preempted    Cause = "preempted"            // by the scheduler, for another queue
	Aborted      Cause = "node lost"            // or released by nobody of ours
	Released     Cause = "released"             // by us
	KilledByYARN Cause = "killed by YARN"       // by the ResourceManager or an administrator
	Unregistered Cause = "did not register"     // in resourcemanager.taskmanager-registration.timeout
	NotStarted   Cause = "could not be started" // refused by the NodeManager
	NotRecovered Cause = "did not come back"    // of an earlier attempt, in resourcemanager.previous-worker.recovery.timeout
)

// Blameless reports whether the end says nothing about the worker, so that it does not count as a failed start.
func (c Cause) Blameless() bool {
	switch c {
	case Disks, Preempted, Aborted, Released, KilledByYARN, NotRecovered:
		return true
	case Exited, Crashed, Memory, Unregistered, NotStarted:
		return false
	}
	return false
}

// causeOf maps an exit status. Source: hadoop-yarn-api ContainerExitStatus, Hadoop 3.4.
func causeOf(exit int32) Cause {
	switch exit {
	case yarn.ExitSuccess:
		return Exited
	case yarn.ExitAborted:
		return Aborted
	case yarn.ExitDisksFailed:
		return Disks
	case yarn.ExitPreempted:
		return Preempted
	case yarn.ExitKilledExceededVmem, yarn.ExitKilledExceededPmem:
		return Memory
	case yarn.ExitKilledByAppMaster:
		return Released
	case yarn.ExitKilledByResourceManager, yarn.ExitKilledAfterAppComplete, yarn.ExitKilledByScheduler:
		return KilledByYARN
	}
	return Crashed
}

// String says what happened to the container, and what to do where that is known, in one paragraph.
func (e Ended) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "container %s on %s %s", e.Container.ID, e.Container.Node, e.Cause)
	switch e.Cause {
	case Crashed:
		fmt.Fprintf(&b, " with exit code %d%s", e.Exit, signalOf(e.Exit))
	case Memory:
		kind := "physical"
		if e.Exit == yarn.ExitKilledExceededVmem {
			kind = "virtual"
		}
		fmt.Fprintf(&b, ": its processes used more %s memory than the container of %s has; raise taskmanager.memory.process.size", kind, e.Container.Resource)
	case KilledByYARN:
		fmt.Fprintf(&b, " (status %d)", e.Exit)
	case Exited, Disks, Preempted, Aborted, Released, Unregistered, NotStarted, NotRecovered:
	}
	if d := strings.TrimSpace(e.Detail); d != "" {
		b.WriteString(": " + d)
	}
	return b.String()
}

// signalOf explains the exit codes above 128 of a shell.
func signalOf(exit int32) string {
	switch exit {
	case 137:
		return " (SIGKILL: killed from outside, often by the kernel for lack of memory)"
	case 143:
		return " (SIGTERM)"
	case 139:
		return " (SIGSEGV)"
	case 126:
		return " (the program is not executable)"
	case 127:
		return " (the program was not found)"
	}
	return ""
}
