package rpc

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"google.golang.org/protobuf/proto"
)

// Frames on a socket: the length of a message (4 bytes, big endian), then its protobuf encoding. A length of endOfLink, with nothing behind it,
// says that its sender closed the link in order; a connection that ends without it broke.
const (
	frameHeader = 4
	endOfLink   = ^uint32(0)
)

// DialSocket opens a link over the Unix socket at path, which ServeSocket serves. ctx bounds the opening only.
func DialSocket[S, R proto.Message](ctx context.Context, path string) (Link[S, R], error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("rpc: connect %s: %w", path, err)
	}
	return NewLink(socketTransport[S, R](conn)), nil
}

// SocketServer serves links over a Unix socket, to processes of this user: the socket is in a private folder.
type SocketServer struct {
	ln net.Listener
	wg sync.WaitGroup

	mu     sync.Mutex
	links  map[interface{ Close(error) }]struct{}
	closed bool
}

// ServeSocket makes a Unix socket at path and serves it until Close. handle is called for each connection, on a goroutine of its own; it owns
// the link, and may return before the link ends. A socket that fails shows as a peer that does not connect.
func ServeSocket[S, R proto.Message](path string, handle func(Link[S, R])) (*SocketServer, error) {
	ln, err := net.Listen("unix", path) //nolint:noctx // does not wait
	if err != nil {
		return nil, fmt.Errorf("rpc: listen on %s: %w", path, err)
	}
	s := &SocketServer{ln: ln, links: map[interface{ Close(error) }]struct{}{}}
	s.wg.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			link := NewLink(socketTransport[S, R](conn))
			if !s.track(link) {
				link.Close(errors.New("rpc: server closed"))
				<-link.Done()
				return
			}
			s.wg.Go(func() {
				handle(link)
				<-link.Done()
				s.mu.Lock()
				delete(s.links, link)
				s.mu.Unlock()
			})
		}
	})
	return s, nil
}

func (s *SocketServer) track(l interface{ Close(error) }) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.links[l] = struct{}{}
	return true
}

// Close stops listening, ends all links in order and waits for them (at most two seconds each).
func (s *SocketServer) Close() {
	s.mu.Lock()
	s.closed = true
	for l := range s.links {
		l.Close(nil)
	}
	s.mu.Unlock()
	_ = s.ln.Close() // nothing is lost with it
	s.wg.Wait()
}

func socketTransport[S, R proto.Message](conn net.Conn) Transport[S, R] {
	c := &socketConn{conn: conn, in: bufio.NewReaderSize(conn, 32<<10)}
	var zero R
	kind := zero.ProtoReflect().Type()
	return Transport[S, R]{
		Send: func(m S) error { return c.send(m) },
		Recv: func() (R, error) {
			m := kind.New().Interface()
			if err := c.recv(m); err != nil {
				return zero, err
			}
			return m.(R), nil //nolint:forcetypeassert // of R's type
		},
		CloseSend: func() error {
			_, err := conn.Write(binary.BigEndian.AppendUint32(nil, endOfLink))
			return err
		},
		Cut: func() { _ = conn.Close() }, // it may be closed already
	}
}

// socketConn is one end of a connection.
type socketConn struct {
	conn net.Conn
	in   *bufio.Reader
	out  []byte // of send
}

func (c *socketConn) send(m proto.Message) error {
	b, err := proto.MarshalOptions{}.MarshalAppend(append(c.out[:0], make([]byte, frameHeader)...), m)
	if err != nil {
		b, err = proto.MarshalOptions{}.MarshalAppend(append(c.out[:0], make([]byte, frameHeader)...), ValidText(m))
	}
	if err != nil {
		return fmt.Errorf("rpc: encode %s: %w", m.ProtoReflect().Descriptor().Name(), err)
	}
	n := len(b) - frameHeader
	if n > MaxMessageBytes {
		return fmt.Errorf("rpc: a message %s has %d bytes, at most %d are possible", m.ProtoReflect().Descriptor().Name(), n, MaxMessageBytes)
	}
	binary.BigEndian.PutUint32(b, uint32(n))
	if _, err := c.conn.Write(b); err != nil {
		return io.EOF // what was read says whether it was closed in order
	}
	if c.out = b; cap(b) > 64<<10 { // an occasional large one
		c.out = nil
	}
	return nil
}

func (c *socketConn) recv(m proto.Message) error {
	var head [frameHeader]byte
	if _, err := io.ReadFull(c.in, head[:]); err != nil {
		return ErrBroken // the process at the other end is gone, or it cut the link
	}
	n := binary.BigEndian.Uint32(head[:])
	switch {
	case n == endOfLink:
		return io.EOF
	case n > MaxMessageBytes:
		return fmt.Errorf("%w: a message of %d bytes, at most %d are possible", ErrBroken, n, MaxMessageBytes)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(c.in, b); err != nil {
		return ErrBroken
	}
	if err := proto.Unmarshal(b, m); err != nil {
		return fmt.Errorf("rpc: decode %s: %w", m.ProtoReflect().Descriptor().Name(), err)
	}
	return nil
}
