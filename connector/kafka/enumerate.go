package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/connector/kafka/enumerator"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// kafkaEnumerator is the shell of enumerator.Core: it asks the cluster and carries out the core's effects.
type kafkaEnumerator struct {
	cfg    *sourceConfig
	ctx    connector.EnumeratorContext
	core   *enumerator.Core
	cl     *kgo.Client
	adm    *kadm.Client
	warned map[enumerator.Key]bool
	first  bool // the first discovery of this attempt is over
}

func newEnumerator(cfg *sourceConfig, ctx connector.EnumeratorContext, restored []byte) (*kafkaEnumerator, error) {
	core, err := enumerator.New(enumerator.Config{
		Parallelism: ctx.Parallelism(), Final: cfg.discovery == 0, Bounded: cfg.bounded,
	}, restored)
	if err != nil {
		return nil, err
	}
	return &kafkaEnumerator{cfg: cfg, ctx: ctx, core: core, warned: map[enumerator.Key]bool{}}, nil
}

func (e *kafkaEnumerator) Start(context.Context) error {
	cl, err := e.cfg.newClient(e.ctx.Logger(), "enumerator")
	if err != nil {
		return err
	}
	e.cl, e.adm = cl, kadm.NewClient(cl)
	// The first discovery alone decides about a missing topic and bounds the wait for a broker; later ones are retried at the next turn.
	e.ctx.Async(0, func(ctx context.Context) (any, error) {
		c, cancel := context.WithTimeout(ctx, e.cfg.connectTimeout)
		defer cancel()
		if err := pingUntil(c, e.cl); err != nil {
			return nil, fmt.Errorf("kafka: connect to brokers %s: %w (waited up to %v)", strings.Join(e.cfg.brokers, ","), err, e.cfg.connectTimeout)
		}
		return e.discover(c, true)
	}, func(result any, err error) {
		if err != nil {
			e.ctx.Fail(err)
			return
		}
		e.first = true
		e.apply(e.core.Discovered(result.([]enumerator.Partition)))
	})
	if e.cfg.discovery > 0 {
		e.ctx.Async(e.cfg.discovery, func(ctx context.Context) (any, error) { return e.discover(ctx, false) }, func(result any, err error) {
			if err != nil {
				log := e.ctx.Logger()
				log.Warn().Err(err).Msg("partition discovery did not succeed; it is tried again at the next turn")
				return
			}
			if e.first {
				e.apply(e.core.Discovered(result.([]enumerator.Partition)))
			}
		})
	}
	return nil
}

func (e *kafkaEnumerator) discover(ctx context.Context, first bool) ([]enumerator.Partition, error) {
	var details kadm.TopicDetails
	if e.cfg.pattern != nil {
		md, err := e.adm.Metadata(ctx)
		if err != nil {
			return nil, fmt.Errorf("kafka: list topics: %w", err)
		}
		details = md.Topics
		details.FilterInternal()
		for t := range details {
			if !e.cfg.pattern.MatchString(t) {
				delete(details, t)
			}
		}
		if first && len(details) == 0 {
			return nil, fmt.Errorf("kafka: no topic matches the pattern %q", e.cfg.pattern)
		}
	} else {
		d, err := checkTopics(ctx, e.adm, e.cfg.topics...)
		if err != nil && (first || d == nil) {
			return nil, err
		}
		details = d
	}
	var parts []enumerator.Partition
	for t, d := range details {
		for p := range d.Partitions {
			parts = append(parts, enumerator.Partition{Key: enumerator.Key{Topic: t, Partition: p}, TopicID: d.ID})
		}
	}
	return parts, nil
}

func (e *kafkaEnumerator) apply(effects []enumerator.Effect) {
	log := e.ctx.Logger()
	for _, ef := range effects {
		switch ef := ef.(type) {
		case enumerator.Resolve:
			e.resolve(ef)
		case enumerator.Assign:
			for _, s := range ef.Splits {
				log.Info().Str("split", s.ID).Int("subtask", ef.Subtask).Msg("partition assigned")
			}
			e.ctx.Assign(ef.Subtask, ef.Splits...)
		case enumerator.NoMore:
			e.ctx.NoMoreSplits(ef.Subtask)
		case enumerator.Recreated:
			// The reader that holds the partition applies the policy, since it knows the offset; without a reset this is the end.
			if e.cfg.onOutOfRange == NoReset {
				e.ctx.Fail(recreatedError(TopicPartition(ef.Key), ef.Old, ef.New, noOffset))
				return
			}
		case enumerator.Missing:
			if !e.warned[ef.Key] {
				e.warned[ef.Key] = true
				log.Warn().Str("topic", ef.Topic).Int32("partition", ef.Partition).
					Msg("a partition that was read is not in the cluster's metadata (or no longer subscribed); its offset is kept")
			}
		}
	}
}

