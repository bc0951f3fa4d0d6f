package serde

import (
	"fmt"
	"reflect"
	"time"
	"unsafe"
)

// result is what For found out about a type, once.
type result[T any] struct {
	codec Codec[T]
	err   error
}

// For returns the engine's codec of T, compiled on first use and kept for the life of the process.
//
// T may be made of bools, integers, floats, strings, byte slices, time.Time (kept to the nanosecond, in UTC), time.Duration, slices,
// arrays, maps, pointers and structs of these; types given to Register; and types with MarshalBinary and UnmarshalBinary methods
// where the above does not fit. Channels, functions, interfaces, complex numbers, types that contain themselves and unexported
// fields are refused by a *TypeError that names every offending path. Fields named _ are skipped.
//
// As keys of streams and states, 0 and -0 are one key, and NaN is refused; the encodings of 0 and -0 differ.
func For[T any]() (Codec[T], error) {
	t := reflect.TypeFor[T]()
	r := codecOf(t)
	if r == nil {
		c, err := compileFor[T](t)
		r = keepCodec(t, result[T]{c, err})
	}
	x := r.(result[T])
	return x.codec, x.err
}

// codecOf and keepCodec keep sync.Map, which is generic inside, out of what is compiled in each program.
func codecOf(t reflect.Type) any {
	r, _ := compiled.Load(t)
	return r
}

func keepCodec(t reflect.Type, r any) any {
	r, _ = compiled.LoadOrStore(t, r)
	return r
}

// Must is For for types known to have a codec; it panics otherwise. It is meant for package variables.
func Must[T any]() Codec[T] {
	c, err := For[T]()
	if err != nil {
		panic(err)
	}
	return c
}

// ForKey is For with the further checks on keys: equality by == must be equality of the encoded form, so pointers and time.Time (its
// == also compares the zone and the monotonic clock) are refused.
func ForKey[K comparable]() (Codec[K], error) {
	t := reflect.TypeFor[K]()
	var problems []string
	checkKey(t, "", &problems, 0)
	if len(problems) > 0 {
		return nil, &TypeError{Type: typeName(t), Problems: problems}
	}
	return For[K]()
}

func checkKey(t reflect.Type, path string, problems *[]string, depth int) {
	if depth > maxDepth {
		return
	}
	if _, ok := registered(t); ok {
		return
	}
	switch {
	case t == timeType:
		*problems = append(*problems, at(path)+": time.Time cannot be a key (== compares zone and monotonic clock); use UnixMilli or UnixNano")
	case t.Kind() == reflect.Pointer:
		*problems = append(*problems, at(path)+": a pointer cannot be a key; use the value")
	case t.Kind() == reflect.Struct:
		for i := range t.NumField() {
			checkKey(t.Field(i).Type, path+"."+t.Field(i).Name, problems, depth+1)
		}
	case t.Kind() == reflect.Array:
		checkKey(t.Elem(), path+"[]", problems, depth+1)
	}
}

func compileFor[T any](t reflect.Type) (Codec[T], error) {
	if r, ok := registered(t); ok {
		return r.codec.(Codec[T]), nil
	}
	var c compiler
	pr, schema := c.compile(t, nil)
	if len(c.problems) > 0 {
		return nil, &TypeError{Type: typeName(t), Problems: c.problems}
	}
	s := scalar{typeName(t), schema}
	if len(pr.ops) == 1 && pr.ops[0].off == 0 {
		switch k := pr.ops[0].kind; {
		case k == opCopy8 && t.Size() == 8:
			return &word[T]{s, false}, nil
		case k == opCopy4 && t.Size() == 4:
			return &word[T]{s, true}, nil
		case k == opString && t.Kind() == reflect.String:
			return &text[T]{s}, nil
		}
	}
	return &programCodec[T]{scalar: s, pr: pr, from: pr}, nil
}

// programCodec runs a program on values of T.
type programCodec[T any] struct {
	scalar
	pr   *program
	from *program // decodes; another than pr when values were stored with another schema
}

func (c *programCodec[T]) Append(dst []byte, v T) []byte {
	return c.pr.append(dst, noescape(unsafe.Pointer(&v)))
}

