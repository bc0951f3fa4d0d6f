// Package serde turns records, keys and state into bytes and back. It is layer L1.
//
// Two kinds of interfaces stand here. Format is what users name at the edges (a Kafka topic, a file): JSON, later Avro, Protobuf, CSV.
// Codec is the engine's own compact binary form for exchanges and state, compiled once from a Go type; users meet it only when a
// type cannot be encoded (the error names the path of the field) or when they plug in their own.
//
// Invariants: a Codec is immutable and safe for concurrent use; encoding never fails for a value of its type (what cannot be
// encoded is refused when the codec is compiled); decoding never panics and never reads outside of its input.
package serde

// Codec is the binary form of T for exchanges and state.
//
// Values are passed by value so that no call makes them escape to the heap; implementations may take their address internally.
type Codec[T any] interface {
	// Append appends the encoded v to dst and returns the extended slice. It does not retain v.
	Append(dst []byte, v T) []byte
	// Decode decodes one value from the front of src and returns it with the number of bytes consumed. Strings and byte slices of
	// the value are views into src when Views is true; the caller keeps src unchanged as long as the value lives, or calls Clone.
	Decode(src []byte) (v T, n int, err error)
	// Clone returns a deep copy that shares no memory with v or with a buffer that v was decoded from.
	Clone(v T) T
	// Views reports whether decoded values may reference src (T holds strings or byte slices).
	Views() bool
	// Pointers reports whether T holds any pointer (strings, slices, maps, pointers): values of pointer-free types may be copied
	// bytewise by state tables.
	Pointers() bool
	// Schema describes the encoding; it is stored with state so that a later version of T can be checked and read.
	Schema() Schema
}

// Format is a user-facing encoding of whole messages.
type Format[T any] interface {
	// Serialize appends the encoded v to dst.
	Serialize(dst []byte, v T) ([]byte, error)
	// Deserialize decodes one message. It does not retain data unless the implementation documents it.
	Deserialize(data []byte) (T, error)
	// Name is the short name for plans and errors, such as "json".
	Name() string
}
