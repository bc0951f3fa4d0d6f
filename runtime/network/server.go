package network

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"github.com/thalweg/thalweg/internal/failpoint"
)

const (
	// A write takes frames until it has one of these; more would only delay the first.
	batchBytes  = 128 << 10
	batchFrames = 64
	maxStreams  = 1 << 20
	// readAhead is the size of the buffer in front of a socket. It holds headers and small frames; most of a large payload is read past it.
	readAhead = 4 << 10
)

// serverConn is the producer's end of a connection: it serves the channels that a consumer's worker requested. Its two goroutines end when
// the connection does.
type serverConn struct {
	env  *Environment
	conn net.Conn
	peer string
	log  zerolog.Logger
	kick chan struct{} // capacity 1: ready is not empty, or closed

	mu      sync.Mutex
	streams map[uint32]*stream
	ready   fifo[*stream]
	idle    bool // writeLoop waits for kick
	closed  bool
	err     error
}

// stream is one channel of a serverConn, the reader of a Channel.
type stream struct {
	conn *serverConn
	id   uint32
	req  request

	// Guarded by conn.mu.
	channel *Channel // nil until the partition is registered
	credits int
	inReady bool
	starved bool // has data and no credit
	fail    *ConnectionError
}

func (e *Environment) acceptLoop(l net.Listener) {
	defer e.wg.Done()
	for {
		c, err := l.Accept()
		if err != nil {
			if e.ctx.Err() != nil {
				return
			}
			// Out of descriptors, most likely: others may close some.
			e.log.Warn().Err(err).Msg("cannot accept a data connection, trying again")
			select {
			case <-time.After(50 * time.Millisecond):
				continue
			case <-e.ctx.Done():
				return
			}
		}
		s := &serverConn{
			env: e, conn: c, peer: c.RemoteAddr().String(), kick: make(chan struct{}, 1), streams: map[uint32]*stream{},
		}
		s.log = e.log.With().Str("peer", s.peer).Logger()
		e.mu.Lock()
		if e.closed {
			e.mu.Unlock()
			_ = c.Close()
			continue
		}
		e.servers[s] = struct{}{}
		e.wg.Add(1)
		e.mu.Unlock()
		go s.run()
	}
}

func (s *serverConn) run() {
	defer s.env.wg.Done()
	defer func() {
		s.env.mu.Lock()
		delete(s.env.servers, s)
		s.env.mu.Unlock()
	}()
	br := bufio.NewReaderSize(s.conn, readAhead)
	s.env.attend(s.conn)
	_ = s.conn.SetDeadline(time.Now().Add(s.env.cfg.ConnectTimeout))
	if err := s.env.welcome(s.conn, br); err != nil {
		s.log.Warn().Err(err).Msg("data connection refused")
		_, _ = s.conn.Write(appendFail(nil, 0, ConnectFailed, err.Error()))
		s.close(err)
		return
	}
	_ = s.conn.SetDeadline(time.Time{})
	s.log.Debug().Msg("data connection accepted")
	var writer sync.WaitGroup
	writer.Add(1)
	go func() {
		defer writer.Done()
		s.writeLoop()
	}()
	s.close(s.readLoop(br))
	writer.Wait()
}

// close ends the connection and all its channels. The first error stays.
func (s *serverConn) close(err error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.closed, s.err = true, err
	streams := s.streams
	s.streams = nil
	s.mu.Unlock()
	_ = s.conn.Close()
	for _, st := range streams {
		st.detach(ConnectionLost, err)
	}
	if len(streams) > 0 {
		s.log.Info().Err(err).Int("channels", len(streams)).Msg("data connection ended with channels in use")
	} else {
		s.log.Debug().Err(err).Msg("data connection closed")
	}
	s.wake()
}

func (s *serverConn) wake() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// detach ends the stream's use of its channel, or its wait for one.
func (st *stream) detach(kind FailureKind, err error) {
	st.conn.env.forget(st.req.id, st)
	st.conn.mu.Lock()
	c := st.channel
	st.conn.mu.Unlock()
	if c != nil {
		c.consumerGone(st, &ConnectionError{Kind: kind, Peer: st.conn.peer, Partition: st.req.id, Subpartition: st.req.sub, Err: err})
	}
}

func (s *serverConn) readLoop(br *bufio.Reader) error {
	var hb [headerSize]byte
	var payload []byte
	for {
		if _, err := io.ReadFull(br, hb[:]); err != nil {
			if errors.Is(err, io.EOF) {
				return errors.New("the peer closed the connection")
			}
			return err
		}
		h, err := decodeHeader(&hb, 0)
		if err != nil {
			return err
		}
		if cap(payload) < h.length {
			payload = make([]byte, h.length)
		}
		payload = payload[:h.length]
		if _, err := io.ReadFull(br, payload); err != nil {
			return err
		}
		switch h.kind {
		case frameRequest:
			err = s.onRequest(h.channel, payload)
		case frameCredit:
			err = decodeCredits(payload, s.onCredit)
		case frameCancel:
			s.mu.Lock()
			st := s.streams[h.channel]
			delete(s.streams, h.channel)
			s.mu.Unlock()
			if st != nil {
				st.detach(ConsumerGone, nil)
			}
		default:
			err = fmt.Errorf("frame of kind %d from a consumer", h.kind)
		}
		if err != nil {
			return err
		}
	}
}

