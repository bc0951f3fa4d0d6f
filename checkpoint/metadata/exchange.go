package metadata

import (
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/state"
)

// Exchange is what was under way on one edge between operators of different tasks.
type Exchange struct {
	From  graph.OperatorID
	Tag   string // of From's side output; "" for its main one
	To    graph.OperatorID
	Input int // of To
	Nth   int // counts the edges that are alike in all of the above, from 0
	// Type names the type of the records with a hash of its schema: who reads them must have the same.
	Type                 string
	Producers, Consumers int // parallelisms
	// Parts are in the order in which they are to be read: by rank, producer and consumer, what had reached the consumer before what
	// waited at the producer.
	Parts []Part
}

// Part is what was under way from one subtask to another.
type Part struct {
	Producer, Consumer int
	Sent               bool // it had left the producer, and is to be read before what had not
	// Rank is 0 for what the producer had sent itself. What the consumer had been restored with, and not read yet, is older than all of
	// that, whichever channel it was put into: it counts from 1, by consumer, and is to be read first, in this order.
	Rank    int
	Segment Segment
}

// Segment is a piece of a file: whole elements of an exchange buffer, back to back.
type Segment struct {
	File           state.FileRef
	Offset, Length int64  // bytes
	CRC32C         uint32 // of the piece
}

// Sift says which records of a restored piece are for the subtask that gets it.
type Sift uint8

const (
	SiftNone   Sift = iota // all
	SiftKeys               // those of its key groups
	SiftChosen             // those for which the edge's partition function chooses it
)

// InFlight is what was under way in one channel of a task.
type InFlight struct {
	Sent    bool // of the input Index of the vertex, else of the output Index; restored state is all of inputs, in order
	Rank    int  // Part.Rank, of what a task reports
	Index   int
	Channel int // of the input: subtask of the producer as long as all are connected; of the output: subtask of the consumer
	Type    string
	Sift    Sift // restored state
	Segment Segment
}
