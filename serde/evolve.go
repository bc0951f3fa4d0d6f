package serde

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// SchemaError lists why state written with one schema cannot be read as another type.
type SchemaError struct {
	Misfits []string // "<path>: stored <type>, now <type>"
}

func (e *SchemaError) Error() string {
	return "serde: incompatible schema: " + strings.Join(e.Misfits, "; ")
}

// Compatible reports, as nil, that values written with schema old can be read by the type that updated describes. Both are the same, or they
// differ by
//
//   - fields that were added (they read as their default, see Tag, else as zero), removed (they are passed over), or in another order;
//   - fields that were renamed, when the new one has the old name as an alias (see Tag); names of struct types do not matter;
//   - numbers that became wider without loss: int8 to int64 in steps, also unsigned ones, unsigned to wider signed ones, float32 to float64, and
//     integers to a float that holds all of their values (int32 to float64, int16 to float32);
//   - values that became pointers.
//
// Keys of maps inside of values may become wider or get fields, but lose none, since keys could become equal. Otherwise the error is a
// *SchemaError with every path and both types.
func Compatible(old, updated Schema) error {
	var c comparison
	c.compare(&old, &updated, "", false)
	if len(c.misfits) > 0 {
		return &SchemaError{c.misfits}
	}
	return nil
}

type comparison struct{ misfits []string }

// compare compares what is at a path; inside of a map's key nothing may be removed.
func (c *comparison) compare(old, updated *Schema, path string, key bool) {
	miss := func() {
		c.misfits = append(c.misfits, fmt.Sprintf("%s: stored %s, now %s", at(path), old, updated))
	}
	if old == nil || updated == nil {
		if old != updated {
			miss()
		}
		return
	}
	if updated.Kind == "pointer" && old.Kind != "pointer" && old.Kind != "custom" {
		c.compare(old, updated.Elem, path, key)
		return
	}
	if widens(old.Kind, updated.Kind) != notWider {
		return
	}
	if old.Kind != updated.Kind || old.Len != updated.Len {
		miss()
		return
	}
	switch old.Kind {
	case "custom":
		if !Same(*old, *updated) {
			miss()
		}
	case "struct":
		c.fields(old, updated, path, key)
	case "slice", "array", "pointer":
		c.compare(old.Elem, updated.Elem, path+"[]", key)
	case "map":
		c.compare(old.Key, updated.Key, path+"{key}", true)
		c.compare(old.Elem, updated.Elem, path+"{}", key)
	}
}

func (c *comparison) fields(old, updated *Schema, path string, key bool) {
	from := match(old.Fields, updated.names())
	for i := range old.Fields {
		f := &old.Fields[i]
		p := path + "." + f.Name
		to := slices.Index(from, i)
		if to < 0 {
			switch what := f.Type.unskippable(); {
			case what != "":
				c.misfits = append(c.misfits, fmt.Sprintf("%s: removed, but %s has its own codec and cannot be passed over", at(p), what))
			case key:
				c.misfits = append(c.misfits, fmt.Sprintf("%s: removed from the key of a map, whose entries could become one", at(p)))
			}
			continue
		}
		if name := updated.Fields[to].Name; name != f.Name {
			p += " (now " + name + ")"
		}
		c.compare(&f.Type, &updated.Fields[to].Type, p, key)
	}
}

// Same reports whether two schemas describe the same encoding; names of struct types do not matter.
func Same(a, b Schema) bool {
	if a.Kind != b.Kind || a.Len != b.Len || len(a.Fields) != len(b.Fields) || a.Kind == "custom" && a.Name != b.Name {
		return false
	}
	for i := range a.Fields {
		if a.Fields[i].Name != b.Fields[i].Name || !Same(a.Fields[i].Type, b.Fields[i].Type) {
			return false
		}
	}
	return samePtr(a.Elem, b.Elem) && samePtr(a.Key, b.Key)
}

func samePtr(a, b *Schema) bool {
	if a == nil || b == nil {
		return a == b
	}
	return Same(*a, *b)
}

func (s *Schema) elem() *Schema {
	if s == nil {
		return nil
	}
	return s.Elem
}

func (s *Schema) key() *Schema {
	if s == nil {
		return nil
	}
	return s.Key
}

