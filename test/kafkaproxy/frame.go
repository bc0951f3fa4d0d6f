package kafkaproxy

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// A frame is a length (4 bytes) and so many bytes. Requests: api key i16, version i16, correlation id i32, client id (nullable string), in
// flexible versions tagged fields, body. Answers: correlation id i32, in flexible versions tagged fields (but for ApiVersions), body.

func readFrame(r io.Reader) ([]byte, error) {
	var n [4]byte
	if _, err := io.ReadFull(r, n[:]); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(n[:])
	if size > maxFrame {
		return nil, fmt.Errorf("kafkaproxy: a frame of %d bytes", size)
	}
	b := make([]byte, size)
	_, err := io.ReadFull(r, b)
	return b, err
}

func writeFrame(w io.Writer, frame []byte) error {
	b := make([]byte, 0, 4+len(frame))
	b = binary.BigEndian.AppendUint32(b, uint32(len(frame)))
	_, err := w.Write(append(b, frame...))
	return err
}

// split takes the header of an answer off.
func split(frame []byte, flexible bool) (header, body []byte, err error) {
	n := 4
	if flexible {
		var t int
		if t, err = tags(frame[n:]); err != nil {
			return nil, nil, err
		}
		n += t
	}
	return frame[:n], frame[n:], nil
}

// requestBody takes the header of a request off.
func requestBody(frame []byte, flexible bool) ([]byte, error) {
	if len(frame) < 10 {
		return nil, io.ErrUnexpectedEOF
	}
	n := 10 + max(0, int(int16(binary.BigEndian.Uint16(frame[8:]))))
	if n > len(frame) {
		return nil, io.ErrUnexpectedEOF
	}
	if flexible {
		t, err := tags(frame[n:])
		if err != nil {
			return nil, err
		}
		n += t
	}
	return frame[n:], nil
}

// tags is the length of tagged fields.
func tags(b []byte) (int, error) {
	n := 0
	number := func() (uint64, bool) {
		v, k := binary.Uvarint(b[n:])
		if k <= 0 {
			return 0, false
		}
		n += k
		return v, true
	}
	count, ok := number()
	for i := uint64(0); ok && i < count; i++ {
		var size uint64
		if _, ok = number(); !ok {
			break
		}
		if size, ok = number(); ok && size <= uint64(len(b)-n) {
			n += int(size)
		} else {
			ok = false
		}
	}
	if !ok {
		return 0, fmt.Errorf("kafkaproxy: tagged fields: %w", io.ErrUnexpectedEOF)
	}
	return n, nil
}

// rename puts the proxy in place of the broker in an answer that names brokers.
func (p *Proxy) rename(frame []byte, r request) ([]byte, error) {
	switch kmsg.Key(r.key) {
	case kmsg.Metadata, kmsg.FindCoordinator, kmsg.DescribeCluster:
	default:
		return frame, nil
	}
	resp := kmsg.ResponseForKey(r.key)
	resp.SetVersion(r.version)
	header, body, err := split(frame, resp.IsFlexible())
	if err != nil {
		return nil, err
	}
	if err := resp.ReadFrom(body); err != nil {
		return nil, fmt.Errorf("kafkaproxy: %T version %d: %w", resp, r.version, err)
	}
	switch resp := resp.(type) {
	case *kmsg.MetadataResponse:
		for i := range resp.Brokers {
			resp.Brokers[i].Host, resp.Brokers[i].Port = p.host, p.port
		}
	case *kmsg.DescribeClusterResponse:
		for i := range resp.Brokers {
			resp.Brokers[i].Host, resp.Brokers[i].Port = p.host, p.port
		}
	case *kmsg.FindCoordinatorResponse:
		if resp.Host != "" {
			resp.Host, resp.Port = p.host, p.port
		}
		for i := range resp.Coordinators {
			if resp.Coordinators[i].Host != "" {
				resp.Coordinators[i].Host, resp.Coordinators[i].Port = p.host, p.port
			}
		}
	}
	return resp.AppendTo(header[:len(header):len(header)]), nil
}