func (e *kafkaEnumerator) resolve(r enumerator.Resolve) {
	e.ctx.Async(0, func(ctx context.Context) (any, error) {
		ctx, cancel := context.WithTimeout(ctx, 2*e.cfg.connectTimeout)
		defer cancel()
		for first := true; ; first = false {
			splits, err := resolveSplits(ctx, e.cfg, e.adm, r.Partitions, r.Initial)
			// A partition that was found a moment ago may have no leader yet.
			if err == nil || !kerr.IsRetriable(err) && !kgo.IsRetryableBrokerErr(err) || !pause(ctx, 250*time.Millisecond) {
				return splits, err
			}
			if first {
				log := e.ctx.Logger()
				log.Warn().Err(err).Msg("offsets of partitions are not known yet; trying again")
			}
		}
	}, func(result any, err error) {
		if err != nil {
			e.ctx.Fail(err)
			return
		}
		splits := map[enumerator.Key]connector.Split{}
		for _, s := range result.([]split) {
			splits[enumerator.Key(s.tp())] = s.encode()
		}
		e.apply(e.core.Resolved(r.Partitions, splits))
	})
}

func (e *kafkaEnumerator) AddReader(subtask int) { e.apply(e.core.ReaderUp(subtask)) }

func (e *kafkaEnumerator) AddSplitsBack(splits []connector.Split, subtask int) {
	m := map[enumerator.Key]connector.Split{}
	for _, cs := range splits {
		s, err := decodeSplit(cs)
		if err != nil {
			e.ctx.Fail(err)
			return
		}
		m[enumerator.Key(s.tp())] = cs
	}
	e.apply(e.core.SplitsBack(subtask, m))
}

// HandleSplitRequest does nothing: partitions are pushed.
func (e *kafkaEnumerator) HandleSplitRequest(int) {}

func (e *kafkaEnumerator) Snapshot(int64) ([]byte, error) { return e.core.Snapshot(), nil }

func (e *kafkaEnumerator) CheckpointComplete(int64) {}

func (e *kafkaEnumerator) Close() error {
	if e.cl != nil {
		e.cl.Close()
	}
	return nil
}

func recreatedError(tp TopicPartition, old, now [16]byte, wanted int64) error {
	at := ""
	if wanted >= 0 {
		at = fmt.Sprintf(" (next offset %d)", wanted)
	}
	return lastingError{fmt.Errorf("kafka: topic %q was deleted and created again since it was last read: partition %d%s belongs to topic id %x, the topic now has id %x: "+
		"start without the old state, or set kafka.OnOffsetOutOfRange(kafka.Earliest) or (kafka.Latest) to go on in the new topic", tp.Topic, tp.Partition, at, old, now)}
}

// lastingError is one that no restart of the job heals.
type lastingError struct{ error }

func (e lastingError) Unwrap() error { return e.error }
func (e lastingError) Fatal() bool   { return true }

