package kafka_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/thalweg/thalweg/connector/connectortest"
	"github.com/thalweg/thalweg/connector/kafka"
	"github.com/thalweg/thalweg/connector/kafka/kafkatest"
)

func deleteTopic(t *testing.T, c *kafkatest.Cluster, topic string) {
	t.Helper()
	if _, err := c.Admin().DeleteTopic(t.Context(), topic); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the topic is gone", func() bool {
		l, err := c.Admin().ListTopics(t.Context())
		return err == nil && !l.Has(topic)
	})
}

// recreate deletes a topic and creates another one under its name.
func recreate(t *testing.T, c *kafkatest.Cluster, topic string, partitions int) {
	t.Helper()
	deleteTopic(t, c, topic)
	eventually(t, "the topic is created", func() bool {
		_, err := c.Admin().CreateTopic(t.Context(), int32(partitions), 1, nil, topic)
		return err == nil
	})
	c.WaitPartitions(t, topic, partitions)
}

// version1 is a checkpoint as builds wrote it that did not note the ids of topics.
func version1(cp *connectortest.SinkCheckpoint) *connectortest.SinkCheckpoint {
	old := *cp
	old.Committables = nil
	for _, b := range cp.Committables {
		old.Committables = append(old.Committables, kafka.Version1ForTest(b))
	}
	return &old
}

func wantDeleted(t *testing.T, err error, topic string, says ...string) {
	t.Helper()
	var lost *kafka.LostTransactionError
	if !errors.As(err, &lost) || !lost.Fatal() || !slices.Equal(lost.Deleted, []string{topic}) {
		t.Fatalf("got %v", err)
	}
	for _, s := range append(says, fmt.Sprintf("topic %q was deleted", topic), "LOST", "kafka.AcceptLostTransactions()") {
		if !strings.Contains(err.Error(), s) {
			t.Fatalf("%v lacks %q", err, s)
		}
	}
}

// The topic is another one when the transaction is to be committed: its records went with the old one. The job must say so, whether it lives
// on or is restored, and goes on in the new topic when the operator accepts it.
func TestTopicCreatedAgainBeforeTheCommit(t *testing.T) {
	protocols(t, func(t *testing.T, c *kafkatest.Cluster, opts []kafka.SinkOption) {
		topic, prefix := c.Topic(t, 2), kafkatest.Name("x")+"-"
		r := connectortest.MustStartSink(t, txnSink(c, topic, prefix, opts...), 1, nil, connectortest.SinkOptions{})
		r.Write(0, "a")
		cp := r.Checkpoint()
		recreate(t, c, topic, 2)
		wantDeleted(t, r.TryComplete(cp), topic, "created again", prefix+"0-0")
		for _, from := range []*connectortest.SinkCheckpoint{cp, version1(cp), cp} {
			_, err := connectortest.StartSink(t, txnSink(c, topic, prefix, opts...), 1, from, connectortest.SinkOptions{})
			wantDeleted(t, err, topic, "created again")
		}
		r2 := connectortest.MustStartSink(t, txnSink(c, topic, prefix, append(opts, kafka.AcceptLostTransactions())...), 1, cp, connectortest.SinkOptions{})
		if n := r2.Metrics[0].Value("numTransactionsLost"); n != 1 {
			t.Fatalf("numTransactionsLost %v", n)
		}
		r2.Write(0, "b")
		r2.Complete(r2.Checkpoint())
		wantCommitted(t, c, topic, "b")
		wantNoneOpen(t, c, topic, prefix)
	})
}

// A live job that accepts the loss commits the next transactions into the new topic once its clients know it.
func TestTopicCreatedAgainIsAcceptedByTheLiveJob(t *testing.T) {
	kafkatest.Each(t, func(t *testing.T, c *kafkatest.Cluster) {
		topic, prefix := c.Topic(t, 1), kafkatest.Name("x")+"-"
		r := connectortest.MustStartSink(t, txnSink(c, topic, prefix, kafka.AcceptLostTransactions()), 1, nil, connectortest.SinkOptions{})
		r.Write(0, "a")
		cp := r.Checkpoint()
		recreate(t, c, topic, 1)
		r.Complete(cp)
		if n := r.Metrics[0].Value("numTransactionsLost"); n != 1 {
			t.Fatalf("numTransactionsLost %v", n)
		}
	})
}

