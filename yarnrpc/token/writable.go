package token

import (
	"errors"
	"fmt"
	"unicode/utf8"
)

// ErrMalformed is wrapped by every error about bytes that are not what they should be.
var ErrMalformed = errors.New("malformed")

// appendVLong writes Hadoop's variable-length integer: one byte for -112..127, else a byte that tells sign and length
// and up to 8 big-endian bytes.
//
// Source: hadoop-common WritableUtils.writeVLong.
func appendVLong(b []byte, v int64) []byte {
	if v >= -112 && v <= 127 {
		return append(b, byte(v)) //nolint:gosec // the format
	}
	first := -112
	if v < 0 {
		v = ^v
		first = -120
	}
	n := 0
	for t := v; t != 0; t >>= 8 {
		n++
	}
	b = append(b, byte(first-n)) //nolint:gosec // the format
	for i := n - 1; i >= 0; i-- {
		b = append(b, byte(v>>(8*i))) //nolint:gosec // the format
	}
	return b
}

func appendBytes(b, v []byte) []byte       { return append(appendVLong(b, int64(len(v))), v...) }
func appendText(b []byte, s string) []byte { return append(appendVLong(b, int64(len(s))), s...) }

// appendToken writes identifier, password, kind, service. Source: hadoop-common Token.write.
func appendToken(b []byte, t Token) []byte {
	b = appendBytes(b, t.Identifier)
	b = appendBytes(b, t.Password)
	b = appendText(b, string(t.Kind))
	return appendText(b, t.Service)
}

// decoder reads writable values from the front of b; the first failure sticks and all later values are zero.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) fail(what string) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s", ErrMalformed, what)
	}
	d.b = nil
}

func (d *decoder) byte() byte {
	if len(d.b) == 0 {
		d.fail("truncated")
		return 0
	}
	v := d.b[0]
	d.b = d.b[1:]
	return v
}

func (d *decoder) vlong() int64 {
	first := int8(d.byte()) //nolint:gosec // the format is signed
	if first >= -112 {
		return int64(first)
	}
	n, negative := -112-int(first), false
	if first < -120 {
		n, negative = -120-int(first), true
	}
	if len(d.b) < n {
		d.fail("truncated number")
		return 0
	}
	var v uint64
	for _, c := range d.b[:n] {
		v = v<<8 | uint64(c)
	}
	d.b = d.b[n:]
	if negative {
		return ^int64(v) //nolint:gosec // the format
	}
	return int64(v) //nolint:gosec // the format
}

func (d *decoder) bytes() []byte {
	n := d.vlong()
	if n < 0 || n > int64(len(d.b)) {
		d.fail("length out of range")
		return nil
	}
	v := append([]byte(nil), d.b[:n]...)
	d.b = d.b[n:]
	return v
}

func (d *decoder) text() string {
	v := d.bytes()
	if !utf8.Valid(v) {
		d.fail("text is not UTF-8")
		return ""
	}
	return string(v)
}

func (d *decoder) token() Token {
	return Token{Identifier: d.bytes(), Password: d.bytes(), Kind: Kind(d.text()), Service: d.text()}
}

// DelegationIdentifier is the identifier of a delegation token in the writable form that HDFS uses.
type DelegationIdentifier struct {
	Owner, Renewer, RealUser string
	IssueDate, MaxDate       int64 // milliseconds since 1970
	SequenceNumber           int32
	MasterKeyID              int32
}

// DecodeDelegationIdentifier reads the identifier of an HDFS_DELEGATION_TOKEN.
//
// Errors: ErrMalformed.
// Source: hadoop-common AbstractDelegationTokenIdentifier.readFields.
func DecodeDelegationIdentifier(b []byte) (DelegationIdentifier, error) {
	d := decoder{b: b}
	if v := d.byte(); d.err == nil && v != 0 {
		d.fail("unknown version of a delegation token identifier")
	}
	id := DelegationIdentifier{Owner: d.text(), Renewer: d.text(), RealUser: d.text(), IssueDate: d.vlong(), MaxDate: d.vlong()}
	id.SequenceNumber = int32(d.vlong()) //nolint:gosec // the format
	id.MasterKeyID = int32(d.vlong())    //nolint:gosec // the format
	if d.err != nil {
		return DelegationIdentifier{}, d.err
	}
	return id, nil
}
