package kafka

import (
	"time"

	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/connector/kafka/enumerator"
)

// SplitForTest is the state of an unbounded split.
func SplitForTest(topic string, partition int32, offset int64) connector.Split {
	s := split{topic: topic, partition: partition, offset: offset, stop: noOffset, epoch: -1}
	return s.encode()
}

// EnumeratorForTest is the state of an enumerator that has assigned n partitions.
func EnumeratorForTest(topic string, n int32) []byte {
	c, _ := enumerator.New(enumerator.Config{Parallelism: 1}, nil)
	c.ReaderUp(0)
	var parts []enumerator.Partition
	splits := map[enumerator.Key]connector.Split{}
	for p := range n {
		k := enumerator.Key{Topic: topic, Partition: p}
		parts = append(parts, enumerator.Partition{Key: k})
		splits[k] = SplitForTest(topic, p, 0)
	}
	c.Discovered(parts)
	c.Resolved(parts, splits)
	return c.Snapshot()
}

// WithClockForTest gives a sink another clock.
func WithClockForTest(now func() time.Time) SinkOption {
	return sinkOption(func(c *sinkConfig) { c.now = now })
}
