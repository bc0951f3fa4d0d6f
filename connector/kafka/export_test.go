package kafka

import (
	"encoding/binary"
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

// Version1ForTest is the committable as builds wrote it that did not note the ids of topics.
func Version1ForTest(b []byte) []byte {
	c, err := decodeCommittable(b)
	if err != nil {
		panic(err)
	}
	out := appendString([]byte{1}, c.id)
	for _, n := range []uint64{uint64(c.producerID), uint64(c.epoch), c.seq, uint64(c.checkpoint), uint64(len(c.spans))} {
		out = binary.AppendUvarint(out, n)
	}
	for _, s := range c.spans {
		out = appendString(out, s.topic)
		for _, n := range []uint64{uint64(s.partition), uint64(s.first), uint64(s.last)} {
			out = binary.AppendUvarint(out, n)
		}
	}
	return out
}
