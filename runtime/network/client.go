package network

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// clientConn is the consumer's end of a connection. It is dialed when the first channel to an address is wanted and closed when none is left.
type clientConn struct {
	env  *Environment
	addr string
	log  zerolog.Logger
	kick chan struct{} // capacity 1: something is to be written, or the connection ends
	stop context.CancelFunc

	mu       sync.Mutex
	conn     net.Conn // nil until dialed
	channels map[uint32]*remoteChannel
	lastID   uint32
	out      []byte   // encoded requests and cancels to write
	credits  []credit // to write
	done     bool     // no channel is left: write what is there, then close
	err      error    // sticky: the connection ended
}

// remoteChannel is an input channel's place in its connection.
type remoteChannel struct {
	id uint32
	ch *inputChannel
}

// connectRemote requests ch over the connection to its address.
func (e *Environment) connectRemote(ch *inputChannel) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return fmt.Errorf("network: connect to %s: %w", ch.source.Address, ErrClosed)
	}
	c := e.conns[ch.source.Address]
	if c == nil || !c.add(ch) {
		ctx, stop := context.WithCancel(e.ctx)
		c = &clientConn{
			env: e, addr: ch.source.Address, kick: make(chan struct{}, 1), stop: stop, channels: map[uint32]*remoteChannel{},
			log: e.log.With().Str("peer", ch.source.Address).Logger(),
		}
		c.add(ch)
		e.conns[c.addr] = c
		e.wg.Add(1)
		go c.run(ctx)
	}
	return nil
}

// add enters ch and its request. It returns false when the connection is at its end.
func (c *clientConn) add(ch *inputChannel) bool {
	c.mu.Lock()
	if c.err != nil || c.done {
		c.mu.Unlock()
		return false
	}
	c.lastID++
	rc := &remoteChannel{id: c.lastID, ch: ch}
	n := c.env.cfg.BuffersPerChannel
	c.channels[rc.id] = rc
	c.out = appendRequest(c.out, rc.id, request{id: ch.source.Partition, sub: ch.source.Subpartition, credit: n})
	ch.gate.mu.Lock()
	ch.conn, ch.connID, ch.granted = c, rc.id, n
	ch.gate.mu.Unlock()
	c.mu.Unlock()
	c.wake()
	return true
}

