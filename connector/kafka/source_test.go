package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/connector/connectortest"
	"github.com/thalweg/thalweg/connector/kafka"
	"github.com/thalweg/thalweg/connector/kafka/kafkatest"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// text is a format of plain strings; values that start with "bad" cannot be decoded.
type text struct{}

func (text) Serialize(dst []byte, v string) ([]byte, error) { return append(dst, v...), nil }

func (text) Deserialize(b []byte) (string, error) {
	if strings.HasPrefix(string(b), "bad") {
		return "", fmt.Errorf("value %q is bad", b)
	}
	return string(b), nil
}

func (text) Name() string { return "text" }

func seq(prefix string, from, to int) (vs []string) {
	for i := from; i < to; i++ {
		vs = append(vs, prefix+strconv.Itoa(i))
	}
	return vs
}

func sorted(vs []string) []string {
	vs = slices.Clone(vs)
	sort.Strings(vs)
	return vs
}

func wantValues(t *testing.T, got, want []string) {
	t.Helper()
	if g, w := sorted(got), sorted(want); !slices.Equal(g, w) {
		t.Fatalf("got %d values %v\nwant %d values %v", len(g), g, len(w), w)
	}
}

func source(c *kafkatest.Cluster, topic string, opts ...kafka.SourceOption) connector.Source[string] {
	return kafka.Source[string](text{}, append([]kafka.SourceOption{kafka.Brokers(c.Brokers...), kafka.Topics(topic)}, opts...)...)
}

func TestSourceStartsAndEndsWhereItIsTold(t *testing.T) {
	kafkatest.Each(t, func(t *testing.T, c *kafkatest.Cluster) {
		topic := c.Topic(t, 2)
		base := time.UnixMilli(1_700_000_000_000)
		for p := range int32(2) {
			for i := range 10 {
				c.ProduceRecords(t, &kgo.Record{Topic: topic, Partition: p, Timestamp: base.Add(time.Duration(i) * time.Second), Value: []byte(fmt.Sprintf("p%d-%d", p, i))})
			}
		}
		group := kafkatest.Name("g")
		os := kadm.Offsets{}
		os.Add(kadm.Offset{Topic: topic, Partition: 0, At: 7, LeaderEpoch: -1})
		if resp, err := c.Admin().CommitOffsets(context.Background(), group, os); err != nil || resp.Error() != nil {
			t.Fatal(err, resp.Error())
		}
		tp := func(p int32) kafka.TopicPartition { return kafka.TopicPartition{Topic: topic, Partition: p} }
		all := append(seq("p0-", 0, 10), seq("p1-", 0, 10)...)
		cases := []struct {
			name string
			opts []kafka.SourceOption
			want []string
		}{
			{"earliest", []kafka.SourceOption{kafka.StartEarliest()}, all},
			{"latest", []kafka.SourceOption{kafka.StartLatest()}, nil},
			{"committed", []kafka.SourceOption{kafka.GroupID(group), kafka.StartCommitted(kafka.Earliest)}, append(seq("p0-", 7, 10), seq("p1-", 0, 10)...)},
			{"committed latest", []kafka.SourceOption{kafka.GroupID(group), kafka.StartCommitted(kafka.Latest)}, seq("p0-", 7, 10)},
			{"timestamp", []kafka.SourceOption{kafka.StartTimestamp(base.Add(6 * time.Second))}, append(seq("p0-", 6, 10), seq("p1-", 6, 10)...)},
			{"timestamp after the end", []kafka.SourceOption{kafka.StartTimestamp(base.Add(time.Hour))}, nil},
			{"explicit", []kafka.SourceOption{kafka.StartOffsets(map[kafka.TopicPartition]int64{tp(1): 8}, kafka.Latest)}, seq("p1-", 8, 10)},
			{"end timestamp", []kafka.SourceOption{kafka.EndTimestamp(base.Add(3 * time.Second))}, append(seq("p0-", 0, 3), seq("p1-", 0, 3)...)},
			{"end explicit", []kafka.SourceOption{kafka.EndOffsets(map[kafka.TopicPartition]int64{tp(0): 2, tp(1): 0})}, seq("p0-", 0, 2)},
			{"end committed", []kafka.SourceOption{kafka.GroupID(group), kafka.StartOffsets(map[kafka.TopicPartition]int64{tp(1): 10}, kafka.Earliest), kafka.EndOffsets(map[kafka.TopicPartition]int64{tp(0): 7})}, seq("p0-", 0, 7)},
		}
		for _, tc := range cases {
			t.Run(tc.name, func(t *testing.T) {
				run := connectortest.StartSource(t, source(c, topic, append([]kafka.SourceOption{kafka.EndLatest()}, tc.opts...)...), 2, nil)
				run.Until("the end of input", run.Ended)
				wantValues(t, run.Values(), tc.want)
				for _, r := range run.Records {
					var p, i int64
					if _, err := fmt.Sscanf(r.Value, "p%d-%d", &p, &i); err != nil {
						t.Fatal(err)
					}
					if r.Timestamp != base.UnixMilli()+1000*i || r.Split != fmt.Sprintf("%s-%d", topic, p) {
						t.Fatalf("record %+v has a wrong timestamp or split", r)
					}
				}
			})
		}
		t.Run("no committed offset", func(t *testing.T) {
			run := connectortest.StartSource(t, source(c, topic, kafka.GroupID(group), kafka.StartCommitted(kafka.NoReset)), 1, nil)
			if err := run.UntilFailed(); !strings.Contains(err.Error(), topic+"-1 has no committed offset of group") {
				t.Fatal(err)
			}
		})
	})
}

