package sasl

import (
	"bufio"
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"

	"github.com/thalweg/thalweg/fs/hdfs/hdfspb"
)

// maxSealed bounds a message of the DataNode, which makes one of each packet, whatever its client would take at once: at most
// PacketReceiver.MAX_PACKET_SIZE and its header.
const maxSealed = 17 << 20

// Layer is the protection of single messages that DIGEST-MD5 has negotiated. Wrap and Unwrap may run at the same time, each in one goroutine.
type Layer interface {
	Limit() int // bytes that the other side takes at once
	Wrap(plain []byte) ([]byte, error)
	Unwrap(wrapped []byte) ([]byte, error)
}

// WriteBoth writes head and data, which follow each other on the stream, with as few writes to the network as the connection allows.
func WriteBoth(nc net.Conn, head, data []byte) error {
	switch c := nc.(type) {
	case *sealed:
		c.plain = append(append(c.plain[:0], head...), data...)
		_, err := c.Write(c.plain)
		return err
	case *ctr:
		return c.write(head, data)
	}
	parts := net.Buffers{head, data}
	_, err := parts.WriteTo(nc)
	return err
}

// sealed carries the stream in messages of DIGEST-MD5.
type sealed struct {
	net.Conn
	w Layer

	r     *bufio.Reader
	token []byte // the message that was read
	rest  []byte // of its content, not yet returned
	rerr  error  // why nothing can be read any more

	plain []byte // scratch of WriteBoth
	out   []byte
}

func newSealed(nc net.Conn, w Layer) *sealed {
	return &sealed{Conn: nc, w: w, r: bufio.NewReaderSize(nc, 128<<10)}
}

// Read returns some bytes of the plain stream.
func (c *sealed) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	for len(c.rest) == 0 { // a message may be empty
		if c.rerr != nil {
			return 0, c.rerr
		}
		if err := c.next(); err != nil {
			var ne net.Error
			if !errors.As(err, &ne) || !ne.Timeout() {
				c.rerr = err
			}
			return 0, err
		}
	}
	n := copy(b, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// next reads and opens one message. A deadline that passes before a message has begun to arrive loses nothing.
func (c *sealed) next() error {
	head, err := c.r.Peek(4)
	if err != nil {
		if len(head) > 0 && errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	size := int(binary.BigEndian.Uint32(head))
	if size > maxSealed {
		return fmt.Errorf("%w: a protected message of %d bytes", ErrMalformed, size)
	}
	_, _ = c.r.Discard(4)
	c.token = c.token[:0]
	for len(c.token) < size { // room is made as data comes, not as a length claims
		at := len(c.token)
		step := min(size-at, 256<<10)
		c.token = slices.Grow(c.token, step)[:at+step]
		if _, err := io.ReadFull(c.r, c.token[at:]); err != nil {
			// Not a deadline's error any more, after which the caller might go on.
			return fmt.Errorf("%w in the middle of a protected message: %s", io.ErrUnexpectedEOF, err.Error())
		}
	}
	if c.rest, err = c.w.Unwrap(c.token); err != nil {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return nil
}

// Write sends b in as many messages as it needs.
func (c *sealed) Write(b []byte) (int, error) {
	c.out = c.out[:0]
	for rest := b; len(rest) > 0; {
		n := min(len(rest), c.w.Limit())
		token, err := c.w.Wrap(rest[:n])
		if err != nil {
			return 0, err
		}
		c.out = binary.BigEndian.AppendUint32(c.out, uint32(len(token))) //nolint:gosec // about 64 KiB
		c.out = append(c.out, token...)
		rest = rest[n:]
	}
	if _, err := c.Conn.Write(c.out); err != nil {
		return 0, err
	}
	return len(b), nil
}

// ctr carries the stream encrypted by AES in counter mode.
type ctr struct {
	net.Conn
	in, out cipher.Stream
	buf     []byte
}

// newCTR opens the keys that the DataNode chose. Hadoop names them from the DataNode's side: in is what we write.
func newCTR(nc net.Conn, o *hdfspb.CipherOptionProto, w Layer) (*ctr, error) {
	if o.GetSuite() != hdfspb.CipherSuiteProto_AES_CTR_NOPADDING {
		return nil, fmt.Errorf("%w: cipher suite %v was not offered", ErrMalformed, o.GetSuite())
	}
	var streams [2]cipher.Stream
	for i, part := range []struct{ key, iv []byte }{{o.GetInKey(), o.GetInIv()}, {o.GetOutKey(), o.GetOutIv()}} { // in the order of the wrapping
		key, err := w.Unwrap(part.key)
		if err != nil {
			return nil, fmt.Errorf("%w: the key of a cipher: %w", ErrMalformed, err)
		}
		block, err := aes.NewCipher(key)
		if err != nil || len(part.iv) != aes.BlockSize {
			return nil, fmt.Errorf("%w: a key of %d and a vector of %d bytes for AES", ErrMalformed, len(key), len(part.iv))
		}
		streams[i] = cipher.NewCTR(block, part.iv)
	}
	return &ctr{Conn: nc, out: streams[0], in: streams[1]}, nil
}

// Read decrypts what has arrived.
func (c *ctr) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.in.XORKeyStream(b[:n], b[:n])
	return n, err
}

// Write sends b encrypted. After an error the streams of both sides differ, and the connection is of no use.
func (c *ctr) Write(b []byte) (int, error) {
	if err := c.write(b, nil); err != nil {
		return 0, err
	}
	return len(b), nil
}

func (c *ctr) write(head, data []byte) error {
	n := len(head) + len(data)
	c.buf = slices.Grow(c.buf[:0], n)[:n]
	c.out.XORKeyStream(c.buf, head)
	c.out.XORKeyStream(c.buf[len(head):], data)
	_, err := c.Conn.Write(c.buf)
	return err
}
