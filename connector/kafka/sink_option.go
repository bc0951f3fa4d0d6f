package kafka

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// DeliveryGuarantee is what a sink promises.
type DeliveryGuarantee int

const (
	// GuaranteeNone: records may be lost on a failure of a broker, lost or written twice on a failure of the job.
	GuaranteeNone DeliveryGuarantee = iota
	// GuaranteeAtLeastOnce: acknowledged before each checkpoint; records since the last checkpoint are written again after a failure.
	GuaranteeAtLeastOnce
	// GuaranteeExactlyOnce: one transaction per checkpoint interval, committed when the checkpoint is complete.
	GuaranteeExactlyOnce
)

func (g DeliveryGuarantee) String() string {
	switch g {
	case GuaranteeAtLeastOnce:
		return "at-least-once"
	case GuaranteeExactlyOnce:
		return "exactly-once"
	default:
		return "none"
	}
}

const (
	// defaultTransactionTimeout is the brokers' default of transaction.max.timeout.ms. Flink's default is an hour, which brokers with
	// default settings refuse.
	defaultTransactionTimeout = 15 * time.Minute
	maxTransactionalIDLength  = 249
	// defaultLinger is that of Kafka's own client since version 4 (linger.ms).
	defaultLinger = 5 * time.Millisecond
)

type sinkConfig struct {
	clientConfig
	topic      string
	guarantee  DeliveryGuarantee
	prefix     string
	txnTimeout time.Duration
	linger     time.Duration
	acceptLost bool
	now        func() time.Time
	// Functions of the record type; checked against T when the sink is made.
	key, headers, partition, topicOf, record any
	errs                                     []error
}

func newSinkConfig(opts []SinkOption) *sinkConfig {
	c := &sinkConfig{
		clientConfig: clientConfig{clientID: "thalweg", connectTimeout: 30 * time.Second},
		txnTimeout:   defaultTransactionTimeout,
		linger:       defaultLinger,
		now:          time.Now,
	}
	for _, o := range opts {
		if o == nil {
			c.errs = append(c.errs, errors.New("kafka: a sink option is nil"))
			continue
		}
		o.applySink(c)
	}
	return c
}

func (c *sinkConfig) validate() error {
	errs := append(c.clientConfig.validate("sink"), c.errs...)
	if c.topic == "" && c.topicOf == nil && c.record == nil {
		errs = append(errs, errors.New("kafka: sink has no topic: add kafka.Topic"))
	}
	if c.linger < 0 || c.linger > time.Minute {
		errs = append(errs, fmt.Errorf("kafka: Linger is %v: it must be between 0 and 1 minute", c.linger))
	}
	if c.guarantee == GuaranteeExactlyOnce {
		if c.prefix == "" {
			errs = append(errs, errors.New("kafka: exactly-once needs a transactional id prefix that no other application on the cluster uses"))
		}
		if len(c.prefix) > maxTransactionalIDLength-22 {
			errs = append(errs, fmt.Errorf("kafka: transactional id prefix has %d bytes, at most %d are possible", len(c.prefix), maxTransactionalIDLength-22))
		}
		if c.txnTimeout < time.Second || c.txnTimeout.Milliseconds() > math.MaxInt32 {
			errs = append(errs, fmt.Errorf("kafka: TransactionTimeout is %v: it must be between 1 s and 24 days", c.txnTimeout))
		}
	}
	return errors.Join(errs...)
}

// Topic sets the topic to write to.
func Topic(topic string) SinkOption { return sinkOption(func(c *sinkConfig) { c.topic = topic }) }

// NoGuarantee is the default: nothing waits for acknowledgements, save the end of the input.
func NoGuarantee() SinkOption {
	return sinkOption(func(c *sinkConfig) { c.guarantee = GuaranteeNone })
}

// AtLeastOnce waits at each checkpoint until everything written before it is acknowledged.
func AtLeastOnce() SinkOption {
	return sinkOption(func(c *sinkConfig) { c.guarantee = GuaranteeAtLeastOnce })
}