// More subtasks than partitions: in a bounded job the surplus ends, in an unbounded one without discovery it stays idle.
func TestSurplusSubtasks(t *testing.T) {
	kafkatest.Each(t, func(t *testing.T, c *kafkatest.Cluster) {
		topic := c.Topic(t, 1)
		c.Produce(t, topic, 0, "a", "b")
		run := connectortest.StartSource(t, source(c, topic, kafka.EndLatest()), 3, nil)
		run.Until("the end of input", run.Ended)
		wantValues(t, run.Values(), []string{"a", "b"})

		run = connectortest.StartSource(t, source(c, topic, kafka.PartitionDiscovery(0)), 3, nil)
		run.Until("two records", func() bool { return len(run.Records) == 2 })
		if run.Within(300*time.Millisecond, func() bool { return run.SubtaskEnded(0) || run.SubtaskEnded(1) || run.SubtaskEnded(2) }) {
			t.Fatal("a subtask of an unbounded source ended")
		}
	})
}

// A partition that is discovered later is read from its beginning though the source starts at the latest offsets.
func TestLaterPartitionStartsAtItsBeginning(t *testing.T) {
	kafkatest.Each(t, func(t *testing.T, c *kafkatest.Cluster) {
		topic := c.Topic(t, 1)
		c.Produce(t, topic, 0, seq("old", 0, 3)...)
		run := connectortest.StartSource(t, source(c, topic, kafka.StartLatest(), kafka.PartitionDiscovery(100*time.Millisecond)), 2, nil)
		run.Until("partition 0 to be assigned", func() bool {
			return run.Metrics[0].Has("KafkaSourceReader.topic."+topic+".partition.0.currentOffset") || run.Metrics[1].Has("KafkaSourceReader.topic."+topic+".partition.0.currentOffset")
		})
		cp := run.Checkpoint()
		if _, err := c.Admin().CreatePartitions(context.Background(), 1, topic); err != nil {
			t.Fatal(err)
		}
		c.WaitPartitions(t, topic, 2)
		c2 := kafkatest.Connect(t, strings.Join(c.Brokers, ","))
		c2.Produce(t, topic, 1, seq("new", 0, 5)...)
		run.Until("five records", func() bool { return len(run.Records) == 5 })
		c2.Produce(t, topic, 1, seq("new", 5, 10)...)
		run.Until("ten records", func() bool { return len(run.Records) == 10 })
		wantValues(t, run.Values(), seq("new", 0, 10))
		run.Close()

		// The same when the partition appears between the checkpoint and the restore.
		run = connectortest.StartSource(t, source(c, topic, kafka.StartLatest(), kafka.PartitionDiscovery(0)), 1, cp)
		run.Until("ten records", func() bool { return len(run.Records) >= 10 })
		wantValues(t, run.Values(), seq("new", 0, 10))
	})
}

