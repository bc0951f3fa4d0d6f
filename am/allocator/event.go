package allocator

import (
	"time"

	"github.com/thalweg/thalweg/yarnrpc/yarn"
)

// Spec is a worker size, and the key of a bucket.
type Spec struct {
	Resource yarn.Resource
	Label    string // node label expression, "" for the application's
}

// Container is a grant, or a container of an earlier attempt.
type Container struct {
	ID        yarn.ContainerID
	Node      yarn.NodeID
	Priority  int32
	RequestID int64 // allocation-request id; negative when the ResourceManager does not know them
	Resource  yarn.Resource
}

// Status is the end of a container as the ResourceManager reports it.
type Status struct {
	ID          yarn.ContainerID
	Exit        int32
	Diagnostics string
}

// NodeChange says that a node is being decommissioned, or is used again.
type NodeChange struct {
	Node    yarn.NodeID
	Leaving bool
	Until   time.Time // when it will be gone; zero when nobody knows
}

// Event is an input of Step.
type Event interface{ event() }

type (
	// Want sets the number of workers of a size, whatever lives now.
	Want struct {
		Spec  Spec
		Count int
	}
	// Recovered brings the containers of earlier attempts, from the answer to registration.
	Recovered struct {
		At         time.Time
		Containers []Container
	}
	// Beat asks what the next allocate call carries; exactly one Answer or AnswerLost follows.
	Beat struct{ At time.Time }
	// Answer is the answer to that call.
	Answer struct {
		At        time.Time
		Granted   []Container
		Completed []Status
		Preempted []yarn.ContainerID // will be taken soon
		Nodes     []NodeChange

		ClusterNodes int           // nodes of the cluster
		Headroom     yarn.Resource // what the queue has left for this application
	}
	// Ends brings completions that were learned elsewhere than from an allocate call, such as from a NodeManager; the same ones may come again.
	Ends struct {
		At        time.Time
		Completed []Status
	}
	// AnswerLost says that the call failed for good, so that nobody knows what the ResourceManager did.
	AnswerLost struct{}
	// Resync says that the ResourceManager was restarted and the attempt registered anew.
	Resync struct{}
	// Started says that the NodeManager took the container.
	Started struct{ ID yarn.ContainerID }
	// StartFailed says that it did not.
	StartFailed struct {
		At     time.Time
		ID     yarn.ContainerID
		Reason string
	}
	// Registered says that the TaskManager in the container is there.
	Registered struct{ ID yarn.ContainerID }
	// Release gives a container back. It does not change Want.
	Release struct {
		At time.Time
		ID yarn.ContainerID
	}
	// Tick looks at the deadlines.
	Tick struct{ At time.Time }
)

func (Want) event()        {}
func (Recovered) event()   {}
func (Beat) event()        {}
func (Answer) event()      {}
func (Ends) event()        {}
func (AnswerLost) event()  {}
func (Resync) event()      {}
func (Started) event()     {}
func (StartFailed) event() {}
func (Registered) event()  {}
func (Release) event()     {}
func (Tick) event()        {}

// Ask is one entry of an allocate call: the absolute number of containers of a bucket that shall be open.
type Ask struct {
	Spec      Spec
	Priority  int32
	RequestID int64
	Count     int
}

// Effect is an output of Step, to be carried out in order.
type Effect interface{ effect() }

type (
	// Allocate is the content of the next allocate call.
	Allocate struct {
		Asks     []Ask
		Releases []yarn.ContainerID
		// Exclude are hosts to leave out from now on, Include those to use again.
		Exclude, Include []string
	}
	// Start launches a TaskManager in the container.
	Start struct {
		Container Container
		Spec      Spec
	}
	// Stop asks the container's NodeManager to end it now; the release through the ResourceManager follows by itself.
	Stop struct{ Container Container }
	// Ended says that a container that was started or recovered is gone.
	Ended struct {
		Container  Container
		Registered bool // its TaskManager had registered
		Cause      Cause
		Exit       int32
		Detail     string // diagnostics, or what went wrong with the start
	}
	// Leaving says that the container will be taken away. Until is the time of it, zero when nobody knows.
	Leaving struct {
		Container Container
		Until     time.Time
		Why       string
	}
	// Staying takes a Leaving back.
	Staying struct{ Container Container }
	// Excluded says that a host is left out for a while, since too many starts failed there.
	Excluded struct {
		Host     string
		Until    time.Time
		Failures int
		Last     Ended
	}
	// Included says that it is used again.
	Included struct{ Host, Why string }
	// BeatNow says that something waits for the next allocate call.
	BeatNow struct{}
	// Paused says that asks wait until then, since too many starts failed.
	Paused struct {
		Until    time.Time
		Failures int // in the last minute
	}
	// Failed says that too many starts failed in a row: the application ends. It is given once.
	Failed struct {
		Failures int
		Last     Ended
	}
)

func (Allocate) effect() {}
func (Start) effect()    {}
func (Stop) effect()     {}
func (Ended) effect()    {}
func (Leaving) effect()  {}
func (Staying) effect()  {}
func (Excluded) effect() {}
func (Included) effect() {}
func (BeatNow) effect()  {}
func (Paused) effect()   {}
func (Failed) effect()   {}
