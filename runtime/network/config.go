package network

import "time"

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
	// PeerTimeout is how long the other end of a connection may acknowledge nothing, or be silent when there is nothing to say, before the
	// connection counts as lost; default 10 s.
	PeerTimeout time.Duration
	// PartitionTimeout is how long a consumer waits for a producer to register its partition; default 30 s.
	PartitionTimeout time.Duration
	// MaxFrame bounds one buffer, hence one record, in bytes; default 64 MiB. Both sides of a connection need the same value.
	MaxFrame int
	// Token is the secret of the job. Both ends of a connection prove to know it before anything else is exchanged; it does not
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
	if c.PeerTimeout <= 0 {
		c.PeerTimeout = 10 * time.Second
	}
	if c.PartitionTimeout <= 0 {
		c.PartitionTimeout = 30 * time.Second
	}
	c.MaxFrame = max(c.MaxFrame, c.BufferSize)
	return c
}