// ExactlyOnce writes in transactions. The prefix must be unique to the application in the Kafka cluster and stay the same over its
// restarts: transactional ids are prefix + subtask + "-" + slot, with a "-" after a prefix that ends with a digit, so that no id belongs to two
// prefixes ("job" and "job2"). Consumers must read with isolation level read_committed.
func ExactlyOnce(transactionalIDPrefix string) SinkOption {
	return Guarantee(GuaranteeExactlyOnce, transactionalIDPrefix)
}

// idPrefix is what the ids of a prefix begin with.
func idPrefix(prefix string) string {
	if n := len(prefix); n > 0 && prefix[n-1] >= '0' && prefix[n-1] <= '9' {
		return prefix + "-"
	}
	return prefix
}

// Guarantee sets the guarantee by value, for programs that take it from a flag; the prefix matters for exactly-once only.
func Guarantee(g DeliveryGuarantee, transactionalIDPrefix string) SinkOption {
	return sinkOption(func(c *sinkConfig) { c.guarantee, c.prefix = g, idPrefix(transactionalIDPrefix) })
}

// TransactionTimeout sets how long the brokers keep an open transaction before they abort it, 15 minutes by default (the brokers' own
// maximum by default). It must be longer than the longest checkpoint interval plus the longest outage of the job: a transaction that was
// aborted after its checkpoint completed is lost, and the job then refuses to go on silently (see AcceptLostTransactions). When no
// checkpoint completes in time (nine tenths of it after a failed one), the job fails before anything is lost and writes the records again.
func TransactionTimeout(d time.Duration) SinkOption {
	return sinkOption(func(c *sinkConfig) { c.txnTimeout = d })
}

// Linger sets how long a record waits for others of its partition before it is sent, 5 ms by default (linger.ms of Kafka's own client since
// version 4). With 0 a record is sent at once; those that come while a request is under way still share the next. The wait is part of every
// result's latency, and saves requests.
func Linger(d time.Duration) SinkOption {
	return sinkOption(func(c *sinkConfig) { c.linger = d })
}

// AcceptLostTransactions lets a job go on when a transaction that belongs to a completed checkpoint was aborted by the brokers. The loss is
// logged with topics, offsets and id, and counted in numTransactionsLost.
func AcceptLostTransactions() SinkOption {
	return sinkOption(func(c *sinkConfig) { c.acceptLost = true })
}

// KeyFunc sets the record key. The returned slice is copied.
func KeyFunc[T any](fn func(T) []byte) SinkOption {
	return sinkOption(func(c *sinkConfig) { c.key = fn })
}

// HeaderFunc sets the record headers. The returned slice is kept until the record is acknowledged.
func HeaderFunc[T any](fn func(T) []Header) SinkOption {
	return sinkOption(func(c *sinkConfig) { c.headers = fn })
}

// TopicFunc chooses the topic by record.
func TopicFunc[T any](fn func(T) string) SinkOption {
	return sinkOption(func(c *sinkConfig) { c.topicOf = fn })
}

// PartitionFunc chooses the partition by value, key and number of partitions; one that does not exist fails the job. By default records with a key go to the partition that
// Kafka's Java client chooses (murmur2), others stick to a partition for a batch.
func PartitionFunc[T any](fn func(v T, key []byte, partitions int) int) SinkOption {
	return sinkOption(func(c *sinkConfig) { c.partition = fn })
}

// RecordFunc fills the whole record: key, value, headers, timestamp, topic. rec comes with the topic of Topic, the event time as timestamp, and
// reused Key and Value of length 0 with capacity to append to.
func RecordFunc[T any](fn func(v T, rec *Record) error) SinkOption {
	return sinkOption(func(c *sinkConfig) { c.record = fn })
}

func fnOf[F any](errs *[]error, name string, v any) F {
	var zero F
	if v == nil {
		return zero
	}
	f, ok := v.(F)
	if !ok {
		*errs = append(*errs, fmt.Errorf("kafka: %s is a %T, the sink needs a %T", name, v, zero))
	}
	return f
}

// partitioner adapts PartitionFunc. The value travels in the record's context.
type choosePartition struct{ fn func(r *Record, n int) int }

func (c choosePartition) ForTopic(string) kgo.TopicPartitioner { return c }
func (choosePartition) RequiresConsistency(*kgo.Record) bool   { return true }
func (c choosePartition) Partition(r *kgo.Record, n int) int   { return c.fn(r, n) }
