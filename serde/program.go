package serde

import (
	"bytes"
	"encoding/binary"
	"reflect"
	"sort"
	"time"
	"unsafe"
)

// opKind says what an op does to the memory at its offset. The encodings:
//
//	copy    n bytes as they stand (runs of adjacent fixed-width fields, little-endian)
//	bool    one byte, 0 or 1
//	string  uvarint length, bytes
//	bytes   uvarint length+1 (0 = nil), bytes
//	time    8 bytes seconds since 1970, 4 bytes nanoseconds; always UTC, no monotonic reading
//	slice   uvarint length+1 (0 = nil), elements
//	array   elements
//	map     uvarint length+1 (0 = nil), then key and value, ordered by the bytes of the encoded key
//	pointer one byte 0 (nil) or 1, then the element
//	custom  what the registered codec or MarshalBinary (uvarint length, bytes) writes
type opKind uint8

const (
	opCopy opKind = iota
	opCopy8
	opCopy4
	opBool
	opString
	opBytes
	opTime
	opSlice
	opArray
	opMap
	opPointer
	opCustom
	opSkip    // decode only: passes over an encoded field that the type no longer has
	opDefault // decode only: sets a field that is not stored
	opWiden   // decode only: a number that was stored as a narrower one
	opWrap    // decode only: a pointer that was stored as what it points to
)

// op is one instruction of a program. off is the field's offset in the struct that the program works on.
type op struct {
	kind   opKind
	plain  bool    // slice, pointer: element memory holds no pointers
	off    uintptr // bytes
	n      uintptr // copy: bytes; array: elements; widen: stored bytes
	size   uintptr // element size in memory; widen: bytes in memory
	min    int     // least encoded bytes of one element (map: key and value)
	sub    *program
	key    *program
	typ    reflect.Type // slice, pointer: element type; map: map type
	custom erased
	skip   *Schema
	def    []byte // default: encoded
	wide   widening
	path   string
}

// program encodes and decodes one type: the flat list of its fields.
type program struct {
	ops      []op
	cloneOps []op // those with memory behind a pointer
	min      int  // least encoded bytes
	views    bool
	pointers bool
	mutable  bool
	lossy    bool
}

// erased is a Codec without its type.
type erased interface {
	appendTo(dst []byte, p unsafe.Pointer) []byte
	decodeTo(src []byte, p unsafe.Pointer) (int, error)
	cloneAt(p unsafe.Pointer)
}

func (pr *program) append(dst []byte, p unsafe.Pointer) []byte {
	for i := range pr.ops {
		o := &pr.ops[i]
		q := unsafe.Add(p, o.off)
		switch o.kind {
		case opCopy8:
			dst = binary.LittleEndian.AppendUint64(dst, *(*uint64)(q))
		case opCopy4:
			dst = binary.LittleEndian.AppendUint32(dst, *(*uint32)(q))
		case opCopy:
			dst = append(dst, view(q, o.n)...)
		case opBool:
			dst = append(dst, *(*byte)(q)&1)
		case opString:
			dst = appendString(dst, *(*string)(q))
		case opBytes:
			dst = appendBytes(dst, *(*[]byte)(q))
		case opTime:
			t := (*time.Time)(q)
			dst = binary.LittleEndian.AppendUint64(dst, uint64(t.Unix()))
			dst = binary.LittleEndian.AppendUint32(dst, uint32(t.Nanosecond()))
		case opSlice:
			h := *(*sliceHeader)(q)
			if h.data == nil {
				dst = append(dst, 0)
				continue
			}
			dst = binary.AppendUvarint(dst, uint64(h.len)+1)
			dst = o.appendElems(dst, h.data, uintptr(h.len))
		case opArray:
			dst = o.appendElems(dst, q, o.n)
		case opMap:
			dst = o.appendMap(dst, q)
		case opPointer:
			e := *(*unsafe.Pointer)(q)
			if e == nil {
				dst = append(dst, 0)
				continue
			}
			dst = o.sub.append(append(dst, 1), e)
		case opCustom:
			dst = o.custom.appendTo(dst, q)
		}
	}
	return dst
}

func (o *op) appendElems(dst []byte, p unsafe.Pointer, n uintptr) []byte {
	if w := o.sub.wholeCopy(o.size); w {
		return append(dst, view(p, n*o.size)...)
	}
	for i := uintptr(0); i < n; i++ {
		dst = o.sub.append(dst, unsafe.Add(p, i*o.size))
	}
	return dst
}

// wholeCopy reports whether the encoding is the memory of the type, without padding.
func (pr *program) wholeCopy(size uintptr) bool {
	if len(pr.ops) == 0 {
		return size == 0
	}
	if len(pr.ops) != 1 {
		return false
	}
	k := pr.ops[0].kind
	return (k == opCopy || k == opCopy8 || k == opCopy4) && pr.ops[0].n == size
}

