package kafka_test

import (
	"testing"
	"time"

	"github.com/thalweg/thalweg/connector/connectortest"
	"github.com/thalweg/thalweg/connector/kafka"
	"github.com/thalweg/thalweg/connector/kafka/kafkatest"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// groupOffset is what a group has committed, -1 for nothing.
func groupOffset(t *testing.T, c *kafkatest.Cluster, group, topic string, partition int32) int64 {
	t.Helper()
	os, err := c.Admin().FetchOffsets(t.Context(), group)
	if err != nil {
		return -1
	}
	o, ok := os.Lookup(topic, partition)
	if !ok {
		return -1
	}
	return o.At
}

// A task that ends directly after its last checkpoint (a bounded input, stop with savepoint) leaves that checkpoint's offsets in the group.
func TestLastCheckpointIsCommittedBeforeTheReaderIsClosed(t *testing.T) {
	kafkatest.Each(t, func(t *testing.T, c *kafkatest.Cluster) {
		topic, group := c.Topic(t, 1), kafkatest.Name("g")
		c.Produce(t, topic, 0, seq("v", 0, 10)...)
		run := connectortest.StartSource(t, source(c, topic, kafka.GroupID(group)), 1, nil)
		run.Until("ten records", func() bool { return len(run.Records) == 10 })
		if c.Fake != nil { // the coordinator takes its time
			release := make(chan struct{})
			c.Fake.ControlKey(int16(kmsg.OffsetCommit), func(kmsg.Request) (kmsg.Response, error, bool) {
				<-release
				return nil, nil, false
			})
			time.AfterFunc(200*time.Millisecond, func() { close(release) })
		}
		run.Complete(run.Checkpoint())
		run.Close()
		if at := groupOffset(t, c, group, topic, 0); at != 10 {
			t.Fatalf("committed %d, want 10", at)
		}
		if v := run.Metrics[0].Value("KafkaSourceReader.commitsFailed"); v != 0 {
			t.Fatalf("%v commits failed", v)
		}
	})
}

// A commit that fails does not fail the job and loses nothing: the next one holds the ends of partitions that were read to their end before,
// too.
func TestFailedCommitIsMadeUpForByTheNext(t *testing.T) {
	c := kafkatest.NewFake(t)
	topic, group := c.Topic(t, 2), kafkatest.Name("g")
	c.Produce(t, topic, 0, seq("a", 0, 3)...)
	c.Produce(t, topic, 1, seq("b", 0, 3)...)
	run := connectortest.StartSource(t, source(c, topic, kafka.GroupID(group),
		kafka.EndOffsets(map[kafka.TopicPartition]int64{{Topic: topic, Partition: 0}: 3, {Topic: topic, Partition: 1}: 5})), 1, nil)
	run.Until("six records", func() bool { return len(run.Records) == 6 })
	c.Fake.ControlKey(int16(kmsg.OffsetCommit), func(req kmsg.Request) (kmsg.Response, error, bool) {
		resp := req.ResponseKind().(*kmsg.OffsetCommitResponse)
		for _, rt := range req.(*kmsg.OffsetCommitRequest).Topics {
			st := kmsg.NewOffsetCommitResponseTopic()
			st.Topic, st.TopicID = rt.Topic, rt.TopicID
			for _, rp := range rt.Partitions {
				sp := kmsg.NewOffsetCommitResponseTopicPartition()
				sp.Partition, sp.ErrorCode = rp.Partition, kerr.GroupAuthorizationFailed.Code
				st.Partitions = append(st.Partitions, sp)
			}
			resp.Topics = append(resp.Topics, st)
		}
		return resp, nil, true
	})
	run.Complete(run.Checkpoint())
	run.Until("the failure is counted", func() bool { return run.Metrics[0].Value("KafkaSourceReader.commitsFailed") == 1 })
	if err := run.Err(); err != nil {
		t.Fatal(err)
	}
	run.Complete(run.Checkpoint())
	run.Until("the next commit", func() bool { return run.Metrics[0].Value("KafkaSourceReader.commitsSucceeded") == 1 })
	for p := range int32(2) {
		if at := groupOffset(t, c, group, topic, p); at != 3 {
			t.Errorf("partition %d: committed %d, want 3", p, at)
		}
	}
}

// A partition that has no leader yet when the source asks for its offsets is waited for.
func TestPartitionWithoutLeaderIsWaitedFor(t *testing.T) {
	c := kafkatest.NewFake(t)
	topic := c.Topic(t, 1)
	c.Produce(t, topic, 0, seq("v", 0, 3)...)
	left := 5
	c.Fake.ControlKey(int16(kmsg.ListOffsets), func(req kmsg.Request) (kmsg.Response, error, bool) {
		if left == 0 {
			return nil, nil, false
		}
		left--
		c.Fake.KeepControl()
		resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
		for _, rt := range req.(*kmsg.ListOffsetsRequest).Topics {
			st := kmsg.NewListOffsetsResponseTopic()
			st.Topic = rt.Topic
			for _, rp := range rt.Partitions {
				sp := kmsg.NewListOffsetsResponseTopicPartition()
				sp.Partition, sp.ErrorCode = rp.Partition, kerr.LeaderNotAvailable.Code
				st.Partitions = append(st.Partitions, sp)
			}
			resp.Topics = append(resp.Topics, st)
		}
		return resp, nil, true
	})
	run := connectortest.StartSource(t, source(c, topic), 1, nil)
	run.Until("three records", func() bool { return len(run.Records) == 3 })
}
