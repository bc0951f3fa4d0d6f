package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/serde"
	"github.com/twmb/franz-go/pkg/kadm"
)

// Sink writes values to a topic with format. Faulty options are reported all at once by Validate, when the job's graph is built.
//
// Source: Flink's KafkaSink.
func Sink[T any](format serde.Format[T], opts ...SinkOption) connector.Sink[T] {
	s := sink[T]{cfg: newSinkConfig(opts), shared: &sharedPools{m: map[int]*txnPool{}}}
	errs := &s.cfg.errs
	s.key = fnOf[func(T) []byte](errs, "KeyFunc", s.cfg.key)
	s.headers = fnOf[func(T) []Header](errs, "HeaderFunc", s.cfg.headers)
	s.partition = fnOf[func(T, []byte, int) int](errs, "PartitionFunc", s.cfg.partition)
	s.topicOf = fnOf[func(T) string](errs, "TopicFunc", s.cfg.topicOf)
	s.record = fnOf[func(T, *Record) error](errs, "RecordFunc", s.cfg.record)
	switch {
	case format == nil && s.record == nil:
		*errs = append(*errs, errors.New("kafka: sink has no format"))
	case format != nil:
		s.serialize = format.Serialize
	}
	if s.cfg.guarantee == GuaranteeExactlyOnce {
		return &committingSink[T]{s}
	}
	return &s
}

// SinkRecords writes whole records; see RecordFunc.
func SinkRecords[T any](fill func(v T, rec *Record) error, opts ...SinkOption) connector.Sink[T] {
	return Sink[T](nil, append(opts[:len(opts):len(opts)], RecordFunc(fill))...)
}

type sink[T any] struct {
	cfg       *sinkConfig
	serialize func(dst []byte, v T) ([]byte, error)
	key       func(T) []byte
	headers   func(T) []Header
	partition func(T, []byte, int) int
	topicOf   func(T) string
	record    func(T, *Record) error
	shared    *sharedPools
}

// sharedPools hands the pool that a subtask's committer made to its writer.
type sharedPools struct {
	mu sync.Mutex
	m  map[int]*txnPool
}

func (s *sharedPools) put(subtask int, p *txnPool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.m[subtask] = p
}

func (s *sharedPools) takeOut(subtask int) *txnPool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.m[subtask]
	delete(s.m, subtask)
	return p
}

type committingSink[T any] struct{ sink[T] }

var (
	_ connector.Sink[int]           = (*sink[int])(nil)
	_ connector.CommittingSink[int] = (*committingSink[int])(nil)
	_ connector.Validator           = (*sink[int])(nil)
	_ connector.Preflight           = (*committingSink[int])(nil)
	_ connector.CommittingWriter    = (*txnWriter[int])(nil)
	_ connector.Owner               = (*committingSink[int])(nil)
)

func (s *sink[T]) Validate() error { return s.cfg.validate() }

// Owns implements connector.Owner: two sinks with one prefix would fence each other for ever.
func (s *committingSink[T]) Owns() []string {
	brokers := slices.Clone(s.cfg.brokers)
	slices.Sort(brokers)
	return []string{fmt.Sprintf("the transactional id prefix %q of Kafka brokers %s", s.cfg.prefix, strings.Join(brokers, ","))}
}

// Preflight checks that the brokers answer, the topic exists, and, for exactly-once, that the transaction time-out fits the brokers' limit and
// the checkpoints.
func (s *sink[T]) Preflight(ctx context.Context, env connector.PreflightContext) error {
	if err := s.cfg.validate(); err != nil {
		return err
	}
	if err := s.checkIntervals(env); err != nil {
		return err
	}
	cl, adm, err := s.cfg.connect(ctx, env.Logger, "preflight")
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(ctx, s.cfg.connectTimeout)
	defer cancel()
	var errs []error
	if s.cfg.topic != "" {
		_, err := checkTopics(ctx, adm, s.cfg.topic)
		errs = append(errs, err)
	}
	if s.cfg.guarantee == GuaranteeExactlyOnce {
		limit, err := maxTransactionTimeout(ctx, adm)
		switch {
		case err != nil:
			env.Logger.Warn().Err(err).Msg("transaction.max.timeout.ms of the brokers could not be read; a time-out above it fails when the sink starts")
		case s.cfg.txnTimeout > limit:
			errs = append(errs, fmt.Errorf("kafka: kafka.TransactionTimeout is %v (transaction.timeout.ms=%d), above the brokers' maximum of %v (transaction.max.timeout.ms=%d): lower the first or raise the second",
				s.cfg.txnTimeout, s.cfg.txnTimeout.Milliseconds(), limit, limit.Milliseconds()))
		}
		if tv2, err := transactionVersion2(ctx, cl); err == nil && !tv2 {
			env.Logger.Warn().Msg("the cluster's feature transaction.version is below 2 (KIP-890): upgrade it, it keeps late requests of a former run out of new transactions")
		}
	}
	return errors.Join(errs...)
}