func appendBytes(dst, b []byte) []byte {
	if b == nil {
		return append(dst, 0)
	}
	dst = binary.AppendUvarint(dst, uint64(len(b))+1)
	return append(dst, b...)
}

// decode reads the fields from src[i:] and returns the position behind them.
func (pr *program) decode(src []byte, i int, p unsafe.Pointer) (int, error) {
	for k := range pr.ops {
		o := &pr.ops[k]
		q := unsafe.Add(p, o.off)
		switch o.kind {
		case opCopy8:
			if len(src)-i < 8 {
				return i, errAt(o, len(src), reasonShort)
			}
			*(*uint64)(q) = binary.LittleEndian.Uint64(src[i:])
			i += 8
		case opCopy4:
			if len(src)-i < 4 {
				return i, errAt(o, len(src), reasonShort)
			}
			*(*uint32)(q) = binary.LittleEndian.Uint32(src[i:])
			i += 4
		case opCopy:
			n := int(o.n)
			if len(src)-i < n {
				return i, errAt(o, len(src), reasonShort)
			}
			i += copy(view(q, o.n), src[i:])
		case opTime:
			if len(src)-i < 12 {
				return i, errAt(o, len(src), reasonShort)
			}
			ns := binary.LittleEndian.Uint32(src[i+8:])
			if ns > 999999999 {
				return i, errAt(o, i+8, "nanoseconds of a time out of range")
			}
			*(*time.Time)(q) = time.Unix(int64(binary.LittleEndian.Uint64(src[i:])), int64(ns)).UTC()
			i += 12
		case opString:
			if i < len(src) && src[i] < 0x80 {
				l := int(src[i])
				i++
				if l > len(src)-i {
					return i, errAt(o, i, reasonShort)
				}
				*(*string)(q) = viewString(src[i : i+l])
				i += l
				continue
			}
			l, w, ok := readLen(src[i:])
			if !ok || l > len(src)-i-w {
				return i, errAt(o, i, reasonShort)
			}
			i += w
			*(*string)(q) = viewString(src[i : i+l])
			i += l
		default:
			var err error
			if i, err = o.decode(src, i, q); err != nil {
				return i, err
			}
		}
	}
	return i, nil
}

// decode handles the rarer kinds.
func (o *op) decode(src []byte, i int, q unsafe.Pointer) (int, error) {
	switch o.kind {
	case opBool:
		if i >= len(src) {
			return i, errAt(o, i, reasonShort)
		}
		if src[i] > 1 {
			return i, errAt(o, i, "not a bool")
		}
		*(*bool)(q) = src[i] == 1
		return i + 1, nil
	case opBytes:
		l, w, ok := readLen(src[i:])
		if !ok || l-1 > len(src)-i-w {
			return i, errAt(o, i, reasonShort)
		}
		i += w
		if l == 0 {
			*(*[]byte)(q) = nil
			return i, nil
		}
		*(*[]byte)(q) = src[i : i+l-1 : i+l-1]
		return i + l - 1, nil
	case opSlice:
		return o.decodeSlice(src, i, q)
	case opArray:
		return o.decodeElems(src, i, q, int(o.n))
	case opMap:
		return o.decodeMap(src, i, q)
	case opPointer:
		if i >= len(src) {
			return i, errAt(o, i, reasonShort)
		}
		if src[i] == 0 {
			*(*unsafe.Pointer)(q) = nil
			return i + 1, nil
		}
		if src[i] != 1 {
			return i, errAt(o, i, "not a pointer mark")
		}
		e := o.newElems(1)
		*(*unsafe.Pointer)(q) = e
		return o.sub.decode(src, i+1, e)
	case opCustom:
		n, err := o.custom.decodeTo(src[i:], q)
		if err != nil {
			return i, errAt(o, i, err.Error())
		}
		if n < 0 || n > len(src)-i {
			return i, errAt(o, i, "codec read outside of its input")
		}
		return i + n, nil
	case opSkip:
		return o.skip.skip(src, i, o)
	case opDefault:
		_, err := o.sub.decode(o.def, 0, q)
		return i, err
	case opWiden:
		n := int(o.n)
		if len(src)-i < n {
			return i, errAt(o, len(src), reasonShort)
		}
		switch u := o.wide.widen(src[i:i+n], o.size); o.size {
		case 2:
			*(*uint16)(q) = uint16(u)
		case 4:
			*(*uint32)(q) = uint32(u)
		default:
			*(*uint64)(q) = u
		}
		return i + n, nil
	case opWrap:
		e := o.newElems(1)
		*(*unsafe.Pointer)(q) = e
		return o.sub.decode(src, i, e)
	}
	return i, errAt(o, i, "unknown instruction")
}

