package rpc

import (
	"strings"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// textCodec is gRPC's protobuf codec, for messages that carry texts of user code: protobuf refuses a string that is not UTF-8, and the
// connection would end with it, so the offending bytes are replaced (U+FFFD) instead.
type textCodec struct{ encoding.CodecV2 }

func newCodec() encoding.CodecV2 { return textCodec{encoding.GetCodecV2("proto")} }

// Marshal implements encoding.CodecV2. v stays as it is.
func (c textCodec) Marshal(v any) (mem.BufferSlice, error) {
	data, err := c.CodecV2.Marshal(v)
	m, ok := v.(proto.Message)
	if err == nil || !ok {
		return data, err
	}
	m = proto.Clone(m)
	validText(m.ProtoReflect())
	return c.CodecV2.Marshal(m)
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