// The topic is not there any more when the transaction is to be committed, and nobody creates it.
func TestTopicDeletedForGood(t *testing.T) {
	kafkatest.Each(t, func(t *testing.T, c *kafkatest.Cluster) {
		topic, prefix := c.Topic(t, 1), kafkatest.Name("x")+"-"
		r := connectortest.MustStartSink(t, txnSink(c, topic, prefix, kafka.ConnectTimeout(2*time.Second)), 1, nil, connectortest.SinkOptions{})
		r.Write(0, "a")
		cp := r.Checkpoint()
		deleteTopic(t, c, topic)
		wantDeleted(t, r.TryComplete(cp), topic)
	})
}

// The topic is created again while the job writes: one failure that is retried, and the restart writes the records since the last checkpoint
// into the new topic. What was committed before is not taken for lost, however often the job is started.
func TestTopicCreatedAgainWhileTheJobWrites(t *testing.T) {
	protocols(t, func(t *testing.T, c *kafkatest.Cluster, opts []kafka.SinkOption) {
		for name, more := range map[string][]kafka.SinkOption{"one topic": nil, "topic by record": {kafka.TopicFunc(func(v string) string { return v[1:] })}} {
			t.Run(name, func(t *testing.T) {
				topic, prefix := c.Topic(t, 1), kafkatest.Name("x")+"-"
				s := txnSink(c, topic, prefix, append(opts, more...)...)
				r := connectortest.MustStartSink(t, s, 1, nil, connectortest.SinkOptions{})
				var cp *connectortest.SinkCheckpoint
				if c.Fake == nil { // the embedded broker does not say how a transaction ended
					r.Write(0, "a"+topic)
					cp = r.Checkpoint()
					r.Complete(cp)
					r.Write(0, "b"+topic)
					r.Checkpoint() // never completed
				}
				r.Write(0, "c"+topic)
				if err := r.Writer(0).Flush(t.Context(), false); err != nil {
					t.Fatal(err)
				}
				recreate(t, c, topic, 1)
				_, err := r.TryCheckpoint(false)
				if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("topic %q was deleted and created again", topic)) {
					t.Fatalf("got %v", err)
				}
				var final interface{ Fatal() bool }
				if errors.As(err, &final) && final.Fatal() {
					t.Fatalf("%v is not retried", err)
				}
				r.Kill()
				for attempt := range 3 {
					r = connectortest.MustStartSink(t, s, 1, cp, connectortest.SinkOptions{Attempt: attempt + 1})
					r.Write(0, "b"+topic, "c"+topic)
					if attempt < 2 {
						r.Checkpoint() // never completed
						r.Kill()
					}
				}
				r.Complete(r.Checkpoint())
				wantCommitted(t, c, topic, "b"+topic, "c"+topic)
				wantNoneOpen(t, c, topic, prefix)
			})
		}
	})
}

// A transaction wrote to two topics and one of them is gone: what the other has is committed when the loss is accepted, and waits until then.
func TestTheOtherTopicsOfALostTransaction(t *testing.T) {
	protocols(t, func(t *testing.T, c *kafkatest.Cluster, opts []kafka.SinkOption) {
		gone, kept, prefix := c.Topic(t, 1), c.Topic(t, 1), kafkatest.Name("x")+"-"
		opts = append(opts, kafka.TopicFunc(func(v string) string {
			if v == "gone" {
				return gone
			}
			return kept
		}))
		r := connectortest.MustStartSink(t, txnSink(c, kept, prefix, opts...), 1, nil, connectortest.SinkOptions{})
		r.Write(0, "gone", "kept")
		cp := r.Checkpoint()
		recreate(t, c, gone, 1)
		wantDeleted(t, r.TryComplete(cp), gone)
		_, err := connectortest.StartSink(t, txnSink(c, kept, prefix, opts...), 1, cp, connectortest.SinkOptions{})
		wantDeleted(t, err, gone)
		wantCommitted(t, c, kept)
		for range 2 { // the second time all is done
			r2 := connectortest.MustStartSink(t, txnSink(c, kept, prefix, append(opts, kafka.AcceptLostTransactions())...), 1, cp, connectortest.SinkOptions{})
			wantCommitted(t, c, kept, "kept")
			wantCommitted(t, c, gone)
			r2.Close()
		}
		wantNoneOpen(t, c, kept, prefix)
	})
}
