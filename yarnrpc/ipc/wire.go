package ipc

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	commonpb "github.com/thalweg/thalweg/yarnrpc/proto/common"
)

// Version is the version of Hadoop's IPC that this package speaks.
const Version = 9

// Call ids with a meaning of their own. Source: hadoop-common RpcConstants and Server.AuthProtocol.
const (
	CallIDContext int32 = -3  // the IpcConnectionContextProto
	CallIDPing    int32 = -4  // a keep-alive, never answered
	CallIDSASL    int32 = -33 // the SASL exchange and wrapped messages
)

// AuthProtocol is the last byte of the connection header.
type AuthProtocol byte

// The two authentication protocols of a connection header. Source: hadoop-common Server.AuthProtocol.
const (
	AuthNone AuthProtocol = 0
	AuthSASL AuthProtocol = 0xdf // -33 as a signed byte
)

// DefaultMaxMessage bounds one message in bytes, as ipc.maximum.response.length does by default.
const DefaultMaxMessage = 128 << 20

// ErrTooLarge says that a peer announced a message above the limit (MaxMessage). The connection cannot be used further.
var ErrTooLarge = errors.New("message above the size limit")

// ErrMalformed is wrapped by every error about bytes that are not Hadoop IPC.
var ErrMalformed = errors.New("malformed message")

// ConnectionHeader is the first thing a client sends.
//
//	offset  size  value
//	0       4     "hrpc"
//	4       1     version, 9
//	5       1     service class, 0
//	6       1     authentication protocol: 0 none, 0xdf SASL
func ConnectionHeader(auth AuthProtocol) []byte {
	return []byte{'h', 'r', 'p', 'c', Version, 0, byte(auth)}
}

// ParseConnectionHeader checks the 7 bytes of a connection header.
//
// Errors: ErrMalformed.
func ParseConnectionHeader(b []byte) (AuthProtocol, error) {
	if len(b) != 7 || string(b[:4]) != "hrpc" {
		return 0, fmt.Errorf("%w: not a Hadoop IPC client", ErrMalformed)
	}
	if b[4] != Version {
		return 0, fmt.Errorf("%w: IPC version %d, want %d", ErrMalformed, b[4], Version)
	}
	a := AuthProtocol(b[6])
	if a != AuthNone && a != AuthSASL {
		return 0, fmt.Errorf("%w: authentication protocol %d", ErrMalformed, b[6])
	}
	return a, nil
}

// EncodeFrame returns the messages as one frame: a 4-byte big-endian length, then each message after its length as a varint.
func EncodeFrame(msgs ...proto.Message) ([]byte, error) {
	size := 4
	sizes := make([]int, len(msgs))
	for i, m := range msgs {
		sizes[i] = proto.Size(m)
		size += protowire.SizeVarint(uint64(sizes[i])) + sizes[i]
	}
	b := make([]byte, 4, size)
	var err error
	for i, m := range msgs {
		b = protowire.AppendVarint(b, uint64(sizes[i]))
		if b, err = (proto.MarshalOptions{UseCachedSize: true}).MarshalAppend(b, m); err != nil {
			return nil, err
		}
	}
	binary.BigEndian.PutUint32(b, uint32(len(b)-4)) //nolint:gosec // bounded by memory, checked by the peer
	return b, nil
}

// ReadFrame reads one frame of at most limit bytes and returns it without its length. The caller owns the slice.
//
// Errors: io.EOF between frames, ErrMalformed, ErrTooLarge, and those of r.
func ReadFrame(r io.Reader, limit int) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > 1<<31-1 {
		return nil, fmt.Errorf("%w: negative length", ErrMalformed)
	}
	if int64(n) > int64(limit) {
		return nil, fmt.Errorf("%w: %d bytes announced, %d allowed", ErrTooLarge, n, limit)
	}
	const eager = 1 << 20 // above this, memory grows with what really arrives
	if n <= eager {
		b := make([]byte, n)
		if _, err := io.ReadFull(r, b); err != nil {
			return nil, noEOF(err)
		}
		return b, nil
	}
	var buf bytes.Buffer
	buf.Grow(eager)
	if _, err := io.CopyN(&buf, r, int64(n)); err != nil {
		return nil, noEOF(err)
	}
	return buf.Bytes(), nil
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// ConsumeMessage reads one message with its varint length from the front of b into m and returns the rest of b.
//
// Errors: ErrMalformed.
func ConsumeMessage(b []byte, m proto.Message) ([]byte, error) {
	raw, n := protowire.ConsumeBytes(b)
	if n < 0 {
		return nil, fmt.Errorf("%w: %s: truncated", ErrMalformed, m.ProtoReflect().Descriptor().Name())
	}
	if err := proto.Unmarshal(raw, m); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrMalformed, m.ProtoReflect().Descriptor().Name(), err)
	}
	return b[n:], nil
}

func requestHeader(callID int32, clientID []byte, retry int32) *commonpb.RpcRequestHeaderProto {
	return &commonpb.RpcRequestHeaderProto{
		RpcKind:    commonpb.RpcKindProto_RPC_PROTOCOL_BUFFER.Enum(),
		RpcOp:      commonpb.RpcRequestHeaderProto_RPC_FINAL_PACKET.Enum(),
		CallId:     proto.Int32(callID),
		ClientId:   clientID,
		RetryCount: proto.Int32(retry),
	}
}