func (c *programCodec[T]) AppendFrom(dst []byte, p *T) []byte {
	return c.pr.append(dst, unsafe.Pointer(p))
}

func (c *programCodec[T]) Decode(src []byte) (v T, n int, err error) {
	n, err = c.from.decode(src, 0, noescape(unsafe.Pointer(&v)))
	if err != nil {
		var zero T
		return zero, 0, withType(err, c.name)
	}
	return v, n, nil
}

func (c *programCodec[T]) DecodeInto(src []byte, p *T) (int, error) {
	if c.from != c.pr { // it may leave fields alone
		var zero T
		*p = zero
	}
	n, err := c.from.decode(src, 0, unsafe.Pointer(p))
	if err != nil {
		return 0, withType(err, c.name)
	}
	return n, nil
}

func withType(err error, typ string) error {
	if d, ok := err.(*DecodeError); ok { //nolint:errorlint // as the codec makes it
		d.Type = typ
	}
	return err
}

func (c *programCodec[T]) Clone(v T) T {
	if len(c.pr.cloneOps) > 0 {
		c.pr.clone(noescape(unsafe.Pointer(&v)))
	}
	return v
}

func (c *programCodec[T]) Views() bool    { return c.pr.views }
func (c *programCodec[T]) Pointers() bool { return c.pr.pointers }
func (c *programCodec[T]) Mutable() bool  { return c.pr.mutable }
func (c *programCodec[T]) Lossy() bool    { return c.pr.lossy }

const maxDepth = 64

var (
	timeType = reflect.TypeFor[time.Time]()
)

// compiler turns a type into a program and a schema, and collects every problem on the way.
type compiler struct {
	problems []string
	open     []reflect.Type // the types being compiled, to find cycles
}

func typeName(t reflect.Type) string { return t.String() }

func at(path string) string {
	if path == "" {
		return "the type itself"
	}
	if path[0] == '.' {
		return path[1:]
	}
	return path
}

func (c *compiler) fail(path, format string, args ...any) {
	c.problems = append(c.problems, at(path)+": "+fmt.Sprintf(format, args...))
}

// compile compiles t. With old set, the program decodes what old describes into t; old and t were found compatible before.
func (c *compiler) compile(t reflect.Type, old *Schema) (*program, Schema) { return c.sub(t, "", old) }

// sub compiles an element type into a program of its own.
func (c *compiler) sub(t reflect.Type, path string, old *Schema) (*program, Schema) {
	pr := &program{}
	s := c.emit(pr, t, 0, path, old)
	pr.finish(t)
	return pr, s
}

// finish merges runs of adjacent fixed-width fields and derives the rest.
func (pr *program) finish(t reflect.Type) {
	pr.merge()
	pr.pointers = hasPointers(t)
	for i := range pr.ops {
		o := &pr.ops[i]
		switch o.kind {
		case opCopy, opCopy8, opCopy4:
			pr.min += int(o.n)
		case opTime:
			pr.min += 12
		case opArray:
			pr.min += int(o.n) * o.min
		case opSkip:
			pr.min += o.skip.least()
		case opWiden:
			pr.min += int(o.n)
		case opWrap:
			pr.min += o.sub.min
		case opDefault: // takes no input
		default:
			pr.min++ // custom codecs too: Register asks for at least one byte
		}
		switch o.kind {
		case opString:
			pr.views = true
			pr.cloneOps = append(pr.cloneOps, *o)
		case opBytes:
			pr.views, pr.mutable = true, true
			pr.cloneOps = append(pr.cloneOps, *o)
		case opTime:
			pr.lossy = true
		case opSlice, opPointer, opWrap, opMap:
			pr.lossy = pr.lossy || o.sub.lossy || o.key != nil && o.key.lossy
			pr.views = pr.views || o.sub.views || o.key != nil && o.key.views
			pr.mutable = true
			pr.cloneOps = append(pr.cloneOps, *o)
		case opArray:
			pr.views, pr.mutable, pr.lossy = pr.views || o.sub.views, pr.mutable || o.sub.mutable, pr.lossy || o.sub.lossy
			if len(o.sub.cloneOps) > 0 {
				pr.cloneOps = append(pr.cloneOps, *o)
			}
		case opCustom:
			pr.lossy = true // for all that is known
			if r, ok := registered(o.typ); ok {
				pr.views, pr.mutable = pr.views || r.views, pr.mutable || r.mutable
			} else {
				pr.mutable = true
			}
			if hasPointers(o.typ) {
				pr.cloneOps = append(pr.cloneOps, *o)
			}
		}
	}
}