// resolveSplits turns positions into offsets.
func resolveSplits(ctx context.Context, cfg *sourceConfig, adm *kadm.Client, parts []enumerator.Partition, initial bool) ([]split, error) {
	topics := map[string]bool{}
	for _, p := range parts {
		topics[p.Topic] = true
	}
	names := make([]string, 0, len(topics))
	for t := range topics {
		names = append(names, t)
	}
	l := &lister{ctx: ctx, cfg: cfg, adm: adm, topics: names, cache: map[string]kadm.ListedOffsets{}}
	start := cfg.start
	if !initial {
		start = Position{kind: posEarliest}
	}
	var errs []error
	out := make([]split, 0, len(parts))
	for _, p := range parts {
		tp := TopicPartition(p.Key)
		s := split{topic: p.Topic, partition: p.Partition, topicID: p.TopicID, stop: noOffset, epoch: -1}
		var err error
		if s.offset, s.flags, err = l.startOf(start, tp); err != nil {
			errs = append(errs, err)
			continue
		}
		if cfg.bounded {
			if s.stop, err = l.stopOf(cfg.stop, tp); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		out = append(out, s)
	}
	return out, errors.Join(errs...)
}

// lister lists offsets, each kind once.
type lister struct {
	ctx       context.Context
	cfg       *sourceConfig
	adm       *kadm.Client
	topics    []string
	cache     map[string]kadm.ListedOffsets
	committed kadm.OffsetResponses
}

func (l *lister) list(kind string, fn func() (kadm.ListedOffsets, error), tp TopicPartition) (kadm.ListedOffset, error) {
	lo, ok := l.cache[kind]
	if !ok {
		var err error
		if lo, err = fn(); err != nil {
			return kadm.ListedOffset{}, fmt.Errorf("kafka: list %s offsets: %w", kind, err)
		}
		l.cache[kind] = lo
	}
	o, ok := lo.Lookup(tp.Topic, tp.Partition)
	if !ok {
		return o, fmt.Errorf("kafka: list %s offset of %v: the brokers did not answer for it", kind, tp)
	}
	if o.Err != nil {
		return o, fmt.Errorf("kafka: list %s offset of %v: %w", kind, tp, o.Err)
	}
	return o, nil
}

func (l *lister) earliest(tp TopicPartition) (int64, error) {
	o, err := l.list("earliest", func() (kadm.ListedOffsets, error) { return l.adm.ListStartOffsets(l.ctx, l.topics...) }, tp)
	return o.Offset, err
}

func (l *lister) latest(tp TopicPartition) (int64, error) {
	kind, fn := "latest", l.adm.ListEndOffsets
	if l.cfg.readCommitted {
		kind, fn = "latest committed", l.adm.ListCommittedOffsets
	}
	o, err := l.list(kind, func() (kadm.ListedOffsets, error) { return fn(l.ctx, l.topics...) }, tp)
	return o.Offset, err
}

// after is the first offset at or after millis; the end offset when there is none.
func (l *lister) after(millis int64, tp TopicPartition) (int64, error) {
	o, err := l.list(fmt.Sprintf("timestamp %d", millis), func() (kadm.ListedOffsets, error) {
		return l.adm.ListOffsetsAfterMilli(l.ctx, millis, l.topics...)
	}, tp)
	if err == nil && o.Offset < 0 {
		return l.latest(tp)
	}
	return o.Offset, err
}

func (l *lister) committedOf(tp TopicPartition) (int64, bool, error) {
	if l.committed == nil {
		r, err := l.fetchCommitted()
		switch {
		case errors.Is(err, kerr.GroupIDNotFound):
			r = kadm.OffsetResponses{}
		case err != nil:
			return 0, false, fmt.Errorf("kafka: read committed offsets of group %q: %w", l.cfg.groupID, err)
		}
		l.committed = r
	}
	o, ok := l.committed.Lookup(tp.Topic, tp.Partition)
	if !ok || o.At < 0 {
		return 0, false, nil
	}
	if o.Err != nil {
		return 0, false, fmt.Errorf("kafka: read committed offset of group %q in %v: %w", l.cfg.groupID, tp, o.Err)
	}
	return o.At, true, nil
}

// fetchCommitted reads the group's offsets. A broker that has just started makes the coordinator's topic with the first question, and
// answers with an error meanwhile.
func (l *lister) fetchCommitted() (kadm.OffsetResponses, error) {
	ctx, cancel := context.WithTimeout(l.ctx, l.cfg.connectTimeout)
	defer cancel()
	for {
		r, err := l.adm.FetchOffsets(ctx, l.cfg.groupID)
		if !errors.Is(err, kerr.CoordinatorNotAvailable) && !errors.Is(err, kerr.CoordinatorLoadInProgress) && !errors.Is(err, kerr.NotCoordinator) {
			return r, err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return r, err
		}
	}
}

func (l *lister) resetTo(r Reset, tp TopicPartition, missing string) (int64, byte, error) {
	switch r {
	case Earliest:
		o, err := l.earliest(tp)
		return o, splitFromStart, err
	case Latest:
		o, err := l.latest(tp)
		return o, 0, err
	default:
		return 0, 0, fmt.Errorf("kafka: partition %v has no %s: give one, or a reset (kafka.Earliest or kafka.Latest)", tp, missing)
	}
}

func (l *lister) startOf(p Position, tp TopicPartition) (int64, byte, error) {
	switch p.kind {
	case posEarliest:
		return l.resetTo(Earliest, tp, "")
	case posLatest:
		return l.resetTo(Latest, tp, "")
	case posCommitted:
		o, ok, err := l.committedOf(tp)
		if err != nil || ok {
			return o, 0, err
		}
		return l.resetTo(p.reset, tp, fmt.Sprintf("committed offset of group %q", l.cfg.groupID))
	case posTimestamp:
		o, err := l.after(p.millis, tp)
		return o, 0, err
	default:
		if o, ok := p.explicit[tp]; ok {
			return o, 0, nil
		}
		return l.resetTo(p.reset, tp, "start offset in kafka.StartOffsets")
	}
}

func (l *lister) stopOf(p Position, tp TopicPartition) (int64, error) {
	switch p.kind {
	case posCommitted:
		o, ok, err := l.committedOf(tp)
		if err == nil && !ok {
			err = fmt.Errorf("kafka: partition %v has no committed offset of group %q to end at", tp, l.cfg.groupID)
		}
		return o, err
	case posTimestamp:
		return l.after(p.millis, tp)
	case posExplicit:
		if o, ok := p.explicit[tp]; ok {
			return o, nil
		}
	}
	return l.latest(tp)
}
