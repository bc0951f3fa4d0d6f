package kafka

import (
	"context"
	"fmt"

	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/serde"
)

// RecordFormat decodes whole records: key, headers, timestamp, topic, partition and offset are at hand.
type RecordFormat[T any] interface {
	// DeserializeRecord decodes rec. The byte slices of rec stay unchanged for as long as something refers to them, so views into
	// them may be kept; rec itself may be used during the call only.
	DeserializeRecord(rec *Record) (T, error)
}

// Source reads the values of topics with format. Faulty options are reported all at once by Validate, when the job's graph is built.
//
// Source: Flink's KafkaSource.
func Source[T any](format serde.Format[T], opts ...SourceOption) connector.Source[T] {
	s := &source[T]{cfg: newSourceConfig(opts)}
	if format == nil {
		s.cfg.errs = append(s.cfg.errs, fmt.Errorf("kafka: source has no format"))
		return s
	}
	s.decode = func(rec *Record) (T, error) { return format.Deserialize(rec.Value) }
	return s
}

// SourceRecords reads whole records with a function; the rules of RecordFormat hold for it.
func SourceRecords[T any](decode func(rec *Record) (T, error), opts ...SourceOption) connector.Source[T] {
	s := &source[T]{cfg: newSourceConfig(opts), decode: decode}
	if decode == nil {
		s.cfg.errs = append(s.cfg.errs, fmt.Errorf("kafka: source has no decode function"))
	}
	return s
}

// SourceOf reads whole records with a RecordFormat.
func SourceOf[T any](format RecordFormat[T], opts ...SourceOption) connector.Source[T] {
	if format == nil {
		return SourceRecords[T](nil, opts...)
	}
	return SourceRecords(format.DeserializeRecord, opts...)
}

type source[T any] struct {
	cfg    *sourceConfig
	decode func(rec *Record) (T, error)
}

var (
	_ connector.Validator = (*source[int])(nil)
	_ connector.Preflight = (*source[int])(nil)
)

func (s *source[T]) Validate() error { return s.cfg.validate() }

func (s *source[T]) Boundedness() connector.Boundedness {
	if s.cfg.bounded {
		return connector.Bounded
	}
	return connector.Unbounded
}

// Preflight checks that the brokers answer and the topics exist.
func (s *source[T]) Preflight(ctx context.Context, env connector.PreflightContext) error {
	if err := s.cfg.validate(); err != nil {
		return err
	}
	cl, adm, err := s.cfg.connect(ctx, env.Logger, "preflight")
	if err != nil {
		return err
	}
	defer cl.Close()
	topics := append([]string(nil), s.cfg.topics...)
	if s.cfg.onDecodeError.kind == decodeDeadLetter {
		topics = append(topics, s.cfg.onDecodeError.topic)
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.connectTimeout)
	defer cancel()
	if len(topics) == 0 {
		return nil
	}
	_, err = checkTopics(ctx, adm, topics...)
	return err
}

func (s *source[T]) Enumerator(ctx connector.EnumeratorContext, restored []byte) (connector.Enumerator, error) {
	if err := s.cfg.validate(); err != nil {
		return nil, err
	}
	return newEnumerator(s.cfg, ctx, restored)
}

func (s *source[T]) Reader(ctx connector.ReaderContext) (connector.Reader[T], error) {
	if err := s.cfg.validate(); err != nil {
		return nil, err
	}
	return newReader(s.cfg, s.decode, ctx)
}
