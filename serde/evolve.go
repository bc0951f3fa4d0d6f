package serde

import (
	"fmt"
	"reflect"
	"strings"
)

// SchemaError lists why state written with one schema cannot be read as another type.
type SchemaError struct {
	Misfits []string // "<path>: stored <type>, now <type>"
}

func (e *SchemaError) Error() string {
	return "serde: incompatible schema: " + strings.Join(e.Misfits, "; ")
}

// Compatible reports, as nil, that values written with schema old can be read by the type that updated describes: both are the same,
// or they differ by fields that were added (they read as zero) or removed (they are passed over). Fields are matched by name, their
// order may change; names of struct types do not matter. Otherwise the error is a *SchemaError with every path and both types.
func Compatible(old, updated Schema) error {
	var misfits []string
	compare(&old, &updated, "", &misfits)
	if len(misfits) > 0 {
		return &SchemaError{misfits}
	}
	return nil
}

func compare(old, updated *Schema, path string, misfits *[]string) {
	miss := func() {
		*misfits = append(*misfits, fmt.Sprintf("%s: stored %s, now %s", at(path), old, updated))
	}
	if old == nil || updated == nil {
		if old != updated {
			miss()
		}
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
		for i := range old.Fields {
			f := &old.Fields[i]
			p := path + "." + f.Name
			if g := updated.field(f.Name); g != nil {
				compare(&f.Type, g, p, misfits)
			} else if what := f.Type.unskippable(); what != "" {
				*misfits = append(*misfits, fmt.Sprintf("%s: removed, but %s has its own codec and cannot be passed over", at(p), what))
			}
		}
	case "slice", "array", "pointer":
		compare(old.Elem, updated.Elem, path+"[]", misfits)
	case "map":
		compare(old.Key, updated.Key, path+"{key}", misfits)
		compare(old.Elem, updated.Elem, path+"{}", misfits)
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

func (s *Schema) field(name string) *Schema {
	for i := range s.Fields {
		if s.Fields[i].Name == name {
			return &s.Fields[i].Type
		}
	}
	return nil
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

// Migrating returns a codec like c whose Decode reads what a codec with schema old wrote, and whose Append writes c's form. When
// both are the same it is c itself. It fails as Compatible does.
func Migrating[T any](c Codec[T], old Schema) (Codec[T], error) {
	s := c.Schema()
	if Same(old, s) {
		return c, nil
	}
	if err := Compatible(old, s); err != nil {
		return nil, err
	}
	pc, ok := c.(*programCodec[T])
	if !ok {
		return nil, &SchemaError{[]string{fmt.Sprintf("%s: the codec of %s cannot read other versions", at(""), s.String())}}
	}
	var comp compiler
	pr, _ := comp.compile(reflect.TypeFor[T](), &old)
	if len(comp.problems) > 0 {
		return nil, &TypeError{Type: pc.name, Problems: comp.problems}
	}
	return &programCodec[T]{scalar: pc.scalar, pr: pc.pr, from: pr}, nil
}

// emitMigration decodes the stored fields in their order, into the fields of t with their names.
func (c *compiler) emitMigration(pr *program, t reflect.Type, off uintptr, path string, old *Schema) Schema {
	for i := range old.Fields {
		of := &old.Fields[i]
		p := path + "." + of.Name
		if f, ok := ownField(t, of.Name); ok {
			c.emit(pr, f.Type, off+f.Offset, p, &of.Type)
			continue
		}
		pr.ops = append(pr.ops, op{kind: opSkip, skip: &of.Type, off: off, path: p})
	}
	return *old
}

func ownField(t reflect.Type, name string) (reflect.StructField, bool) {
	for i := range t.NumField() {
		if t.Field(i).Name == name {
			return t.Field(i), true
		}
	}
	return reflect.StructField{}, false
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
