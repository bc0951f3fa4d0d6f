package remote

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/thalweg/thalweg/runtime/rpc"
)

// textCodec is gRPC's protobuf codec, for messages that carry texts of user code (see rpc.ValidText).
type textCodec struct{ encoding.CodecV2 }

func newCodec() encoding.CodecV2 { return textCodec{encoding.GetCodecV2("proto")} }

// Marshal implements encoding.CodecV2. v stays as it is.
func (c textCodec) Marshal(v any) (mem.BufferSlice, error) {
	data, err := c.CodecV2.Marshal(v)
	m, ok := v.(proto.Message)
	if err == nil || !ok {
		return data, err
	}
	return c.CodecV2.Marshal(rpc.ValidText(m))
}
