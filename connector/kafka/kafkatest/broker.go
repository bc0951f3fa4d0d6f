// Package kafkatest holds what tests need of a Kafka cluster: an embedded broker or the one that the environment names, topics with
// unique names, producers and independent readers; and the suites that run against either (Run). Layer L1.
package kafkatest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Env names the environment variable with the bootstrap servers of a real cluster, comma separated.
const Env = "THALWEG_KAFKA"

// Cluster is a Kafka cluster for a test.
type Cluster struct {
	Brokers []string
	Fake    *kfake.Cluster // nil for a real one
	cl      *kgo.Client
	adm     *kadm.Client
}

// NewFake starts an embedded broker that lives as long as the test.
func NewFake(tb testing.TB, opts ...kfake.Opt) *Cluster {
	tb.Helper()
	f, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1)}, opts...)...)
	if err != nil {
		tb.Fatalf("start embedded broker: %v", err)
	}
	tb.Cleanup(f.Close)
	c := connect(tb, f.ListenAddrs())
	c.Fake = f
	return c
}

// Connect uses a running cluster.
func Connect(tb testing.TB, brokers string) *Cluster {
	tb.Helper()
	return connect(tb, strings.Split(brokers, ","))
}

// Each runs fn as a subtest against an embedded broker, and against the real one when the environment names it.
func Each(t *testing.T, fn func(t *testing.T, c *Cluster)) {
	t.Run("fake", func(t *testing.T) { fn(t, NewFake(t)) })
	if b := os.Getenv(Env); b != "" {
		t.Run("real", func(t *testing.T) { fn(t, Connect(t, b)) })
	}
}

func connect(tb testing.TB, brokers []string) *Cluster {
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DisableClientMetrics())
	if err != nil {
		tb.Fatalf("make client: %v", err)
	}
	tb.Cleanup(cl.Close)
	return &Cluster{Brokers: brokers, cl: cl, adm: kadm.NewClient(cl)}
}

// Admin is an admin client.
func (c *Cluster) Admin() *kadm.Client { return c.adm }

// Client is a client that partitions by hand.
func (c *Cluster) Client() *kgo.Client { return c.cl }

// Name makes a unique name.
func Name(prefix string) string {
	var b [5]byte
	_, _ = rand.Read(b[:])
	return prefix + "-" + hex.EncodeToString(b[:])
}

// Topic makes a topic with a unique name; it is deleted with the test.
func (c *Cluster) Topic(tb testing.TB, partitions int) string {
	tb.Helper()
	name := Name("t")
	c.CreateTopic(tb, name, partitions)
	return name
}

// CreateTopic makes a topic and waits until it can be used.
func (c *Cluster) CreateTopic(tb testing.TB, name string, partitions int) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := c.adm.CreateTopic(ctx, int32(partitions), 1, nil, name); err != nil {
		tb.Fatalf("create topic %s: %v", name, err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_, _ = c.adm.DeleteTopic(ctx, name)
	})
	c.WaitPartitions(tb, name, partitions)
}

// WaitPartitions waits until the topic has (at least) so many partitions with leaders.
func (c *Cluster) WaitPartitions(tb testing.TB, topic string, n int) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		lo, err := c.adm.ListEndOffsets(ctx, topic)
		ok := 0
		lo.Each(func(o kadm.ListedOffset) {
			if o.Err == nil {
				ok++
			}
		})
		if err == nil && ok >= n {
			return
		}
		if !wait(ctx, 20*time.Millisecond) {
			tb.Fatalf("topic %s: %d of %d partitions: %v", topic, ok, n, err)
		}
	}
}

func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Produce writes values to a partition and waits for the acknowledgements.
func (c *Cluster) Produce(tb testing.TB, topic string, partition int32, values ...string) {
	tb.Helper()
	recs := make([]*kgo.Record, len(values))
	for i, v := range values {
		recs[i] = &kgo.Record{Topic: topic, Partition: partition, Value: []byte(v)}
	}
	c.ProduceRecords(tb, recs...)
}

// ProduceRecords writes records and waits for the acknowledgements.
func (c *Cluster) ProduceRecords(tb testing.TB, recs ...*kgo.Record) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	if err := c.cl.ProduceSync(ctx, recs...).FirstErr(); err != nil {
		tb.Fatalf("produce: %v", err)
	}
}

// Read reads a topic from its beginning to its present end: to the last stable offset when committed, else to the high watermark.
// It is independent of the source under test.
func (c *Cluster) Read(tb testing.TB, topic string, committed bool) []*kgo.Record {
	tb.Helper()
	recs, err := ReadAll(context.Background(), c.Brokers, topic, committed)
	if err != nil {
		tb.Fatalf("read %s: %v", topic, err)
	}
	return recs
}

// ReadAll is Read without a test.
func ReadAll(ctx context.Context, brokers []string, topic string, committed bool) ([]*kgo.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	opts := []kgo.Opt{kgo.SeedBrokers(brokers...), kgo.KeepControlRecords(), kgo.FetchMaxWait(100 * time.Millisecond), kgo.DisableClientMetrics()}
	if committed {
		opts = append(opts, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	begin, err := adm.ListStartOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	listEnd := adm.ListEndOffsets
	if committed {
		listEnd = adm.ListCommittedOffsets
	}
	end, err := listEnd(ctx, topic)
	if err != nil {
		return nil, err
	}
	from, left := map[int32]kgo.Offset{}, map[int32]int64{}
	for p, e := range end[topic] {
		b, _ := begin.Lookup(topic, p)
		if e.Offset > b.Offset {
			left[p] = e.Offset
			from[p] = kgo.NewOffset().At(b.Offset)
		}
	}
	cl.AddConsumePartitions(map[string]map[int32]kgo.Offset{topic: from})
	var out []*kgo.Record
	for len(left) > 0 {
		fs := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			return out, fmt.Errorf("read %s: ends not reached: %v: %w", topic, left, ctx.Err())
		}
		fs.EachRecord(func(r *kgo.Record) {
			e, ok := left[r.Partition]
			if !ok || r.Offset >= e {
				return
			}
			if !r.Attrs.IsControl() {
				out = append(out, r)
			}
			if r.Offset == e-1 {
				delete(left, r.Partition)
			}
		})
	}
	return out, nil
}