func (s *sink[T]) checkIntervals(env connector.PreflightContext) error {
	if s.cfg.guarantee != GuaranteeExactlyOnce || env.Batch { // in BATCH the one commit comes at the end
		return nil
	}
	if env.CheckpointInterval <= 0 {
		return errors.New("kafka: exactly-once needs checkpoints, since transactions are committed with them: set execution.checkpointing.interval, or use kafka.AtLeastOnce()")
	}
	if need := env.CheckpointInterval + env.CheckpointTimeout; s.cfg.txnTimeout <= need {
		return fmt.Errorf("kafka: kafka.TransactionTimeout is %v, which does not cover execution.checkpointing.interval (%v) plus execution.checkpointing.timeout (%v): "+
			"the brokers could abort a transaction before its checkpoint completes; raise the first or lower the others", s.cfg.txnTimeout, env.CheckpointInterval, env.CheckpointTimeout)
	}
	return nil
}

func maxTransactionTimeout(ctx context.Context, adm *kadm.Client) (time.Duration, error) {
	brokers, err := adm.ListBrokers(ctx)
	if err != nil {
		return 0, err
	}
	var limit time.Duration
	for _, id := range brokers.NodeIDs() {
		rcs, err := adm.DescribeBrokerConfigs(ctx, id)
		if err != nil {
			return 0, err
		}
		for _, rc := range rcs {
			if rc.Err != nil {
				return 0, rc.Err
			}
			for _, c := range rc.Configs {
				if c.Key != "transaction.max.timeout.ms" || c.Value == nil {
					continue
				}
				ms, err := strconv.ParseInt(*c.Value, 10, 64)
				if err != nil {
					return 0, err
				}
				if d := time.Duration(ms) * time.Millisecond; limit == 0 || d < limit {
					limit = d
				}
			}
		}
	}
	if limit == 0 {
		return 0, errors.New("the brokers do not report it")
	}
	return limit, nil
}

func (s *sink[T]) Writer(ctx connector.SinkContext, _ [][]byte) (connector.SinkWriter[T], error) {
	if err := s.cfg.validate(); err != nil {
		return nil, err
	}
	return newWriter(s, ctx)
}

// Committer makes the committer, and with it the pool of transactional ids that the subtask's writer uses next.
func (s *committingSink[T]) Committer(ctx connector.SinkContext) (connector.Committer, error) {
	if err := s.cfg.validate(); err != nil {
		return nil, err
	}
	p, err := newTxnPool(s.cfg, ctx)
	if err != nil {
		return nil, err
	}
	p.retain()
	s.shared.put(ctx.Subtask, p)
	return &committer{pool: p}, nil
}

func (s *committingSink[T]) Writer(ctx connector.SinkContext, restored [][]byte) (connector.SinkWriter[T], error) {
	if err := s.cfg.validate(); err != nil {
		return nil, err
	}
	p := s.shared.takeOut(ctx.Subtask)
	if p == nil {
		var err error
		if p, err = newTxnPool(s.cfg, ctx); err != nil {
			return nil, err
		}
	}
	p.retain()
	w, err := newTxnWriter(&s.sink, ctx, p, restored)
	if err != nil {
		p.release()
		return nil, err
	}
	return w, nil
}

// committer commits. See connector.Committer.
type committer struct{ pool *txnPool }

func (c *committer) Commit(ctx context.Context, committables [][]byte, retry bool) error {
	for _, b := range committables {
		cm, err := decodeCommittable(b)
		if err != nil {
			return err
		}
		if s := c.pool.find(&cm); s != nil {
			if err := s.commit(ctx); err != nil {
				return err
			}
			continue
		}
		if err := c.pool.settle(ctx, &cm); err != nil {
			return err
		}
		if !retry {
			continue // this attempt's own, committed by an earlier call
		}
		if err := c.pool.admin.release(ctx, &cm); err != nil {
			return err
		}
	}
	return nil
}

func (c *committer) Close() error {
	c.pool.release()
	return nil
}
