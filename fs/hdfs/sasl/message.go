package sasl

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/thalweg/thalweg/fs/hdfs/hdfspb"
)

// maxMessage bounds a message of the handshake; real ones have some hundred bytes.
const maxMessage = 64 << 10

var (
	// ErrUnknownKey says that the DataNode does not know the encryption key, which is too old: ask the NameNode for another one.
	ErrUnknownKey = errors.New("the data node does not know the encryption key")
	// ErrToken says that the DataNode refused the block token, which is too old: ask the NameNode for the block again.
	ErrToken = errors.New("the data node refused the block token")
	// ErrProtection says that client and DataNode have no level of protection in common, or that only one of them expects any.
	ErrProtection = errors.New("no common protection of data transfer")
	// ErrMalformed says that the bytes are not those of the handshake or of a protected stream.
	ErrMalformed = errors.New("malformed data from the data node")
)

type message = hdfspb.DataTransferEncryptorMessageProto

func appendMessage(b []byte, m *message) ([]byte, error) {
	m.Status = hdfspb.DataTransferEncryptorMessageProto_SUCCESS.Enum()
	b = protowire.AppendVarint(b, uint64(proto.Size(m)))
	return proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(b, m)
}

// readMessage reads exactly one message, and nothing of what follows.
func readMessage(r io.Reader) (*message, error) {
	size, shift := uint64(0), 0
	for {
		var c [1]byte
		if _, err := io.ReadFull(r, c[:]); err != nil {
			return nil, err
		}
		size |= uint64(c[0]&0x7f) << shift
		if c[0] < 0x80 {
			break
		}
		if shift += 7; shift > 21 {
			return nil, fmt.Errorf("%w: the length of a message of the handshake", ErrMalformed)
		}
	}
	if size > maxMessage {
		return nil, fmt.Errorf("%w: a message of the handshake of %d bytes", ErrMalformed, size)
	}
	b := make([]byte, size)
	if _, err := io.ReadFull(r, b); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return decode(b)
}

// decode turns a refusal into an error.
func decode(b []byte) (*message, error) {
	m := &message{}
	if err := proto.Unmarshal(b, m); err != nil {
		return nil, fmt.Errorf("%w: a message of the handshake: %w", ErrMalformed, err)
	}
	if m.GetStatus() == hdfspb.DataTransferEncryptorMessageProto_SUCCESS {
		return m, nil
	}
	words, _, _ := strings.Cut(m.GetMessage(), "\n")
	switch {
	case m.GetStatus() == hdfspb.DataTransferEncryptorMessageProto_ERROR_UNKNOWN_KEY:
		return nil, fmt.Errorf("%w: %s", ErrUnknownKey, words)
	case m.GetAccessTokenError(), strings.Contains(words, "error acquiring password"): // the latter before Hadoop 3.4
		return nil, fmt.Errorf("%w: %s", ErrToken, words)
	}
	return nil, fmt.Errorf("the data node refused the handshake of %s: %s", KeyProtection, words)
}

// Ended says that the other side has closed the connection.
func Ended(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// ended says what the end of a connection in the first messages most likely means.
func ended(err error) error {
	if !Ended(err) {
		return err
	}
	return fmt.Errorf("the connection was closed at the beginning of the handshake (when this goes on, the data node expects none: "+
		"set %s as the cluster has it): %w", KeyProtection, io.ErrUnexpectedEOF)
}
