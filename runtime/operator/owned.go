package operator

import (
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/serde"
)

// encoder is a Receiver that may neither keep nor change anything of a record; encodes says that it does not.
type encoder interface{ encodes() bool }

func encodes(r any) bool {
	e, ok := r.(encoder)
	return ok && e.encodes()
}

// owned gives what follows a copy of each record: whoever emits it may have it in state, emit it again, or use it for another one.
// Source: Flink CopyingChainingOutput.
type owned[T any] struct {
	Receiver[T]
	codec serde.Codec[T]
}

func (o *owned[T]) Process(v T, m Meta) error { return o.Receiver.Process(o.codec.Clone(v), m) }

// copying is r, which gets copies of its records where a change of one could be seen through another: not of records that point to nothing
// that can be changed, nor of those that are encoded at once, nor with pipeline.object-reuse.
func copying[T any](conf config.Configuration, r Receiver[T]) Receiver[T] {
	if encodes(r) || config.ObjectReuse.Value(conf) {
		return r
	}
	if c := mutableCodec[T](); c != nil {
		return &owned[T]{r, c}
	}
	return r
}

func (t *recordType[T]) copying(conf config.Configuration, out any) (any, error) {
	r, err := receiver[T](out)
	if err != nil {
		return nil, err
	}
	return copying(conf, r), nil
}