// merge joins copies of adjacent memory. The encoding does not change.
func (pr *program) merge() {
	var out []op
	for _, o := range pr.ops {
		if o.kind == opCopy && len(out) > 0 {
			if l := &out[len(out)-1]; l.kind == opCopy && l.off+l.n == o.off {
				l.n += o.n
				continue
			}
		}
		out = append(out, o)
	}
	for i := range out {
		if out[i].kind == opCopy {
			switch out[i].n {
			case 8:
				out[i].kind = opCopy8
			case 4:
				out[i].kind = opCopy4
			}
		}
	}
	pr.ops = out
}

// emit appends the instructions for a value of type t at offset off and returns its schema.
func (c *compiler) emit(pr *program, t reflect.Type, off uintptr, path string, old *Schema) Schema {
	add := func(o op) { o.off, o.path = off, path; pr.ops = append(pr.ops, o) }
	if r, ok := registered(t); ok {
		if old != nil && !Same(*old, r.schema) {
			c.fail(path, "stored %s: the codec of %s cannot read other versions", old, t)
		}
		add(op{kind: opCustom, custom: r.erased, typ: t})
		return r.schema
	}
	if t == timeType {
		add(op{kind: opTime})
		return Schema{Kind: "time"}
	}
	if len(c.open) >= maxDepth {
		c.fail(path, "nested deeper than %d levels", maxDepth)
		return Schema{}
	}
	for _, o := range c.open {
		if o == t {
			c.fail(path, "%s contains itself; flatten it or give it MarshalBinary and UnmarshalBinary", t)
			return Schema{}
		}
	}
	c.open = append(c.open, t)
	defer func() { c.open = c.open[:len(c.open)-1] }()

	before, ops := len(c.problems), len(pr.ops)
	s := c.emitKind(pr, t, off, path, old, add)
	if len(c.problems) > before && marshals(t) {
		c.problems, pr.ops = c.problems[:before], pr.ops[:ops]
		add(op{kind: opCustom, custom: &marshaler{t}, typ: t})
		return Schema{Kind: "custom", Name: typeName(t), Elem: &Schema{Kind: "blob"}}
	}
	return s
}

