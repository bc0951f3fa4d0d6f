package inspect

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
)

// render is the JSON form of a whole stored value: what its schema tells, or {"hex": ...} for what no schema tells.
func render(b []byte, s *serde.Schema) json.RawMessage {
	out, n, err := appendValue(nil, b, s)
	if err == nil && n < len(b) {
		err = fmt.Errorf("%d bytes more than its type has", len(b)-n)
	}
	if err != nil {
		return json.RawMessage(fmt.Sprintf(`{"hex":%q,"reason":%q}`, hex.EncodeToString(b), err.Error()))
	}
	return out
}

// appendValue appends the JSON form of the value at the front of src, and returns how many bytes it has there. The encoding is that of package
// serde, and of the state package's own kinds: values with a time, lists.
func appendValue(dst, src []byte, s *serde.Schema) ([]byte, int, error) {
	switch {
	case s != nil && s.Kind == state.KindList:
		n, at := binary.Uvarint(src)
		if at <= 0 || n > math.MaxInt32 {
			return dst, 0, fmt.Errorf("number of elements of a list: %w", serde.ErrShort)
		}
		return appendElements(dst, src, at, int(n), s.Elem)
	case s != nil && s.Kind == state.KindTimed:
		if len(src) < 8 {
			return dst, 0, serde.ErrShort
		}
		at := time.UnixMilli(int64(binary.LittleEndian.Uint64(src))).UTC()
		dst = append(appendString(append(dst, `{"lastAccess":`...), at.Format(time.RFC3339Nano)), `,"value":`...)
		dst, n, err := appendValue(dst, src[8:], s.Elem)
		return append(dst, '}'), n + 8, err
	}
	p, err := s.Split(src)
	switch {
	case err != nil:
		if s != nil {
			err = fmt.Errorf("type %s: %w", s, err)
		}
		return dst, 0, err
	case p.Null:
		return append(dst, "null"...), p.Size(), nil
	case s.Scalar():
		return appendScalar(dst, p.Body, s.Kind), p.Size(), nil
	}
	switch s.Kind {
	case "string":
		return appendString(dst, string(p.Body)), p.Size(), nil
	case "struct":
		return appendStruct(dst, src, s)
	case "pointer":
		dst, n, err := appendValue(dst, src[p.Head:], s.Elem)
		return dst, n + p.Head, err
	case "array", "slice":
		return appendElements(dst, src, p.Head, p.Count, s.Elem)
	case "map":
		return appendMap(dst, src, p, s)
	}
	return appendBase64(dst, p.Body), p.Size(), nil
}

func appendScalar(dst, b []byte, kind string) []byte {
	var wide [8]byte
	copy(wide[:], b)
	u := binary.LittleEndian.Uint64(wide[:])
	switch kind {
	case "bool":
		return strconv.AppendBool(dst, u != 0)
	case "int8":
		return strconv.AppendInt(dst, int64(int8(u)), 10)
	case "int16":
		return strconv.AppendInt(dst, int64(int16(u)), 10)
	case "int32":
		return strconv.AppendInt(dst, int64(int32(u)), 10)
	case "int64":
		return strconv.AppendInt(dst, int64(u), 10)
	case "float32":
		return appendFloat(dst, float64(math.Float32frombits(uint32(u))), 32)
	case "float64":
		return appendFloat(dst, math.Float64frombits(u), 64)
	case "time":
		t := time.Unix(int64(u), int64(binary.LittleEndian.Uint32(b[8:]))).UTC()
		return appendString(dst, t.Format(time.RFC3339Nano))
	}
	return strconv.AppendUint(dst, u, 10)
}

// appendFloat writes a number, or a string for what JSON has no number for.
func appendFloat(dst []byte, f float64, bits int) []byte {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return appendString(dst, strconv.FormatFloat(f, 'g', -1, bits))
	}
	return strconv.AppendFloat(dst, f, 'g', -1, bits)
}

func appendStruct(dst, src []byte, s *serde.Schema) ([]byte, int, error) {
	dst = append(dst, '{')
	at := 0
	for i := range s.Fields {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(appendString(dst, s.Fields[i].Name), ':')
		var n int
		var err error
		if dst, n, err = appendValue(dst, src[at:], &s.Fields[i].Type); err != nil {
			return dst, 0, fmt.Errorf("field %s: %w", s.Fields[i].Name, err)
		}
		at += n
	}
	return append(dst, '}'), at, nil
}

// appendElements appends n elements that begin at src[at].
func appendElements(dst, src []byte, at, n int, s *serde.Schema) ([]byte, int, error) {
	dst = append(dst, '[')
	for i := range n {
		if i > 0 {
			dst = append(dst, ',')
		}
		var w int
		var err error
		if dst, w, err = appendValue(dst, src[at:], s); err != nil {
			return dst, 0, fmt.Errorf("element %d: %w", i, err)
		}
		if w == 0 && n > maxEmpty {
			return dst, 0, fmt.Errorf("element %d has no bytes", i)
		}
		at += w
	}
	return append(dst, ']'), at, nil
}

// maxEmpty bounds the elements without bytes that are shown: a corrupt length must not fill the memory.
const maxEmpty = 1 << 16

// appendMap writes an object when the keys are strings or numbers, else pairs.
func appendMap(dst, src []byte, p serde.Piece, s *serde.Schema) ([]byte, int, error) {
	at := p.Head
	object := s.Key != nil && (s.Key.Kind == "string" || s.Key.Scalar())
	open, end := byte('['), byte(']')
	if object {
		open, end = '{', '}'
	}
	dst = append(dst, open)
	for i := range p.Count {
		if i > 0 {
			dst = append(dst, ',')
		}
		key, n, err := appendValue(nil, src[at:], s.Key)
		if err != nil {
			return dst, 0, fmt.Errorf("key %d of a map: %w", i, err)
		}
		from := at
		at += n
		switch {
		case !object:
			dst = append(append(append(dst, '['), key...), ',')
		case key[0] == '"':
			dst = append(append(dst, key...), ':')
		default:
			dst = append(appendString(dst, string(key)), ':')
		}
		if dst, n, err = appendValue(dst, src[at:], s.Elem); err != nil {
			return dst, 0, fmt.Errorf("value of key %s: %w", key, err)
		}
		if at += n; at == from {
			return dst, 0, fmt.Errorf("entry %d has no bytes", i)
		}
		if !object {
			dst = append(dst, ']')
		}
	}
	return append(dst, end), at, nil
}

func appendString(dst []byte, s string) []byte {
	b, err := json.Marshal(s)
	if err != nil {
		return strconv.AppendQuote(dst, s)
	}
	return append(dst, b...)
}

func appendBase64(dst, b []byte) []byte {
	return append(base64.StdEncoding.AppendEncode(append(dst, '"'), b), '"')
}
