package network

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// The wire format, version 1. All integers are big endian. Every frame is a header of 12 bytes and a payload:
//
//	offset size
//	0      4    length of the payload
//	4      1    kind
//	5      1    0
//	6      2    Data: how many more data buffers wait at the producer (saturating); else 0
//	8      4    channel, chosen by the consumer, from 1; 0 for frames that are about the connection
//
// Payloads, C = consumer (dials), P = producer (listens):
//
//	Hello     C>P  magic "THWG" u32, version u16, nonce 16
//	Challenge P>C  version u16, nonce 16, HMAC-SHA256(token, "producer" C-nonce P-nonce) 32
//	Proof     C>P  HMAC-SHA256(token, "consumer" C-nonce P-nonce) 32
//	Request   C>P  vertex 16, subtask u32, attempt u32, output u32, subpartition u32, credit u32
//	Credit    C>P  (channel u32, credit u32)*, at least one, at most maxCredits
//	Cancel    C>P  nothing; the consumer wants no more of the channel
//	Data      P>C  whole elements, at least one byte, at most Config.MaxFrame
//	Event     P>C  kind u8, options u8, checkpoint i64, timestamp i64, extra
//	Fail      both failure kind u8, text of at most maxFailText bytes; on channel 0 the sender closes the connection behind it
//
// The consumer may send requests behind its Proof at once.
const (
	wireMagic   = 0x54485747
	wireVersion = 1
	headerSize  = 12

	nonceSize   = 16
	macSize     = 32
	helloSize   = 4 + 2 + nonceSize
	challenge   = 2 + nonceSize + macSize
	requestSize = 16 + 5*4
	eventSize   = 1 + 1 + 8 + 8
	maxCredits  = 4096
	maxFailText = 4096
)

type frameKind uint8

const (
	frameHello frameKind = iota + 1
	frameChallenge
	frameProof
	frameRequest
	frameCredit
	frameCancel
	frameData
	frameEvent
	frameFail
)

type header struct {
	length  int
	kind    frameKind
	backlog int
	channel uint32
}

func appendHeader(b []byte, h header) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(h.length))
	b = append(b, byte(h.kind), 0)
	b = binary.BigEndian.AppendUint16(b, uint16(min(h.backlog, 0xffff)))
	return binary.BigEndian.AppendUint32(b, h.channel)
}

// decodeHeader checks everything that can be known without the payload; in particular the length is within the bounds of its kind.
func decodeHeader(b *[headerSize]byte, maxFrame int) (header, error) {
	h := header{
		length:  int(binary.BigEndian.Uint32(b[0:])),
		kind:    frameKind(b[4]),
		backlog: int(binary.BigEndian.Uint16(b[6:])),
		channel: binary.BigEndian.Uint32(b[8:]),
	}
	lo, hi := 0, 0
	switch h.kind {
	case frameHello:
		lo, hi = helloSize, helloSize
	case frameChallenge:
		lo, hi = challenge, challenge
	case frameProof:
		lo, hi = macSize, macSize
	case frameRequest:
		lo, hi = requestSize, requestSize
	case frameCredit:
		lo, hi = 8, 8*maxCredits
	case frameCancel:
	case frameData:
		lo, hi = 1, maxFrame
	case frameEvent:
		lo, hi = eventSize, eventSize+maxEventExtra
	case frameFail:
		lo, hi = 1, 1+maxFailText
	default:
		return h, fmt.Errorf("frame of unknown kind %d", b[4])
	}
	if h.length < lo || h.length > hi {
		return h, fmt.Errorf("frame of kind %d has %d bytes, want %d to %d", h.kind, h.length, lo, hi)
	}
	if b[5] != 0 {
		return h, fmt.Errorf("frame of kind %d has reserved bits set", h.kind)
	}
	return h, nil
}

type request struct {
	id     PartitionID
	sub    int
	credit int
}