// String is the type as users would write it.
func (s *Schema) String() string {
	switch {
	case s == nil:
		return "nothing"
	case s.Kind == "slice":
		return "[]" + s.Elem.String()
	case s.Kind == "array":
		return fmt.Sprintf("[%d]%s", s.Len, s.Elem)
	case s.Kind == "pointer":
		return "*" + s.Elem.String()
	case s.Kind == "map":
		return "map[" + s.Key.String() + "]" + s.Elem.String()
	case s.Name != "":
		return s.Name
	default:
		return s.Kind
	}
}

// Migrating returns a codec like c whose Decode reads what a codec with schema old wrote, and whose Append writes c's form; c is of this package. When
// both are the same it is c itself. It fails as Compatible does.
func Migrating[T any](c Codec[T], old Schema) (Codec[T], error) {
	s := c.Schema()
	if Same(old, s) {
		return c, nil
	}
	if err := Compatible(old, s); err != nil {
		return nil, err
	}
	if own, ok := c.(interface{ ofThisPackage() }); !ok || own == nil {
		return nil, &SchemaError{[]string{fmt.Sprintf("%s: the codec of %s cannot read other versions", at(""), s.String())}}
	}
	now, from, err := migration(reflect.TypeFor[T](), &old)
	if err != nil {
		return nil, err
	}
	return &programCodec[T]{scalar: scalar{typeName(reflect.TypeFor[T]()), s}, pr: now, from: from}, nil
}

// migration compiles a type, and what decodes values of its earlier form into it.
func migration(t reflect.Type, old *Schema) (now, from *program, err error) {
	var c compiler
	now, _ = c.compile(t, nil)
	from, _ = c.compile(t, old)
	if len(c.problems) > 0 {
		return nil, nil, &TypeError{Type: typeName(t), Problems: c.problems}
	}
	return now, from, nil
}

// emitMigration decodes the stored fields in their order, into the fields of t that they are matched with, and gives the others their defaults.
func (c *compiler) emitMigration(pr *program, t reflect.Type, off uintptr, path string, old *Schema) Schema {
	var fields []reflect.StructField
	var names [][]string
	for i := range t.NumField() {
		if f := t.Field(i); f.Name != "_" {
			h, _ := historyOf(f) // was checked when the type was compiled
			fields, names = append(fields, f), append(names, append([]string{f.Name}, h.aliases...))
		}
	}
	from := match(old.Fields, names)
	for i := range old.Fields {
		of := &old.Fields[i]
		p := path + "." + of.Name
		if to := slices.Index(from, i); to >= 0 {
			c.emit(pr, fields[to].Type, off+fields[to].Offset, p, &of.Type)
			continue
		}
		pr.ops = append(pr.ops, op{kind: opSkip, skip: &of.Type, off: off, path: p})
	}
	for to, i := range from {
		if i < 0 {
			c.emitDefault(pr, fields[to], off, path)
		}
	}
	return *old
}

// emitDefault sets a field that is not stored, and the fields of a struct that is not, to their defaults.
func (c *compiler) emitDefault(pr *program, f reflect.StructField, off uintptr, path string) {
	path, off = path+"."+f.Name, off+f.Offset
	if h, _ := historyOf(f); h.def != nil {
		b, err := defaultOf(f.Type, *h.def)
		if err != nil {
			c.fail(path, "%v", err)
			return
		}
		sub, _ := c.sub(f.Type, path, nil)
		pr.ops = append(pr.ops, op{kind: opDefault, def: b, sub: sub, off: off, path: path})
		return
	}
	if _, ok := registered(f.Type); ok || f.Type == timeType || f.Type.Kind() != reflect.Struct {
		return
	}
	for i := range f.Type.NumField() {
		c.emitDefault(pr, f.Type.Field(i), off, path)
	}
}

// unskippable returns the type inside of s whose encoded length is unknown without its codec, or "".
func (s *Schema) unskippable() string {
	if s == nil {
		return ""
	}
	if s.Kind == "custom" && (s.Elem == nil || s.Elem.Kind != "blob") {
		return s.String()
	}
	for i := range s.Fields {
		if w := s.Fields[i].Type.unskippable(); w != "" {
			return w
		}
	}
	if s.Kind == "custom" {
		return ""
	}
	if w := s.Elem.unskippable(); w != "" {
		return w
	}
	return s.Key.unskippable()
}