func TestOffsetsAreCommittedWithCheckpointsOnly(t *testing.T) {
	kafkatest.Each(t, func(t *testing.T, c *kafkatest.Cluster) {
		topic, group := c.Topic(t, 1), kafkatest.Name("g")
		c.Produce(t, topic, 0, seq("v", 0, 10)...)
		run := connectortest.StartSource(t, source(c, topic, kafka.GroupID(group)), 1, nil)
		run.Until("ten records", func() bool { return len(run.Records) == 10 })
		committed := func() int64 {
			os, err := c.Admin().FetchOffsets(context.Background(), group)
			if err != nil {
				return -1
			}
			o, ok := os.Lookup(topic, 0)
			if !ok {
				return -1
			}
			return o.At
		}
		cp1 := run.Checkpoint()
		c.Produce(t, topic, 0, "v10")
		run.Until("eleven records", func() bool { return len(run.Records) == 11 })
		cp2 := run.Checkpoint()
		if at := committed(); at != -1 {
			t.Fatalf("committed %d before a checkpoint completed", at)
		}
		run.Complete(cp1)
		run.Until("the commit of the first checkpoint", func() bool { return run.Metrics[0].Value("KafkaSourceReader.commitsSucceeded") == 1 })
		if at := committed(); at != 10 {
			t.Fatalf("committed %d, want 10", at)
		}
		run.Complete(cp2)
		run.Until("the commit of the second checkpoint", func() bool { return committed() == 11 })
		if v := run.Metrics[0].Value("KafkaSourceReader.topic." + topic + ".partition.0.currentOffset"); v != 11 {
			t.Fatalf("currentOffset %v", v)
		}
		if v := run.Metrics[0].Value("pendingRecords"); v != 0 {
			t.Fatalf("pendingRecords %v", v)
		}
	})
}

func TestOffsetOutOfRange(t *testing.T) {
	kafkatest.Each(t, func(t *testing.T, c *kafkatest.Cluster) {
		topic := c.Topic(t, 1)
		c.Produce(t, topic, 0, seq("v", 0, 3)...)
		run := connectortest.StartSource(t, source(c, topic), 1, nil)
		run.Until("three records", func() bool { return len(run.Records) == 3 })
		cp := run.Checkpoint()
		run.Close()
		c.Produce(t, topic, 0, seq("v", 3, 10)...)
		os := kadm.Offsets{}
		os.Add(kadm.Offset{Topic: topic, Partition: 0, At: 8})
		if _, err := c.Admin().DeleteRecords(context.Background(), os); err != nil {
			t.Fatal(err)
		}

		run = connectortest.StartSource(t, source(c, topic), 1, cp)
		err := run.UntilFailed()
		var oe *kafka.OffsetError
		if !errors.As(err, &oe) || oe.Topic != topic || oe.Wanted != 3 || oe.Earliest != 8 || oe.Latest != 10 {
			t.Fatalf("got %v", err)
		}
		run.Close()
		for _, tc := range []struct {
			reset kafka.Reset
			want  []string
		}{{kafka.Earliest, []string{"v8", "v9", "new"}}, {kafka.Latest, []string{"new"}}} {
			run = connectortest.StartSource(t, source(c, topic, kafka.OnOffsetOutOfRange(tc.reset)), 1, cp)
			run.Until("the reset", func() bool { return run.Metrics[0].Value("numOffsetResets") == 1 })
			c.Produce(t, topic, 0, "new")
			run.Until("the new record", func() bool { return slices.Contains(run.Values(), "new") })
			if tc.reset == kafka.Latest {
				wantValues(t, run.Values(), tc.want)
			} else if got := run.Values(); got[0] != "v8" || got[1] != "v9" {
				t.Fatalf("got %v", got)
			}
			run.Close()
		}

		// Retention that moves the beginning after "earliest" was resolved takes nothing that could have been read: no failure.
		run = connectortest.StartSource(t, source(c, topic, kafka.StartEarliest()), 1, nil)
		run.Until("records", func() bool { return len(run.Records) >= 2 })
	})
}

