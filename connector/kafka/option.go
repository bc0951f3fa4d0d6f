package kafka

import (
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Record is a Kafka record: key, value, headers, timestamp, topic, partition, offset.
type Record = kgo.Record

// Header is a record header.
type Header = kgo.RecordHeader

// SourceOption configures a source.
type SourceOption interface{ applySource(*sourceConfig) }

// SinkOption configures a sink.
type SinkOption interface{ applySink(*sinkConfig) }

// Option configures a source or a sink.
type Option interface {
	SourceOption
	SinkOption
}

type sourceOption func(*sourceConfig)

func (o sourceOption) applySource(c *sourceConfig) { o(c) }

type sinkOption func(*sinkConfig)

func (o sinkOption) applySink(c *sinkConfig) { o(c) }

type clientOption func(*clientConfig)

func (o clientOption) applySource(c *sourceConfig) { o(&c.clientConfig) }
func (o clientOption) applySink(c *sinkConfig)     { o(&c.clientConfig) }

// clientConfig is what sources and sinks share.
type clientConfig struct {
	brokers        []string
	clientOpts     []kgo.Opt
	clientID       string
	connectTimeout time.Duration
}

// Brokers sets the bootstrap servers, "host:port" each. Required.
func Brokers(addrs ...string) Option {
	return clientOption(func(c *clientConfig) { c.brokers = append(c.brokers, addrs...) })
}

// ClientOptions passes options to each Kafka client that is made (TLS, SASL, rack, fetch and batch sizes). They are applied last, so they
// win over what this package sets; options that would change the delivery guarantee (transactional id, acks, offsets to consume) must
// not be given.
func ClientOptions(opts ...kgo.Opt) Option {
	return clientOption(func(c *clientConfig) { c.clientOpts = append(c.clientOpts, opts...) })
}

// ClientIDPrefix sets the prefix of the client ids that the brokers see, "thalweg" by default.
func ClientIDPrefix(prefix string) Option {
	return clientOption(func(c *clientConfig) { c.clientID = prefix })
}

// ConnectTimeout bounds how long a start waits for the brokers, 30 s by default.
func ConnectTimeout(d time.Duration) Option {
	return clientOption(func(c *clientConfig) { c.connectTimeout = d })
}

func (c *clientConfig) validate(what string) (errs []error) {
	if len(c.brokers) == 0 {
		errs = append(errs, fmt.Errorf("kafka: %s has no brokers: add kafka.Brokers(\"host:port\")", what))
	}
	for _, b := range c.brokers {
		if b == "" {
			errs = append(errs, fmt.Errorf("kafka: %s has an empty broker address", what))
		}
	}
	if c.connectTimeout <= 0 {
		errs = append(errs, fmt.Errorf("kafka: ConnectTimeout is %v: it must be positive", c.connectTimeout))
	}
	return errs
}

type sourceConfig struct {
	clientConfig
	topics        []string
	pattern       *regexp.Regexp
	groupID       string
	start         Position
	stop          Position
	bounded       bool
	discovery     time.Duration
	discoverySet  bool
	readCommitted bool
	onDecodeError DecodePolicy
	onOutOfRange  Reset
	dropRemoved   bool
	errs          []error
}

func newSourceConfig(opts []SourceOption) *sourceConfig {
	c := &sourceConfig{
		clientConfig:  clientConfig{clientID: "thalweg", connectTimeout: 30 * time.Second},
		start:         Position{kind: posEarliest},
		discovery:     5 * time.Minute,
		onDecodeError: Fail,
		onOutOfRange:  NoReset,
	}
	for _, o := range opts {
		if o == nil {
			c.errs = append(c.errs, errors.New("kafka: a source option is nil"))
			continue
		}
		o.applySource(c)
	}
	if c.bounded {
		c.discovery = 0
	}
	return c
}

func (c *sourceConfig) validate() error {
	errs := append(c.clientConfig.validate("source"), c.errs...)
	switch {
	case len(c.topics) == 0 && c.pattern == nil:
		errs = append(errs, errors.New("kafka: source has no topics: add kafka.Topics or kafka.TopicPattern"))
	case len(c.topics) > 0 && c.pattern != nil:
		errs = append(errs, errors.New("kafka: source has both kafka.Topics and kafka.TopicPattern: give one of them"))
	}
	seen := map[string]bool{}
	for _, t := range c.topics {
		if t == "" {
			errs = append(errs, errors.New("kafka: source has an empty topic name"))
		}
		if seen[t] {
			errs = append(errs, fmt.Errorf("kafka: source names topic %q twice", t))
		}
		seen[t] = true
	}
	if c.groupID == "" && (c.start.kind == posCommitted || c.bounded && c.stop.kind == posCommitted) {
		errs = append(errs, errors.New("kafka: committed offsets need a group: add kafka.GroupID"))
	}
	errs = append(errs, c.start.validate("start")...)
	if c.bounded {
		errs = append(errs, c.stop.validate("end")...)
		if c.discoverySet && c.pattern == nil {
			// Harmless: discovery is off for bounded sources, as in Flink.
			_ = c.discoverySet
		}
	}
	if c.onDecodeError.kind == decodeDeadLetter && c.onDecodeError.topic == "" {
		errs = append(errs, errors.New("kafka: DeadLetter has an empty topic"))
	}
	return errors.Join(errs...)
}

// Topics sets the topics to read.
func Topics(topics ...string) SourceOption {
	return sourceOption(func(c *sourceConfig) { c.topics = append(c.topics, topics...) })
}

// TopicPattern reads every topic whose whole name matches the regular expression; topics found later are read from their beginning.
func TopicPattern(expr string) SourceOption {
	return sourceOption(func(c *sourceConfig) {
		re, err := regexp.Compile("^(?:" + expr + ")$")
		if err != nil {
			c.errs = append(c.errs, fmt.Errorf("kafka: TopicPattern: %w", err))
			return
		}
		c.pattern = re
	})
}

// GroupID sets the consumer group that offsets are committed to when a checkpoint completes, and that StartCommitted reads.
func GroupID(id string) SourceOption { return sourceOption(func(c *sourceConfig) { c.groupID = id }) }

// PartitionDiscovery sets how often new partitions (and topics of a pattern) are looked for: 5 minutes by default; zero or less turns
// it off. Always off for bounded sources. Partitions found later are read from their beginning.
func PartitionDiscovery(every time.Duration) SourceOption {
	return sourceOption(func(c *sourceConfig) { c.discovery, c.discoverySet = max(every, 0), true })
}

// ReadCommitted reads committed transactions only (isolation.level read_committed). The default is read_uncommitted.
func ReadCommitted() SourceOption {
	return sourceOption(func(c *sourceConfig) { c.readCommitted = true })
}

// OnOffsetOutOfRange says what to do when the offset to read is not (or no longer) in the log, or the topic was deleted and created
// again. NoReset (the default) fails the job with the offset that was wanted and those that are available; Earliest and Latest go on
// there, with a warning and the counter numOffsetResets.
func OnOffsetOutOfRange(r Reset) SourceOption {
	return sourceOption(func(c *sourceConfig) { c.onOutOfRange = r })
}

// DropRemovedPartitions makes a restored source forget partitions of topics that it no longer subscribes to or that no longer exist.
// By default their offsets are kept and used as soon as the partition is there (again).
func DropRemovedPartitions() SourceOption {
	return sourceOption(func(c *sourceConfig) { c.dropRemoved = true })
}

// DecodePolicy says what to do with a record that cannot be decoded: Fail, Skip or DeadLetter.
type DecodePolicy struct {
	kind  decodeKind
	topic string
}

type decodeKind int

const (
	decodeFail decodeKind = iota
	decodeSkip
	decodeDeadLetter
)

var (
	// Fail fails the job with topic, partition and offset of the record. The default.
	Fail = DecodePolicy{kind: decodeFail}
	// Skip drops the record and counts it in numRecordsSkipped.
	Skip = DecodePolicy{kind: decodeSkip}
)

// DeadLetter writes the record, with its key and headers, to topic, adding the headers "topic", "partition", "offset" and "error".
// At least once: the writes are acknowledged before a checkpoint is. Counted in numRecordsDeadLettered.
func DeadLetter(topic string) DecodePolicy {
	return DecodePolicy{kind: decodeDeadLetter, topic: topic}
}

// OnDecodeError sets the policy for records that cannot be decoded, Fail by default.
func OnDecodeError(p DecodePolicy) SourceOption {
	return sourceOption(func(c *sourceConfig) { c.onDecodeError = p })
}
