package streamtest_test

import (
	"errors"

	"github.com/thalweg/thalweg/connector"
)

// endless is a source of another system that tests do not have.
type endless[T any] struct{}

func (endless[T]) Boundedness() connector.Boundedness { return connector.Unbounded }
func (endless[T]) Enumerator(connector.EnumeratorContext, []byte) (connector.Enumerator, error) {
	return nil, errors.New("it is not there")
}

func (endless[T]) Reader(connector.ReaderContext) (connector.Reader[T], error) {
	return nil, errors.New("it is not there")
}

// nowhere is a sink likewise.
type nowhere struct{}

func (nowhere) Writer(connector.SinkContext, [][]byte) (connector.SinkWriter[event], error) {
	return nil, errors.New("it is not there")
}