func (o *op) decodeSlice(src []byte, i int, q unsafe.Pointer) (int, error) {
	l, w, ok := readLen(src[i:])
	if !ok {
		return i, errAt(o, i, reasonShort)
	}
	i += w
	if l == 0 {
		*(*sliceHeader)(q) = sliceHeader{}
		return i, nil
	}
	l--
	if o.min > 0 && l > (len(src)-i)/o.min {
		return i, errAt(o, i, "length of a slice exceeds the input")
	}
	e := o.newElems(l)
	*(*sliceHeader)(q) = sliceHeader{e, l, l}
	return o.decodeElems(src, i, e, l)
}

func (o *op) decodeElems(src []byte, i int, e unsafe.Pointer, n int) (int, error) {
	if o.sub.wholeCopy(o.size) {
		b := uintptr(n) * o.size
		if uintptr(len(src)-i) < b {
			return i, errAt(o, len(src), reasonShort)
		}
		if b == 0 {
			return i, nil
		}
		return i + copy(view(e, b), src[i:]), nil
	}
	if len(o.sub.ops) == 0 {
		return i, nil
	}
	var err error
	for k := 0; k < n; k++ {
		if i, err = o.sub.decode(src, i, unsafe.Add(e, uintptr(k)*o.size)); err != nil {
			return i, err
		}
	}
	return i, nil
}

// newElems allocates n zeroed elements.
func (o *op) newElems(n int) unsafe.Pointer {
	if o.plain || n == 0 {
		return allocPlain(uintptr(n) * o.size)
	}
	if o.typ.Kind() == reflect.String {
		return unsafe.Pointer(unsafe.SliceData(make([]string, n)))
	}
	if n == 1 {
		return reflect.New(o.typ).UnsafePointer()
	}
	return reflect.MakeSlice(reflect.SliceOf(o.typ), n, n).UnsafePointer()
}

// heapMap returns the map stored at q as a reflect.Value that does not refer to q (see unsafe.go, rule 2).
func (o *op) heapMap(q unsafe.Pointer) reflect.Value {
	cell := reflect.New(o.typ)
	*(*unsafe.Pointer)(cell.UnsafePointer()) = *(*unsafe.Pointer)(q)
	return cell.Elem()
}

func (o *op) appendMap(dst []byte, q unsafe.Pointer) []byte {
	if *(*unsafe.Pointer)(q) == nil {
		return append(dst, 0)
	}
	m := o.heapMap(q)
	dst = binary.AppendUvarint(dst, uint64(m.Len())+1)
	if m.Len() == 0 {
		return dst
	}
	type span struct{ start, mid, end int }
	k, v := reflect.New(o.typ.Key()), reflect.New(o.typ.Elem())
	spans := make([]span, 0, m.Len())
	first := len(dst)
	for it := m.MapRange(); it.Next(); {
		k.Elem().SetIterKey(it)
		v.Elem().SetIterValue(it)
		s := span{start: len(dst)}
		dst = o.key.append(dst, k.UnsafePointer())
		s.mid = len(dst)
		dst = o.sub.append(dst, v.UnsafePointer())
		s.end = len(dst)
		spans = append(spans, s)
	}
	less := func(a, b int) bool {
		return bytes.Compare(dst[spans[a].start:spans[a].mid], dst[spans[b].start:spans[b].mid]) < 0
	}
	if sort.SliceIsSorted(spans, less) {
		return dst
	}
	sort.Slice(spans, less)
	sorted := make([]byte, 0, len(dst)-first)
	for _, s := range spans {
		sorted = append(sorted, dst[s.start:s.end]...)
	}
	copy(dst[first:], sorted)
	return dst
}

func (o *op) decodeMap(src []byte, i int, q unsafe.Pointer) (int, error) {
	l, w, ok := readLen(src[i:])
	if !ok {
		return i, errAt(o, i, reasonShort)
	}
	i += w
	if l == 0 {
		*(*unsafe.Pointer)(q) = nil
		return i, nil
	}
	l--
	if o.min == 0 && l > 1 || o.min > 0 && l > (len(src)-i)/o.min {
		return i, errAt(o, i, "length of a map exceeds the input")
	}
	m := reflect.MakeMapWithSize(o.typ, l)
	k, v := reflect.New(o.typ.Key()), reflect.New(o.typ.Elem())
	var err error
	for ; l > 0; l-- {
		k.Elem().SetZero()
		v.Elem().SetZero()
		if i, err = o.key.decode(src, i, k.UnsafePointer()); err != nil {
			return i, err
		}
		if i, err = o.sub.decode(src, i, v.UnsafePointer()); err != nil {
			return i, err
		}
		m.SetMapIndex(k.Elem(), v.Elem())
	}
	*(*unsafe.Pointer)(q) = m.UnsafePointer()
	return i, nil
}
