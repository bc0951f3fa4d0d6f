package network

import (
	"errors"
	"fmt"
	"time"
)

// Config sizes the exchange. The zero value means the defaults given here.
type Config struct {
	// BufferSize is the soft limit of one data buffer in bytes, default 32 KiB: a buffer is handed over when it comes near. A record that
	// is larger makes a larger buffer.
	BufferSize int
	// BuffersPerChannel is how many data buffers each channel may have under way to its consumer, and as many again wait at the
	// producer; default 2.
	BuffersPerChannel int
	// FloatingPerGate is how many further buffers a gate lends to those of its remote channels that have a backlog; default 8.
	// Negative means none.
	FloatingPerGate int
	// ConnectTimeout bounds the dial and the handshake of a connection; default 10 s.
	ConnectTimeout time.Duration
	// PartitionTimeout is how long a consumer waits for a producer to register its partition; default 30 s.
	PartitionTimeout time.Duration
	// MaxFrame bounds one buffer, hence one record, in bytes; default 64 MiB. Both sides of a connection need the same value.
	MaxFrame int
	// Token is the secret of the application. Both ends of a connection prove to know it before anything else is exchanged; it does not
	// travel itself. Empty: every peer with an empty token is accepted.
	Token []byte
}

// maxEventExtra bounds Event.Extra so that an event always fits a frame, and a broken peer cannot make us hold much.
const maxEventExtra = 1 << 20

func (c Config) withDefaults() Config {
	def := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	def(&c.BufferSize, 32<<10)
	def(&c.BuffersPerChannel, 2)
	def(&c.MaxFrame, 64<<20)
	switch {
	case c.FloatingPerGate == 0:
		c.FloatingPerGate = 8
	case c.FloatingPerGate < 0:
		c.FloatingPerGate = 0
	}
	if c.ConnectTimeout <= 0 {
		c.ConnectTimeout = 10 * time.Second
	}
	if c.PartitionTimeout <= 0 {
		c.PartitionTimeout = 30 * time.Second
	}
	c.MaxFrame = max(c.MaxFrame, c.BufferSize)
	return c
}

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
