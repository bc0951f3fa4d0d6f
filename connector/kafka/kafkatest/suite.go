package kafkatest

import (
	"context"
	"fmt"
	"testing"

	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/connector/connectortest"
	"github.com/thalweg/thalweg/connector/kafka"
)

// Text is a format of plain strings.
type Text struct{}

func (Text) Serialize(dst []byte, v string) ([]byte, error) { return append(dst, v...), nil }
func (Text) Deserialize(b []byte) (string, error)           { return string(b), nil }
func (Text) Name() string                                   { return "text" }

// Run runs the conformance suites of the source and the sink against a cluster: restores and rescaling at random points, crashes between
// checkpoint and commit, repeated commits. The package's own tests (go test with the variable THALWEG_KAFKA) say more.
func Run(t *testing.T, brokers string) {
	c := Connect(t, brokers)
	t.Run("source", func(t *testing.T) {
		topic := c.Topic(t, 3)
		var want []string
		for p := range int32(3) {
			var vs []string
			for i := range 80 * int(p+1) {
				vs = append(vs, fmt.Sprintf("p%d-%04d", p, i))
			}
			c.Produce(t, topic, p, vs...)
			want = append(want, vs...)
		}
		connectortest.TestSource(t, connectortest.SourceSuite[string]{
			New: func() connector.Source[string] {
				return kafka.Source[string](Text{}, kafka.Brokers(c.Brokers...), kafka.Topics(topic), kafka.EndLatest())
			},
			Key:     func(s string) string { return s },
			Want:    want,
			Ordered: func(a, b string) bool { return a < b },
		})
	})
	t.Run("sink", func(t *testing.T) {
		connectortest.TestSink(t, 8, func(t *testing.T) connectortest.SinkSuite[string] {
			topic, prefix := c.Topic(t, 2), Name("suite")+"-"
			return connectortest.SinkSuite[string]{
				New: func() connector.Sink[string] {
					return kafka.Sink[string](Text{}, kafka.Brokers(c.Brokers...), kafka.Topic(topic), kafka.ExactlyOnce(prefix),
						kafka.KeyFunc(func(s string) []byte { return []byte(s) }))
				},
				Value: func(s string) string { return s },
				Committed: func(t *testing.T) []string {
					if _, err := c.OpenTransactions(context.Background(), ""); err != nil { // waits for ends in progress
						t.Fatal(err)
					}
					var vs []string
					for _, r := range c.Read(t, topic, true) {
						vs = append(vs, string(r.Value))
					}
					return vs
				},
				Clean: func(t *testing.T) {
					open, err := c.OpenTransactions(context.Background(), prefix)
					if err != nil || len(open) > 0 {
						t.Fatalf("open transactions %v: %v", open, err)
					}
				},
			}
		})
	})
}
