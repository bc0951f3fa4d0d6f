package serde

import (
	"fmt"
	"strconv"
	"strings"
)

// DecodeError says where the decoding of a value failed. It never carries the value.
type DecodeError struct {
	Type   string // Go type that was decoded
	Path   string // field inside of it, empty for the whole
	Offset int    // byte offset in the input
	Reason string
}

func (e *DecodeError) Error() string {
	at := e.Type
	if e.Path != "" {
		at += "." + strings.TrimPrefix(e.Path, ".")
	}
	return fmt.Sprintf("serde: decode %s at byte %d: %s", at, e.Offset, e.Reason)
}

// TypeError lists what makes a type unfit for a codec.
type TypeError struct {
	Type     string
	Problems []string // "<path>: <reason>"
}

func (e *TypeError) Error() string {
	return fmt.Sprintf("serde: type %s cannot be encoded: %s", e.Type, strings.Join(e.Problems, "; "))
}

// MarshalError is the panic value of Append when a user's MarshalBinary failed: Append has no error result, since every other type
// encodes without failure. Tasks recover it as the failure of the record.
type MarshalError struct {
	Type string
	Err  error
}

func (e *MarshalError) Error() string {
	return fmt.Sprintf("serde: encode %s: MarshalBinary: %v", e.Type, e.Err)
}

func (e *MarshalError) Unwrap() error { return e.Err }

const reasonShort = "input ends inside of the value"

func errAt(o *op, off int, reason string) error {
	return &DecodeError{Path: o.path, Offset: off, Reason: reason}
}

// excerptLimit bounds how much of a message an error shows, in bytes.
const excerptLimit = 64

// Excerpt quotes at most 64 bytes of data around offset off, for error texts.
func Excerpt(data []byte, off int) string {
	off = min(max(off, 0), len(data))
	lo := max(off-excerptLimit/2, 0)
	hi := min(lo+excerptLimit, len(data))
	s := strconv.QuoteToASCII(string(data[lo:hi]))
	if lo > 0 {
		s = "..." + s
	}
	if hi < len(data) {
		s += "..."
	}
	return s
}
