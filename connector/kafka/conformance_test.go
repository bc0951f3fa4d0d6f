package kafka_test

import (
	"fmt"
	"testing"

	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/connector/connectortest"
	"github.com/thalweg/thalweg/connector/kafka"
	"github.com/thalweg/thalweg/connector/kafka/kafkatest"
)

func TestSourceConformance(t *testing.T) {
	kafkatest.Each(t, func(t *testing.T, c *kafkatest.Cluster) {
		topic := c.Topic(t, 3)
		var want []string
		for p := range int32(3) {
			vs := seq(fmt.Sprintf("p%d-1", p), 100, 100+60*int(p+1))
			c.Produce(t, topic, p, vs...)
			want = append(want, vs...)
		}
		connectortest.TestSource(t, connectortest.SourceSuite[string]{
			New:     func() connector.Source[string] { return source(c, topic, kafka.EndLatest()) },
			Key:     func(s string) string { return s },
			Want:    want,
			Ordered: func(a, b string) bool { return a < b },
		})
	})
}

func TestAtLeastOnceSinkConformance(t *testing.T) {
	kafkatest.Each(t, func(t *testing.T, c *kafkatest.Cluster) {
		connectortest.TestSink(t, 4, func(t *testing.T) connectortest.SinkSuite[string] {
			topic := c.Topic(t, 2)
			return connectortest.SinkSuite[string]{
				AtLeastOnce: true,
				New: func() connector.Sink[string] {
					return kafka.Sink[string](text{}, kafka.Brokers(c.Brokers...), kafka.Topic(topic), kafka.AtLeastOnce())
				},
				Value:     func(s string) string { return s },
				Committed: func(t *testing.T) []string { return values(c.Read(t, topic, true)) },
			}
		})
	})
}

func TestSinkConformance(t *testing.T) {
	protocols(t, func(t *testing.T, c *kafkatest.Cluster, opts []kafka.SinkOption) {
		connectortest.TestSink(t, 12, func(t *testing.T) connectortest.SinkSuite[string] {
			topic, prefix := c.Topic(t, 2), kafkatest.Name("x")+"-"
			return connectortest.SinkSuite[string]{
				New:       func() connector.Sink[string] { return txnSink(c, topic, prefix, opts...) },
				Value:     func(s string) string { return s },
				Committed: func(t *testing.T) []string { return committed(t, c, topic) },
				Clean: func(t *testing.T) {
					if c.Fake == nil { // the embedded broker opens transactions for fenced producers of crashed attempts
						wantNoneOpen(t, c, topic, prefix)
					}
				},
			}
		})
	})
}