func TestRecreatedTopicIsDetected(t *testing.T) {
	kafkatest.Each(t, func(t *testing.T, c *kafkatest.Cluster) {
		topic := c.Topic(t, 1)
		c.Produce(t, topic, 0, seq("old", 0, 10)...)
		run := connectortest.StartSource(t, source(c, topic), 1, nil)
		run.Until("ten records", func() bool { return len(run.Records) == 10 })
		cp := run.Checkpoint()
		run.Close()
		if _, err := c.Admin().DeleteTopic(context.Background(), topic); err != nil {
			t.Fatal(err)
		}
		c.CreateTopic(t, topic, 1)
		c2 := kafkatest.Connect(t, strings.Join(c.Brokers, ","))
		// More records than the old topic had: its next offset exists here too.
		c2.Produce(t, topic, 0, seq("new", 0, 15)...)
		run = connectortest.StartSource(t, source(c, topic), 1, cp)
		if err := run.UntilFailed(); !strings.Contains(err.Error(), "was deleted and created again") || !strings.Contains(err.Error(), topic) {
			t.Fatal(err)
		}
		if len(run.Records) != 0 {
			t.Fatalf("read %v from the new topic at old offsets", run.Values())
		}
		run.Close()
		run = connectortest.StartSource(t, source(c, topic, kafka.OnOffsetOutOfRange(kafka.Earliest)), 1, cp)
		run.Until("fifteen records", func() bool { return len(run.Records) == 15 })
		wantValues(t, run.Values(), seq("new", 0, 15))
	})
}

// A restored partition that the metadata does not have (yet) keeps its offset and is read when it is there.
func TestOffsetOfMissingPartitionIsKept(t *testing.T) {
	kafkatest.Each(t, func(t *testing.T, c *kafkatest.Cluster) {
		topic := kafkatest.Name("t")
		c.CreateTopic(t, topic, 1)
		c.Produce(t, topic, 0, "a")
		run := connectortest.StartSource(t, source(c, topic), 1, nil)
		run.Until("a record", func() bool { return len(run.Records) == 1 })
		cp := run.Checkpoint()
		run.Close()
		cp.Splits = append(cp.Splits, kafka.SplitForTest(topic, 1, 2))
		cp.Enumerator = kafka.EnumeratorForTest(topic, 2)

		run = connectortest.StartSource(t, source(c, topic), 1, cp)
		c.Produce(t, topic, 0, "b")
		run.Until("a record", func() bool { return len(run.Records) == 1 })
		if _, err := c.Admin().CreatePartitions(context.Background(), 1, topic); err != nil {
			t.Fatal(err)
		}
		c.WaitPartitions(t, topic, 2)
		cp2 := run.Checkpoint()
		if len(cp2.Splits) != 2 {
			t.Fatalf("state has %d splits, want 2", len(cp2.Splits))
		}
		c2 := kafkatest.Connect(t, strings.Join(c.Brokers, ","))
		c2.Produce(t, topic, 1, seq("x", 0, 5)...)
		run.Until("the records from offset 2 on", func() bool { return len(run.Records) >= 4 })
		wantValues(t, run.Values(), []string{"b", "x2", "x3", "x4"})
	})
}

func TestBadRecords(t *testing.T) {
	kafkatest.Each(t, func(t *testing.T, c *kafkatest.Cluster) {
		topic, dead := c.Topic(t, 1), c.Topic(t, 1)
		c.Produce(t, topic, 0, "a")
		c.ProduceRecords(t, &kgo.Record{Topic: topic, Key: []byte("k"), Value: []byte("bad one"), Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("1")}}})
		c.Produce(t, topic, 0, "b")

		run := connectortest.StartSource(t, source(c, topic, kafka.EndLatest()), 1, nil)
		err := run.UntilFailed()
		var re *kafka.RecordError
		if !errors.As(err, &re) || re.Topic != topic || re.Partition != 0 || re.Offset != 1 || !strings.Contains(err.Error(), `value "bad one" is bad`) {
			t.Fatalf("got %v", err)
		}
		run.Close()

		run = connectortest.StartSource(t, source(c, topic, kafka.EndLatest(), kafka.OnDecodeError(kafka.Skip)), 1, nil)
		run.Until("the end", run.Ended)
		wantValues(t, run.Values(), []string{"a", "b"})
		if n := run.Metrics[0].Value("numRecordsSkipped"); n != 1 {
			t.Fatalf("numRecordsSkipped %v", n)
		}
		run.Close()

		run = connectortest.StartSource(t, source(c, topic, kafka.OnDecodeError(kafka.DeadLetter(dead))), 1, nil)
		run.Until("two records", func() bool { return len(run.Records) == 2 })
		run.Checkpoint() // flushes
		recs := c.Read(t, dead, true)
		if len(recs) != 1 || string(recs[0].Value) != "bad one" || string(recs[0].Key) != "k" {
			t.Fatalf("dead letters %v", recs)
		}
		h := map[string]string{}
		for _, x := range recs[0].Headers {
			h[x.Key] = string(x.Value)
		}
		if h["topic"] != topic || h["partition"] != "0" || h["offset"] != "1" || h["h"] != "1" || !strings.Contains(h["error"], "is bad") {
			t.Fatalf("headers %v", h)
		}
	})
}

