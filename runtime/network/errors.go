package network

import (
	"errors"
	"fmt"
)

// ErrClosed is what is returned by operations on an Environment, Partition or Gate that was closed.
var ErrClosed = errors.New("network: closed")

// FailureKind says what became of a channel.
type FailureKind uint8

const (
	// ConnectFailed means that the producer's worker could not be reached, or refused the handshake.
	ConnectFailed FailureKind = iota + 1
	// ConnectionLost means that the connection ended while the channel was in use: the peer's process or host is gone, or the network is.
	ConnectionLost
	// PartitionNotFound means that the producer did not register the partition within Config.PartitionTimeout.
	PartitionNotFound
	// ProducerGone means that the producing task ended before EndOfPartition.
	ProducerGone
	// ConsumerGone means that the consuming task ended before it read EndOfPartition.
	ConsumerGone
	// ProtocolViolation means that the peer sent what it must not; a bug or another version.
	ProtocolViolation
	// PartitionLost means that a finished partition cannot be read from its file any more, though the worker that holds it lives.
	PartitionLost
)

func (k FailureKind) String() string {
	switch k {
	case ConnectFailed:
		return "connect failed"
	case ConnectionLost:
		return "connection lost"
	case PartitionNotFound:
		return "partition not found in time"
	case ProducerGone:
		return "producer ended early"
	case ConsumerGone:
		return "consumer ended early"
	case ProtocolViolation:
		return "protocol violation"
	case PartitionLost:
		return "partition cannot be read"
	}
	return fmt.Sprintf("failure %d", uint8(k))
}

// ConnectionError is the failure of one channel that was not caused by user code on this side. It is a consequence of another
// task's or worker's end most of the time, so a JobMaster should look for that one's error first.
type ConnectionError struct {
	Kind FailureKind
	// Peer is the remote address, or "local" within one process.
	Peer string
	// Partition and Subpartition name the channel. Partition.Producer is the producing execution.
	Partition    PartitionID
	Subpartition int
	// Err is the cause, may be nil.
	Err error
}

func (e *ConnectionError) Error() string {
	s := fmt.Sprintf("network: channel %s/%d via %s: %s", e.Partition, e.Subpartition, e.Peer, e.Kind)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the cause.
func (e *ConnectionError) Unwrap() error { return e.Err }