func (c *clientConn) wake() {
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

// credit sends n credits for the channel.
func (c *clientConn) credit(id uint32, n int) {
	c.mu.Lock()
	c.credits = append(c.credits, credit{channel: id, n: n})
	first := len(c.credits) == 1
	c.mu.Unlock()
	if first {
		c.wake()
	}
}

// remove forgets a channel, and ends the connection behind the last one.
func (c *clientConn) remove(id uint32, cancel bool) {
	e := c.env
	e.mu.Lock()
	c.mu.Lock()
	if _, ok := c.channels[id]; ok {
		delete(c.channels, id)
		if cancel {
			c.out = appendHeader(c.out, header{kind: frameCancel, channel: id})
		}
		if len(c.channels) == 0 {
			c.done = true
			if e.conns[c.addr] == c {
				delete(e.conns, c.addr)
			}
		}
	}
	dialing := c.done && c.conn == nil
	c.mu.Unlock()
	e.mu.Unlock()
	if dialing {
		c.stop()
	}
	c.wake()
}

// close ends the connection and fails the channels that are left. The first error stays.
func (c *clientConn) close(err error) { c.fail(ConnectionLost, err) }

func (c *clientConn) fail(kind FailureKind, err error) {
	c.env.mu.Lock()
	if c.env.conns[c.addr] == c {
		delete(c.env.conns, c.addr)
	}
	c.env.mu.Unlock()
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = err
	channels, conn := c.channels, c.conn
	c.channels = nil
	c.mu.Unlock()
	c.stop()
	if conn != nil {
		_ = conn.Close()
	}
	for _, rc := range channels {
		rc.ch.failed(&ConnectionError{
			Kind: kind, Peer: c.addr, Partition: rc.ch.source.Partition, Subpartition: rc.ch.source.Subpartition, Err: err,
		})
	}
	if len(channels) > 0 {
		c.log.Info().Err(err).Int("channels", len(channels)).Msg("data connection ended with channels in use")
	} else {
		c.log.Debug().Err(err).Msg("data connection closed")
	}
	c.wake()
}

// run dials, reads in a second goroutine, and writes.
func (c *clientConn) run(ctx context.Context) {
	defer c.env.wg.Done()
	defer c.stop()
	d := net.Dialer{Timeout: c.env.cfg.ConnectTimeout, KeepAlive: -1}
	conn, err := d.DialContext(ctx, "tcp", c.addr)
	if err != nil {
		c.fail(ConnectFailed, err)
		return
	}
	c.mu.Lock()
	c.conn = conn
	ended := c.err != nil
	c.mu.Unlock()
	if ended {
		_ = conn.Close()
		return
	}
	c.env.attend(conn)
	br := bufio.NewReaderSize(conn, readAhead)
	_ = conn.SetDeadline(time.Now().Add(c.env.cfg.ConnectTimeout))
	if err := c.env.greet(conn, br); err != nil {
		c.fail(ConnectFailed, fmt.Errorf("handshake: %w", err))
		return
	}
	_ = conn.SetDeadline(time.Time{})
	var reader sync.WaitGroup
	reader.Add(1)
	go func() {
		defer reader.Done()
		kind, err := c.readLoop(br)
		c.fail(kind, err)
	}()
	c.fail(ConnectionLost, c.writeLoop(conn))
	reader.Wait()
}

var errNoChannels = errors.New("no channel is left")

func (c *clientConn) writeLoop(conn net.Conn) error {
	var b []byte
	for {
		c.mu.Lock()
		if c.err != nil {
			c.mu.Unlock()
			return c.err
		}
		b = append(b[:0], c.out...)
		b = appendCredits(b, c.credits)
		c.out, c.credits = c.out[:0], c.credits[:0]
		done := c.done
		c.mu.Unlock()
		if len(b) > 0 {
			if _, err := conn.Write(b); err != nil {
				return err
			}
		}
		if done {
			return errNoChannels
		}
		<-c.kick
	}
}

func (c *clientConn) channel(id uint32) *inputChannel {
	c.mu.Lock()
	defer c.mu.Unlock()
	if rc := c.channels[id]; rc != nil {
		return rc.ch
	}
	return nil
}

func (c *clientConn) readLoop(br *bufio.Reader) (FailureKind, error) {
	var hb [headerSize]byte
	var small []byte
	for {
		if _, err := io.ReadFull(br, hb[:]); err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("the peer closed the connection")
			}
			return ConnectionLost, err
		}
		h, err := decodeHeader(&hb, c.env.cfg.MaxFrame)
		if err != nil {
			return ProtocolViolation, err
		}
		ch := c.channel(h.channel) // nil: cancelled meanwhile
		if h.kind == frameData {
			if ch == nil {
				if _, err := br.Discard(h.length); err != nil {
					return ConnectionLost, err
				}
				continue
			}
			buf := ch.gate.buffer(h.length)
			if _, err := io.ReadFull(br, buf); err != nil {
				return ConnectionLost, err
			}
			if err := ch.receive(buf, h.backlog); err != nil {
				return ProtocolViolation, err
			}
			continue
		}
		if cap(small) < h.length {
			small = make([]byte, h.length)
		}
		small = small[:h.length]
		if _, err := io.ReadFull(br, small); err != nil {
			return ConnectionLost, err
		}
		switch h.kind {
		case frameEvent:
			ev, err := decodeEvent(small)
			if err != nil {
				return ProtocolViolation, err
			}
			if ch != nil {
				ch.receiveEvent(ev)
				if ev.Kind == EndOfPartition {
					c.remove(h.channel, false)
				}
			}
		case frameFail:
			kind, err := decodeFail(small)
			if h.channel == 0 {
				return kind, err
			}
			if ch != nil {
				c.remove(h.channel, false)
				ch.failed(&ConnectionError{
					Kind: kind, Peer: c.addr, Partition: ch.source.Partition, Subpartition: ch.source.Subpartition, Err: err,
				})
			}
		default:
			return ProtocolViolation, fmt.Errorf("frame of kind %d from a producer", h.kind)
		}
	}
}

// buffer returns memory for n bytes that arrive.
func (g *Gate) buffer(n int) []byte {
	if n <= g.env.cfg.BufferSize && g.recycle.Load() {
		return g.env.pool.get()[:n]
	}
	return make([]byte, n)
}

// receive queues data that arrived.
func (ch *inputChannel) receive(data []byte, backlog int) error {
	g := ch.gate
	g.bytesIn.Add(int64(len(data)))
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return nil
	}
	if ch.granted == 0 || ch.ended {
		g.mu.Unlock()
		return fmt.Errorf("data for %s/%d without credit", ch.source.Partition, ch.source.Subpartition)
	}
	ch.granted--
	ch.backlog = backlog
	lend := max(0, min(backlog-ch.granted, g.floating))
	g.floating -= lend
	ch.extra += lend
	ch.granted += lend
	wake := ch.pushLocked(entry{data: data})
	conn, id := ch.conn, ch.connID
	g.mu.Unlock()
	if wake {
		g.notify()
	}
	if lend > 0 {
		conn.credit(id, lend)
	}
	return nil
}

func (ch *inputChannel) receiveEvent(ev *Event) {
	g := ch.gate
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return
	}
	if ev.Kind == EndOfPartition {
		ch.ended = true
		g.floating += ch.extra
		ch.extra = 0
	}
	var wake bool
	if ev.urgent() {
		ch.overtake(ev, ch.queue.len())
		wake, g.idle = g.idle, false
	} else {
		wake = ch.pushLocked(entry{event: ev})
	}
	g.mu.Unlock()
	switch {
	case ev.urgent() && g.opts.Attention != nil:
		g.opts.Attention()
	case ev.Options&MayTurn != 0 && g.opts.Announce != nil:
		g.opts.Announce(*ev)
	}
	if wake {
		g.notify()
	}
}

// pushLocked queues e. It returns whether to call notify.
func (ch *inputChannel) pushLocked(e entry) (wake bool) {
	g := ch.gate
	ch.queue.push(e)
	if ch.queue.len() > 1 {
		return false // ready, parked, or about to be polled again
	}
	g.readyLocked(ch)
	if ch.blocked {
		return false
	}
	wake, g.idle = g.idle, false
	return wake
}