func TestSourceRecordsSeesTheWholeRecord(t *testing.T) {
	kafkatest.Each(t, func(t *testing.T, c *kafkatest.Cluster) {
		topic := c.Topic(t, 2)
		at := time.UnixMilli(1_700_000_000_123)
		c.ProduceRecords(t, &kgo.Record{Topic: topic, Partition: 1, Timestamp: at, Key: []byte("k"), Value: []byte("v"), Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("x")}}})
		src := kafka.SourceRecords(func(r *kafka.Record) (string, error) {
			return fmt.Sprintf("%s/%d/%d/%s/%s/%s/%d", r.Topic, r.Partition, r.Offset, r.Key, r.Value, r.Headers[0].Value, r.Timestamp.UnixMilli()), nil
		}, kafka.Brokers(c.Brokers...), kafka.Topics(topic), kafka.EndLatest())
		run := connectortest.StartSource(t, src, 1, nil)
		run.Until("the end", run.Ended)
		wantValues(t, run.Values(), []string{topic + "/1/0/k/v/x/1700000000123"})
	})
}

// The last offsets of a partition may be transaction markers or aborted records; a bounded reader ends all the same.
func TestBoundedReadOfTransactions(t *testing.T) {
	kafkatest.Each(t, func(t *testing.T, c *kafkatest.Cluster) {
		topic := c.Topic(t, 1)
		cl, err := kgo.NewClient(kgo.SeedBrokers(c.Brokers...), kgo.TransactionalID(kafkatest.Name("x")), kgo.DefaultProduceTopic(topic))
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		ctx := context.Background()
		for i, commit := range []bool{true, false} {
			if err := cl.BeginTransaction(); err != nil {
				t.Fatal(err)
			}
			if err := cl.ProduceSync(ctx, kgo.StringRecord(fmt.Sprintf("tx%d", i))).FirstErr(); err != nil {
				t.Fatal(err)
			}
			if err := cl.EndTransaction(ctx, kgo.TransactionEndTry(commit)); err != nil {
				t.Fatal(err)
			}
		}
		run := connectortest.StartSource(t, source(c, topic, kafka.EndLatest(), kafka.ReadCommitted()), 1, nil)
		run.Until("the end", run.Ended)
		wantValues(t, run.Values(), []string{"tx0"})
		run = connectortest.StartSource(t, source(c, topic, kafka.EndLatest()), 1, nil)
		run.Until("the end", run.Ended)
		wantValues(t, run.Values(), []string{"tx0", "tx1"})
	})
}

func TestTopicPattern(t *testing.T) {
	c := kafkatest.NewFake(t)
	p := kafkatest.Name("pat")
	c.CreateTopic(t, p+"-a", 1)
	c.CreateTopic(t, p+"-bb", 1)
	c.Produce(t, p+"-a", 0, "a")
	c.Produce(t, p+"-bb", 0, "b")
	src := kafka.Source[string](text{}, kafka.Brokers(c.Brokers...), kafka.TopicPattern(p+"-."), kafka.EndLatest())
	run := connectortest.StartSource(t, src, 2, nil)
	run.Until("the end", run.Ended)
	wantValues(t, run.Values(), []string{"a"})
}