func (s *serverConn) onRequest(channel uint32, payload []byte) error {
	r, err := decodeRequest(payload)
	if err != nil {
		return err
	}
	st := &stream{conn: s, id: channel, req: r, credits: r.credit}
	s.mu.Lock()
	if s.streams[channel] != nil || channel == 0 || len(s.streams) >= maxStreams {
		s.mu.Unlock()
		return fmt.Errorf("request on channel %d, which is in use or out of bounds", channel)
	}
	if s.closed {
		s.mu.Unlock()
		return s.err
	}
	s.streams[channel] = st
	s.mu.Unlock()
	s.env.request(&waiter{id: r.id, sub: r.sub, reader: st, peer: s.peer, bind: func(c *Channel) {
		s.mu.Lock()
		st.channel = c
		s.mu.Unlock()
	}})
	s.mu.Lock()
	closed, cause := s.closed, s.err
	s.mu.Unlock()
	if closed {
		st.detach(ConnectionLost, cause) // close may have looked before the request was entered
	}
	return nil
}

func (s *serverConn) onCredit(c credit) {
	s.mu.Lock()
	wake := false
	if st := s.streams[c.channel]; st != nil { // a channel that ended takes no credit
		st.credits += c.n
		if st.starved {
			st.starved = false
			wake = st.readyLocked()
		}
	}
	s.mu.Unlock()
	if wake {
		s.wake()
	}
}

func (st *stream) readyLocked() (wake bool) {
	s := st.conn
	if !st.inReady {
		st.inReady = true
		s.ready.push(st)
	}
	wake, s.idle = s.idle, false
	return wake
}

// readable implements reader.
func (st *stream) readable() bool {
	st.conn.mu.Lock()
	defer st.conn.mu.Unlock()
	return st.readyLocked()
}

func (st *stream) wake() { st.conn.wake() }

// failed implements reader: the consumer is told.
func (st *stream) failed(err *ConnectionError) {
	st.conn.mu.Lock()
	st.fail = err
	wake := st.readyLocked()
	st.conn.mu.Unlock()
	if wake {
		st.conn.wake()
	}
}

// batch is what one write sends.
type batch struct {
	scratch []byte   // headers and events
	vec     [][]byte // what is written, in order
	data    [][]byte // the data buffers in vec, to be used again
	bytes   int
}

func (b *batch) reset() {
	clear(b.vec)
	clear(b.data)
	b.scratch, b.vec, b.data, b.bytes = b.scratch[:0], b.vec[:0], b.data[:0], 0
}

// control adds what f appends.
func (b *batch) control(f func([]byte) []byte) {
	n := len(b.scratch)
	b.scratch = f(b.scratch)
	b.vec = append(b.vec, b.scratch[n:])
	b.bytes += len(b.scratch) - n
}

func (b *batch) full() bool { return b.bytes >= batchBytes || len(b.vec) >= 2*batchFrames }

func (s *serverConn) writeLoop() {
	var b batch
	var out net.Buffers // WriteTo eats it
	for {
		if !s.fill(&b) {
			return
		}
		if err := failpoint.Error("network/send"); err != nil {
			s.close(err)
			return
		}
		out = b.vec
		if _, err := out.WriteTo(s.conn); err != nil {
			s.close(err)
			return
		}
		for _, d := range b.data {
			s.env.pool.put(d)
		}
		b.reset()
	}
}

// fill waits for something to send and takes it from the ready streams in turn. It returns false when the connection is closed.
func (s *serverConn) fill(b *batch) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if s.closed {
			return false
		}
		if s.ready.len() == 0 {
			if len(b.vec) > 0 {
				return true
			}
			s.idle = true
			s.mu.Unlock()
			<-s.kick
			s.mu.Lock()
			continue
		}
		if b.full() {
			return true
		}
		s.next(b)
	}
}

// next adds the next frame of the first ready stream. s.mu is held, and is free while the channel's queue is used.
func (s *serverConn) next(b *batch) {
	st := s.ready.pop()
	st.inReady = false
	if s.streams[st.id] != st {
		return // cancelled
	}
	if st.fail != nil {
		delete(s.streams, st.id)
		text := ""
		if st.fail.Err != nil {
			text = st.fail.Err.Error()
		}
		b.control(func(p []byte) []byte { return appendFail(p, st.id, st.fail.Kind, text) })
		return
	}
	c, credits := st.channel, st.credits
	s.mu.Unlock()
	e, backlog, more, ok := c.take(credits > 0)
	switch {
	case !ok:
	case e.data != nil:
		n := len(b.scratch)
		b.scratch = appendHeader(b.scratch, header{length: len(e.data), kind: frameData, backlog: backlog, channel: st.id})
		b.vec = append(b.vec, b.scratch[n:], e.data)
		b.data = append(b.data, e.data)
		b.bytes += headerSize + len(e.data)
	default:
		b.control(func(p []byte) []byte { return appendEvent(p, st.id, e.event) })
	}
	s.mu.Lock()
	switch {
	case !ok && more:
		if st.credits > 0 {
			st.readyLocked()
		} else {
			st.starved = true
		}
	case ok && e.data != nil:
		st.credits--
		if more {
			st.readyLocked()
		}
	case ok && e.event.Kind == EndOfPartition:
		delete(s.streams, st.id)
	case more:
		st.readyLocked()
	}
}
