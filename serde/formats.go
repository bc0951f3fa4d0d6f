package serde

// String is the format of messages that are text as a whole.
func String() Format[string] { return stringFormat{} }

// Bytes is the format of messages that are kept as they are. Deserialize copies.
func Bytes() Format[[]byte] { return bytesFormat{} }

type stringFormat struct{}

func (stringFormat) Serialize(dst []byte, v string) ([]byte, error) { return append(dst, v...), nil }
func (stringFormat) Deserialize(data []byte) (string, error)        { return string(data), nil }
func (stringFormat) Name() string                                   { return "string" }

type bytesFormat struct{}

func (bytesFormat) Serialize(dst, v []byte) ([]byte, error) { return append(dst, v...), nil }
func (bytesFormat) Deserialize(data []byte) ([]byte, error) {
	return append(make([]byte, 0, len(data)), data...), nil
}
func (bytesFormat) Name() string { return "bytes" }
