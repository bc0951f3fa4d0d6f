package serde

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"unsafe"
)

// JSON is the format of messages that are one JSON value each, with the rules of encoding/json: tags, case-insensitive names as a
// second choice, unknown fields ignored, HTML characters escaped.
//
// Structs of scalars, strings, times and further such structs are decoded and encoded by a program compiled from the type; fields of
// other types inside of them go through encoding/json one by one. Input that is out of the ordinary (escapes beyond the simple ones,
// names in another case, numbers out of range, anything malformed) is handed to encoding/json as a whole, so what is accepted, its
// meaning and what is refused are the same everywhere. Errors show at most 64 bytes of the message.
//
// Deserialize does not retain data. The strings of one value share one allocation.
func JSON[T any]() Format[T] {
	t := reflect.TypeFor[T]()
	return &jsonFormat[T]{name: t.String(), pr: jsonProgramOf(t)}
}

type jsonFormat[T any] struct {
	name string
	pr   *jsonProgram // nil: encoding/json only
}

func (f *jsonFormat[T]) Name() string { return "json" }

func (f *jsonFormat[T]) Deserialize(data []byte) (T, error) {
	if f.pr == nil {
		return f.slowDecode(data)
	}
	r := jsonReader{data: data, shared: f.pr.strings > 1}
	if f.pr.opaque { // encoding/json gets addresses of fields, so the value must be in the heap
		v := new(T)
		if r.message(f.pr, unsafe.Pointer(v)) {
			return *v, nil
		}
		return f.slowDecode(data)
	}
	var v T
	if r.message(f.pr, noescape(unsafe.Pointer(&v))) {
		return v, nil
	}
	return f.slowDecode(data)
}

func (f *jsonFormat[T]) slowDecode(data []byte) (T, error) {
	v := new(T)
	err := json.Unmarshal(data, v)
	if err == nil {
		return *v, nil
	}
	var zero T
	return zero, f.describe(data, err)
}

// describe says what is wrong and where, without the message itself.
func (f *jsonFormat[T]) describe(data []byte, err error) error {
	d := &DecodeError{Type: f.name, Offset: len(data)}
	var syntax *json.SyntaxError
	var typ *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		d.Offset, d.Reason = int(max(syntax.Offset-1, 0)), limit(syntax.Error())
	case errors.As(err, &typ):
		d.Offset, d.Path = int(typ.Offset), typ.Field
		d.Reason = fmt.Sprintf("JSON %s does not fit Go type %s", limit(typ.Value), typ.Type)
	default:
		d.Reason = limit(err.Error())
	}
	d.Reason += ", near " + Excerpt(data, d.Offset)
	return d
}

// limit cuts texts of encoding/json, which may quote input, to 160 bytes.
func limit(s string) string {
	if len(s) > 160 {
		return s[:160] + "..."
	}
	return s
}

func (f *jsonFormat[T]) Serialize(dst []byte, v T) ([]byte, error) {
	if f.pr != nil {
		if out, ok := f.pr.append(dst, noescape(unsafe.Pointer(&v))); ok {
			return out, nil
		}
	}
	return f.slowEncode(dst, v)
}

func (f *jsonFormat[T]) slowEncode(dst []byte, v T) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return dst, fmt.Errorf("serde: encode %s as JSON: %s", f.name, limit(err.Error()))
	}
	return append(dst, b...), nil
}

// jsonKind says how a field is written.
type jsonKind uint8

const (
	jsonInt jsonKind = iota
	jsonUint
	jsonFloat
	jsonBool
	jsonString
	jsonTime
	jsonStruct
	jsonOpaque // by encoding/json
)

type jsonField struct {
	name      string
	quoted    string // `"name":`
	off       uintptr
	size      uintptr // of numbers
	kind      jsonKind
	omitEmpty bool
	sub       *jsonProgram
	typ       reflect.Type
}

// jsonProgram is the compiled form of a struct.
type jsonProgram struct {
	fields  []jsonField
	byName  map[string]int
	strings int // string fields, nested ones included
	opaque  bool
}

var jsonPrograms sync.Map // reflect.Type -> *jsonProgram, nil for types that encoding/json does alone

func jsonProgramOf(t reflect.Type) *jsonProgram {
	if p, ok := jsonPrograms.Load(t); ok {
		return p.(*jsonProgram)
	}
	p, _ := jsonPrograms.LoadOrStore(t, compileJSON(t, 0))
	return p.(*jsonProgram)
}

var (
	jsonTypes = []reflect.Type{
		reflect.TypeFor[json.Marshaler](), reflect.TypeFor[json.Unmarshaler](),
		reflect.TypeFor[encoding.TextMarshaler](), reflect.TypeFor[encoding.TextUnmarshaler](),
	}
	numberType = reflect.TypeFor[json.Number]()
)

// ownJSON reports whether t decides itself about its JSON form. encoding/json/v2 methods are found by name.
func ownJSON(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	for _, i := range jsonTypes {
		if p.Implements(i) {
			return true
		}
	}
	for _, m := range []string{"MarshalJSONTo", "UnmarshalJSONFrom"} {
		if _, ok := p.MethodByName(m); ok {
			return true
		}
	}
	return t == numberType
}

// compileJSON returns nil for types with anything that this compiler does not know exactly.
func compileJSON(t reflect.Type, depth int) *jsonProgram {
	if t.Kind() != reflect.Struct || t == timeType || ownJSON(t) || depth > 16 {
		return nil
	}
	p := &jsonProgram{byName: map[string]int{}}
	for i := range t.NumField() {
		sf := t.Field(i)
		tag, tagged := sf.Tag.Lookup("json")
		if tag == "-" {
			continue
		}
		if sf.Anonymous {
			return nil
		}
		if !sf.IsExported() {
			if tagged {
				return nil
			}
			continue
		}
		name, opts, _ := strings.Cut(tag, ",")
		if name == "" {
			name = sf.Name
		}
		f := jsonField{name: name, off: sf.Offset, size: sf.Type.Size(), typ: sf.Type}
		if !plainName(name) {
			return nil
		}
		for o := range strings.SplitSeq(opts, ",") {
			switch o {
			case "":
			case "omitempty":
				f.omitEmpty = true
			default:
				return nil
			}
		}
		for j := range p.fields {
			if strings.EqualFold(p.fields[j].name, name) {
				return nil
			}
		}
		f.quoted = `"` + name + `":`
		p.setKind(&f, depth)
		p.byName[name] = len(p.fields)
		p.fields = append(p.fields, f)
	}
	return p
}

func (p *jsonProgram) setKind(f *jsonField, depth int) {
	f.kind = jsonOpaque
	switch {
	case f.typ == timeType:
		f.kind = jsonTime
	case ownJSON(f.typ):
	default:
		switch f.typ.Kind() {
		case reflect.Bool:
			f.kind = jsonBool
		case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
			f.kind = jsonInt
		case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
			f.kind = jsonUint
		case reflect.Float32, reflect.Float64:
			f.kind = jsonFloat
		case reflect.String:
			f.kind = jsonString
			p.strings++
		case reflect.Struct:
			if sub := compileJSON(f.typ, depth+1); sub != nil {
				f.kind, f.sub = jsonStruct, sub
				p.strings += sub.strings
				p.opaque = p.opaque || sub.opaque
			}
		}
	}
	p.opaque = p.opaque || f.kind == jsonOpaque
}

func plainName(s string) bool {
	for i := range len(s) {
		c := s[i]
		if c >= 0x80 || !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-' || c == '.') {
			return false
		}
	}
	return s != ""
}