func appendRequest(b []byte, channel uint32, r request) []byte {
	b = appendHeader(b, header{length: requestSize, kind: frameRequest, channel: channel})
	b = append(b, r.id.Producer.Vertex.ID[:]...)
	for _, v := range []int{r.id.Producer.Subtask, r.id.Producer.Attempt, r.id.Output, r.sub, r.credit} {
		b = binary.BigEndian.AppendUint32(b, uint32(v))
	}
	return b
}

func decodeRequest(b []byte) (r request, err error) {
	if len(b) != requestSize {
		return r, fmt.Errorf("request of %d bytes", len(b))
	}
	copy(r.id.Producer.Vertex.ID[:], b)
	for i, p := range []*int{&r.id.Producer.Subtask, &r.id.Producer.Attempt, &r.id.Output, &r.sub, &r.credit} {
		v := binary.BigEndian.Uint32(b[16+4*i:])
		if v > 1<<30 {
			return request{}, fmt.Errorf("request with number %d", v)
		}
		*p = int(v)
	}
	return r, nil
}

type credit struct {
	channel uint32
	n       int
}

// appendCredits appends as many frames as needed.
func appendCredits(b []byte, cs []credit) []byte {
	for len(cs) > 0 {
		n := min(len(cs), maxCredits)
		b = appendHeader(b, header{length: 8 * n, kind: frameCredit})
		for _, c := range cs[:n] {
			b = binary.BigEndian.AppendUint32(b, c.channel)
			b = binary.BigEndian.AppendUint32(b, uint32(c.n))
		}
		cs = cs[n:]
	}
	return b
}

func decodeCredits(b []byte, each func(credit)) error {
	if len(b)%8 != 0 {
		return fmt.Errorf("credit of %d bytes", len(b))
	}
	for ; len(b) > 0; b = b[8:] {
		n := binary.BigEndian.Uint32(b[4:])
		if n == 0 || n > 1<<20 {
			return fmt.Errorf("credit of %d buffers", n)
		}
		each(credit{channel: binary.BigEndian.Uint32(b), n: int(n)})
	}
	return nil
}

func appendEvent(b []byte, channel uint32, ev *Event) []byte {
	b = appendHeader(b, header{length: eventSize + len(ev.Extra), kind: frameEvent, channel: channel})
	b = append(b, byte(ev.Kind), ev.Options)
	b = binary.BigEndian.AppendUint64(b, uint64(ev.Checkpoint))
	b = binary.BigEndian.AppendUint64(b, uint64(ev.Timestamp))
	return append(b, ev.Extra...)
}

// decodeEvent copies what it keeps of b.
func decodeEvent(b []byte) (*Event, error) {
	if len(b) < eventSize {
		return nil, fmt.Errorf("event of %d bytes", len(b))
	}
	ev := &Event{
		Kind:       EventKind(b[0]),
		Options:    b[1],
		Checkpoint: int64(binary.BigEndian.Uint64(b[2:])),
		Timestamp:  int64(binary.BigEndian.Uint64(b[10:])),
	}
	if ev.Kind < Barrier || ev.Kind > EndOfPartition {
		return nil, fmt.Errorf("event of unknown kind %d", b[0])
	}
	if len(b) > eventSize {
		ev.Extra = append([]byte(nil), b[eventSize:]...)
	}
	return ev, nil
}

func appendFail(b []byte, channel uint32, kind FailureKind, text string) []byte {
	text = text[:min(len(text), maxFailText)]
	b = appendHeader(b, header{length: 1 + len(text), kind: frameFail, channel: channel})
	return append(append(b, byte(kind)), text...)
}

func decodeFail(b []byte) (FailureKind, error) {
	if len(b) == 0 {
		return ProtocolViolation, errors.New("failure without kind")
	}
	k := FailureKind(b[0])
	if k < ConnectFailed || k > PartitionLost {
		return ProtocolViolation, fmt.Errorf("failure of unknown kind %d", b[0])
	}
	if len(b) == 1 {
		return k, nil
	}
	return k, errors.New(string(b[1:]))
}
