package rpc

import (
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// ValidText returns a copy of m, in which bytes of texts that are not UTF-8 are replaced (U+FFFD). Messages carry texts of user code;
// protobuf refuses a string that is not UTF-8, and the connection would end with it.
func ValidText(m proto.Message) proto.Message {
	m = proto.Clone(m)
	validText(m.ProtoReflect())
	return m
}

// validText makes all strings of m UTF-8.
func validText(m protoreflect.Message) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap():
			validMap(f, v.Map())
		case f.IsList():
			l := v.List()
			for i := range l.Len() {
				l.Set(i, validValue(f, l.Get(i)))
			}
		case f.Kind() == protoreflect.StringKind || f.Message() != nil:
			m.Set(f, validValue(f, v))
		}
		return true
	})
}

func validMap(f protoreflect.FieldDescriptor, m protoreflect.Map) {
	m.Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
		m.Clear(k)
		m.Set(validValue(f.MapKey(), k.Value()).MapKey(), validValue(f.MapValue(), v))
		return true
	})
}

func validValue(f protoreflect.FieldDescriptor, v protoreflect.Value) protoreflect.Value {
	switch {
	case f.Kind() == protoreflect.StringKind:
		return protoreflect.ValueOfString(strings.ToValidUTF8(v.String(), "\uFFFD"))
	case f.Message() != nil:
		validText(v.Message())
	}
	return v
}
