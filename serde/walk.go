package serde

import "errors"

// ErrShort and ErrOpaque say why Schema.Split cannot tell what a value consists of.
var (
	ErrShort  = errors.New("the value ends before its type does")
	ErrOpaque = errors.New("the type has a codec of its own, which only the job's program has")
)

// Piece is what an encoded value begins with. Behind Head and Body come the parts: Count times the types of Parts, one after another.
type Piece struct {
	Head  int    // bytes of a length or mark
	Body  []byte // what a number, time, string or byte slice is; a view
	Null  bool   // a nil slice, map, pointer or byte slice
	Count int
}

// Size is the number of bytes before the parts.
func (p Piece) Size() int { return p.Head + len(p.Body) }

// Split tells what the value at the front of src begins with, by its schema alone: with Parts, a walk over the values of any type that
// has no codec of its own. A Count that the bytes do not bear out is found by the parts that are missing; parts may have no bytes. Errors:
// ErrShort, ErrOpaque.
//
// **Source:** the encoding of this package: numbers are little-endian and as wide as their kind, a time is seconds (8 bytes) and nanoseconds
// (4); lengths are uvarints, with 0 for nil and one more than the length for what can be nil (all but strings and blobs); a pointer is a mark
// of one byte, 0 for nil; structs and arrays are their parts alone.
func (s *Schema) Split(src []byte) (Piece, error) {
	if s == nil {
		return Piece{}, ErrOpaque
	}
	if w := width(s.Kind); w > 0 {
		if len(src) < w {
			return Piece{}, ErrShort
		}
		return Piece{Body: src[:w]}, nil
	}
	switch s.Kind {
	case "struct":
		return Piece{Count: 1}, nil
	case "array":
		return Piece{Count: s.Len}, nil
	case "pointer":
		if len(src) == 0 {
			return Piece{}, ErrShort
		}
		if src[0] == 0 {
			return Piece{Head: 1, Null: true}, nil
		}
		return Piece{Head: 1, Count: 1}, nil
	case "custom":
		if s.Elem == nil || s.Elem.Kind != "blob" {
			return Piece{}, ErrOpaque
		}
	case "string", "bytes", "slice", "map":
	default:
		return Piece{}, ErrOpaque
	}
	l, w, ok := readLen(src)
	if !ok {
		return Piece{}, ErrShort
	}
	if s.Kind == "bytes" || s.Kind == "slice" || s.Kind == "map" {
		if l == 0 {
			return Piece{Head: w, Null: true}, nil
		}
		l--
	}
	if s.Kind == "slice" || s.Kind == "map" {
		return Piece{Head: w, Count: l}, nil
	}
	if l > len(src)-w {
		return Piece{}, ErrShort
	}
	return Piece{Head: w, Body: src[w : w+l]}, nil
}

// Parts are the types of which a value that Split finds Count times consists: a struct's fields, an element, a map's key and value.
func (s *Schema) Parts(yield func(*Schema) bool) {
	switch s.Kind {
	case "struct":
		for i := range s.Fields {
			if !yield(&s.Fields[i].Type) {
				return
			}
		}
	case "map":
		if yield(s.Key) {
			yield(s.Elem)
		}
	case "slice", "array", "pointer":
		yield(s.Elem)
	}
}

// Scalar reports whether the type is a number, a bool or a time.
func (s *Schema) Scalar() bool { return s != nil && width(s.Kind) > 0 }

// width is the size of a scalar's encoding, 0 for other kinds.
func width(kind string) int {
	switch kind {
	case "bool", "int8", "uint8":
		return 1
	case "int16", "uint16":
		return 2
	case "int32", "uint32", "float32":
		return 4
	case "int64", "uint64", "float64":
		return 8
	case "time":
		return 12
	}
	return 0
}

// least is the least number of bytes that a value takes.
func (s *Schema) least() int {
	switch {
	case s == nil:
		return 0
	case s.Kind == "struct" || s.Kind == "array":
		n := 0
		for p := range s.Parts {
			n += p.least()
		}
		if s.Kind == "array" {
			n *= s.Len
		}
		return n
	case s.Scalar():
		return width(s.Kind)
	}
	return 1
}

// Length is how many bytes the value at the front of src has. Errors: ErrOpaque; *DecodeError.
func (s *Schema) Length(src []byte) (int, error) {
	if s.unskippable() != "" {
		return 0, ErrOpaque
	}
	n, err := s.skip(src, 0, &op{})
	return n, withType(err, s.String())
}

// skip passes over the value at src[i], for an instruction of a program.
func (s *Schema) skip(src []byte, i int, o *op) (int, error) {
	p, err := s.Split(src[i:])
	if err != nil {
		return i, errAt(o, i, reasonShort)
	}
	i += p.Size()
	for range p.Count {
		at := i
		for part := range s.Parts {
			if i, err = part.skip(src, i, o); err != nil {
				return i, err
			}
		}
		if i == at { // parts without bytes
			break
		}
	}
	return i, nil
}
