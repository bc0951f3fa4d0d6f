package inspect

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
)

// errShort and errOpaque say why a stored value cannot be shown by its schema.
var (
	errShort  = errors.New("the value ends before its type does")
	errOpaque = errors.New("the type has a codec of its own, which only the job's program has")
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

// appendValue appends the JSON form of the value at the front of src, and returns how many bytes it has there.
//
// **Source:** the encoding of package serde, and of the state package's own kinds: values with a time, lists.
func appendValue(dst, src []byte, s *serde.Schema) ([]byte, int, error) {
	if s == nil {
		return dst, 0, errOpaque
	}
	switch s.Kind {
	case "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64", "time":
		return appendFixed(dst, src, s.Kind)
	case "string", "bytes":
		b, n, null, err := block(src, s.Kind == "bytes")
		switch {
		case err != nil:
			return dst, 0, err
		case null:
			return append(dst, "null"...), n, nil
		case s.Kind == "bytes":
			return appendBase64(dst, b), n, nil
		}
		return appendString(dst, string(b)), n, nil
	case "custom":
		if s.Elem == nil || s.Elem.Kind != "blob" {
			return dst, 0, errOpaque
		}
		b, n, _, err := block(src, false)
		if err != nil {
			return dst, 0, err
		}
		return appendBase64(dst, b), n, nil
	case "struct":
		return appendStruct(dst, src, s)
	case "pointer":
		if len(src) == 0 {
			return dst, 0, errShort
		}
		if src[0] == 0 {
			return append(dst, "null"...), 1, nil
		}
		dst, n, err := appendValue(dst, src[1:], s.Elem)
		return dst, n + 1, err
	case "array":
		return appendElements(dst, src, 0, s.Len, s.Elem)
	case "slice":
		l, n, err := count(src)
		if err != nil {
			return dst, 0, err
		}
		if l < 0 {
			return append(dst, "null"...), n, nil
		}
		return appendElements(dst, src, n, l, s.Elem)
	case "map":
		return appendMap(dst, src, s)
	case state.KindList:
		return appendElements(dst, src, 0, -1, s.Elem)
	case state.KindTimed:
		if len(src) < 8 {
			return dst, 0, errShort
		}
		at := time.UnixMilli(int64(binary.LittleEndian.Uint64(src))).UTC()
		dst = append(appendString(append(dst, `{"lastAccess":`...), at.Format(time.RFC3339Nano)), `,"value":`...)
		dst, n, err := appendValue(dst, src[8:], s.Elem)
		return append(dst, '}'), n + 8, err
	}
	return dst, 0, fmt.Errorf("type %s: %w", s, errOpaque)
}

var widths = map[string]int{"bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "float32": 4, "int64": 8, "uint64": 8, "float64": 8, "time": 12}

func appendFixed(dst, src []byte, kind string) ([]byte, int, error) {
	w := widths[kind]
	if len(src) < w {
		return dst, 0, errShort
	}
	var wide [8]byte
	copy(wide[:], src[:min(w, 8)])
	u := binary.LittleEndian.Uint64(wide[:])
	switch kind {
	case "bool":
		dst = strconv.AppendBool(dst, u != 0)
	case "int8":
		dst = strconv.AppendInt(dst, int64(int8(u)), 10)
	case "int16":
		dst = strconv.AppendInt(dst, int64(int16(u)), 10)
	case "int32":
		dst = strconv.AppendInt(dst, int64(int32(u)), 10)
	case "int64":
		dst = strconv.AppendInt(dst, int64(u), 10)
	case "float32":
		dst = appendFloat(dst, float64(math.Float32frombits(uint32(u))), 32)
	case "float64":
		dst = appendFloat(dst, math.Float64frombits(u), 64)
	case "time":
		t := time.Unix(int64(u), int64(binary.LittleEndian.Uint32(src[8:]))).UTC()
		dst = appendString(dst, t.Format(time.RFC3339Nano))
	default:
		dst = strconv.AppendUint(dst, u, 10)
	}
	return dst, w, nil
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

// appendElements appends n elements that begin at src[at], or with n < 0 all that are there.
func appendElements(dst, src []byte, at, n int, s *serde.Schema) ([]byte, int, error) {
	dst = append(dst, '[')
	for i := 0; n < 0 && at < len(src) || i < n; i++ {
		if i > 0 {
			dst = append(dst, ',')
		}
		var w int
		var err error
		if dst, w, err = appendValue(dst, src[at:], s); err != nil {
			return dst, 0, fmt.Errorf("element %d: %w", i, err)
		}
		if w == 0 && (n < 0 || n > maxEmpty) {
			return dst, 0, fmt.Errorf("element %d has no bytes", i)
		}
		at += w
	}
	return append(dst, ']'), at, nil
}

// maxEmpty bounds the elements without bytes that are shown: a corrupt length must not fill the memory.
const maxEmpty = 1 << 16

// appendMap writes an object when the keys are strings or numbers, else pairs.
func appendMap(dst, src []byte, s *serde.Schema) ([]byte, int, error) {
	l, at, err := count(src)
	if err != nil {
		return dst, 0, err
	}
	if l < 0 {
		return append(dst, "null"...), at, nil
	}
	object := s.Key != nil && (s.Key.Kind == "string" || widths[s.Key.Kind] > 0)
	open, end := byte('['), byte(']')
	if object {
		open, end = '{', '}'
	}
	dst = append(dst, open)
	for i := range l {
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

// block is a length and that many bytes. With nullable, the length is one more and 0 stands for nil.
func block(src []byte, nullable bool) (b []byte, n int, null bool, err error) {
	l, w := binary.Uvarint(src)
	if w <= 0 {
		return nil, 0, false, errShort
	}
	if nullable {
		if l == 0 {
			return nil, w, true, nil
		}
		l--
	}
	if l > uint64(len(src)-w) {
		return nil, 0, false, errShort
	}
	return src[w : w+int(l)], w + int(l), false, nil
}

// count is the number of elements of a slice or map, -1 for nil, and the bytes it takes.
func count(src []byte) (l, n int, err error) {
	u, w := binary.Uvarint(src)
	if w <= 0 || u > math.MaxInt32 {
		return 0, 0, errShort
	}
	return int(u) - 1, w, nil
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