func (c *compiler) emitKind(pr *program, t reflect.Type, off uintptr, path string, old *Schema, add func(op)) Schema {
	if now := numberKind(t); now != "" && old != nil {
		if w := widens(old.Kind, now); w != notWider {
			add(op{kind: opWiden, wide: w, n: uintptr(width(old.Kind)), size: t.Size()})
			return *old
		}
	}
	switch k := t.Kind(); k {
	case reflect.Bool:
		add(op{kind: opBool})
		return Schema{Kind: "bool"}
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64,
		reflect.Float32, reflect.Float64:
		add(op{kind: opCopy, n: t.Size()})
		return Schema{Kind: k.String()}
	case reflect.Int:
		add(op{kind: opCopy, n: 8})
		return Schema{Kind: "int64"}
	case reflect.Uint:
		add(op{kind: opCopy, n: 8})
		return Schema{Kind: "uint64"}
	case reflect.String:
		add(op{kind: opString})
		return Schema{Kind: "string"}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			if _, ok := registered(t.Elem()); !ok {
				add(op{kind: opBytes})
				return Schema{Kind: "bytes"}
			}
		}
		sub, s := c.sub(t.Elem(), path+"[]", old.elem())
		if sub.min == 0 && t.Elem().Size() > 0 && len(c.problems) == 0 {
			c.fail(path, "elements of %s encode to nothing", t)
		}
		add(op{kind: opSlice, sub: sub, size: t.Elem().Size(), typ: t.Elem(), plain: !hasPointers(t.Elem()), min: sub.min})
		return Schema{Kind: "slice", Elem: &s}
	case reflect.Array:
		sub, s := c.sub(t.Elem(), path+"[]", old.elem())
		if sub.wholeCopy(t.Elem().Size()) {
			add(op{kind: opCopy, n: t.Size()})
		} else {
			add(op{kind: opArray, sub: sub, n: uintptr(t.Len()), size: t.Elem().Size(), typ: t.Elem(), plain: !hasPointers(t.Elem()), min: sub.min})
		}
		return Schema{Kind: "array", Elem: &s, Len: t.Len()}
	case reflect.Map:
		key, ks := c.sub(t.Key(), path+"{key}", old.key())
		val, vs := c.sub(t.Elem(), path+"{}", old.elem())
		if key.pointers && containsKind(t.Key(), reflect.Pointer, 0) {
			c.fail(path+"{key}", "map keys must not be pointers")
		}
		add(op{kind: opMap, key: key, sub: val, typ: t, min: key.min + val.min})
		return Schema{Kind: "map", Key: &ks, Elem: &vs}
	case reflect.Pointer:
		if old != nil && old.Kind != "pointer" {
			sub, s := c.sub(t.Elem(), path, old)
			add(op{kind: opWrap, sub: sub, size: t.Elem().Size(), typ: t.Elem(), plain: !hasPointers(t.Elem())})
			return s
		}
		sub, s := c.sub(t.Elem(), path, old.elem())
		add(op{kind: opPointer, sub: sub, size: t.Elem().Size(), typ: t.Elem(), plain: !hasPointers(t.Elem()), min: sub.min})
		return Schema{Kind: "pointer", Elem: &s}
	case reflect.Struct:
		return c.emitStruct(pr, t, off, path, old)
	case reflect.Interface:
		c.fail(path, "%s (interface) cannot be encoded, since it does not tell what to decode: take a concrete type, or give a codec of it to serde.Register", t)
		return Schema{}
	default:
		c.fail(path, "%s (%s) cannot be encoded", t, k)
		return Schema{}
	}
}

func (c *compiler) emitStruct(pr *program, t reflect.Type, off uintptr, path string, old *Schema) Schema {
	s := Schema{Kind: "struct", Name: typeName(t)}
	if old != nil {
		return c.emitMigration(pr, t, off, path, old)
	}
	for i := range t.NumField() {
		f := t.Field(i)
		p := path + "." + f.Name
		if f.Name == "_" {
			continue
		}
		if !f.IsExported() && !(f.Anonymous && embeddable(f.Type)) {
			c.fail(p, "unexported field; export it, or register a codec for %s with serde.Register", t)
			continue
		}
		fs := c.emit(pr, f.Type, off+f.Offset, p, nil)
		h, err := historyOf(f)
		if err == nil && h.def != nil {
			_, err = defaultOf(f.Type, *h.def)
		}
		if err != nil {
			c.fail(p, "%v", err)
		}
		s.Fields = append(s.Fields, SchemaField{Name: f.Name, Type: fs, Aliases: h.aliases})
	}
	c.checkHistory(path, s.Fields)
	return s
}

// numberKind is the schema kind of a number type that a narrower one may become, "" for other types.
func numberKind(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Int:
		return "int64"
	case reflect.Uint:
		return "uint64"
	case reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Float32, reflect.Float64:
		return t.Kind().String()
	}
	return ""
}

// embeddable reports whether an unexported embedded field is usable: its exported fields are promoted.
func embeddable(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Kind() == reflect.Struct
}

func containsKind(t reflect.Type, k reflect.Kind, depth int) bool {
	if t.Kind() == k {
		return true
	}
	if depth > maxDepth {
		return false
	}
	switch t.Kind() {
	case reflect.Array:
		return containsKind(t.Elem(), k, depth+1)
	case reflect.Struct:
		if t == timeType {
			return false
		}
		for i := range t.NumField() {
			if containsKind(t.Field(i).Type, k, depth+1) {
				return true
			}
		}
	}
	return false
}

// hasPointers reports whether the memory of t holds pointers that the garbage collector follows.
func hasPointers(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8,
		reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr, reflect.Float32, reflect.Float64, reflect.Complex64, reflect.Complex128:
		return false
	case reflect.Array:
		return t.Len() > 0 && hasPointers(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if hasPointers(t.Field(i).Type) {
				return true
			}
		}
		return false
	default:
		return true
	}
}
