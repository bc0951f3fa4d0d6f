package network

import (
	"fmt"

	"github.com/thalweg/thalweg/runtime/graph"
)

// PartitionID names one output of one execution attempt.
type PartitionID struct {
	Producer graph.ExecutionID
	Output   int
}

func (id PartitionID) String() string { return fmt.Sprintf("%s#%d", id.Producer, id.Output) }

// EventKind is the kind of an Event; zero means none.
type EventKind uint8

const (
	// Barrier is a checkpoint barrier.
	Barrier EventKind = iota + 1
	// EndOfData says that no records follow; a barrier may.
	EndOfData
	// EndOfPartition is the last thing in a channel.
	EndOfPartition
)

func (k EventKind) String() string {
	switch k {
	case 0:
		return "none"
	case Barrier:
		return "Barrier"
	case EndOfData:
		return "EndOfData"
	case EndOfPartition:
		return "EndOfPartition"
	}
	return fmt.Sprintf("EventKind(%d)", uint8(k))
}

// Options of a barrier that the exchange itself looks at; the other bits are the caller's.
const (
	// Urgent lets a barrier overtake the data and events that wait in its channel, at the producer and at the consumer.
	Urgent uint8 = 1 << 7
	// MayTurn is of a barrier that may become Urgent on its way (Partition.Hasten, Gate.Hasten). The consumer is told when it arrives.
	MayTurn uint8 = 1 << 6
)

// Event is a control element. It keeps its place among the buffers of its channel and needs no credit.
type Event struct {
	Kind       EventKind
	Checkpoint int64 // id of the checkpoint, for Barrier
	Timestamp  int64 // ms since 1970, for Barrier
	Options    uint8 // bit flags of the caller
	// Extra is opaque and small (at most 1 MiB). It is shared by all receivers within the process: do not change it.
	Extra []byte

	overtook int // of an Urgent one in the queue of a remote channel: the data buffers behind it that were there before it
}

func (e *Event) urgent() bool { return e.Options&Urgent != 0 }

// turned is the event as an Urgent one.
func (e *Event) turned() *Event {
	u := *e
	u.Options = u.Options&^MayTurn | Urgent
	return &u
}

// turnable reports whether it is the barrier of a checkpoint that may become Urgent.
func (e *Event) turnable(checkpoint int64) bool {
	return e != nil && e.Kind == Barrier && e.Checkpoint == checkpoint && e.Options&MayTurn != 0
}
