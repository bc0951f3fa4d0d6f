package kafka

import (
	"fmt"
	"sync/atomic"

	"github.com/thalweg/thalweg/connector"
)

// sourceMetrics are a reader's metrics, under Flink's names where Flink has them.
//
// Source: Flink's KafkaSourceReaderMetrics.
type sourceMetrics struct {
	m                               connector.Metrics
	skipped, deadLettered, resets   connector.Counter
	commitsSucceeded, commitsFailed connector.Counter
}

func newSourceMetrics(m connector.Metrics) sourceMetrics {
	s := sourceMetrics{m: m}
	s.skipped = counter(m, "numRecordsSkipped")
	s.deadLettered = counter(m, "numRecordsDeadLettered")
	s.resets = counter(m, "numOffsetResets")
	s.commitsSucceeded = counter(m, "KafkaSourceReader.commitsSucceeded")
	s.commitsFailed = counter(m, "KafkaSourceReader.commitsFailed")
	return s
}

func (s sourceMetrics) gauge(name string, fn func() float64) {
	if s.m != nil {
		s.m.Gauge(name, fn)
	}
}

func (s sourceMetrics) partition(tp TopicPartition, current, committed *atomic.Int64) {
	name := fmt.Sprintf("KafkaSourceReader.topic.%s.partition.%d.", tp.Topic, tp.Partition)
	s.gauge(name+"currentOffset", func() float64 { return float64(current.Load()) })
	s.gauge(name+"committedOffset", func() float64 { return float64(committed.Load()) })
}

func counter(m connector.Metrics, name string) connector.Counter {
	if m == nil {
		return new(localCounter)
	}
	return m.Counter(name)
}

type localCounter struct{ atomic.Int64 }

func (c *localCounter) Add(n int64) { c.Int64.Add(n) }
