package kafka_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/thalweg/thalweg/connector/connectortest"
	"github.com/thalweg/thalweg/connector/kafka"
	"github.com/thalweg/thalweg/connector/kafka/kafkatest"
	"github.com/thalweg/thalweg/internal/guard"
	"github.com/twmb/franz-go/pkg/kgo"
)

// counted is a dialer that knows how many of its connections are open.
type counted struct{ open atomic.Int64 }

type countedConn struct {
	net.Conn
	c    *counted
	done atomic.Bool
}

func (c *counted) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	c.open.Add(1)
	return &countedConn{Conn: conn, c: c}, nil
}

func (c *countedConn) Close() error {
	if !c.done.Swap(true) {
		c.c.open.Add(-1)
	}
	return c.Conn.Close()
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// Checkpoints that fail in a row each need an id of their own. Once one completes, all is committed, the ids are used again and no new ones
// are made, and the clients that are not needed are closed.
func TestPoolShrinksAfterCheckpointsThatFailedInARow(t *testing.T) {
	protocols(t, func(t *testing.T, c *kafkatest.Cluster, opts []kafka.SinkOption) {
		const failed = 12
		topic, prefix := c.Topic(t, 1), kafkatest.Name("x")+"-"
		conns := &counted{}
		r := connectortest.MustStartSink(t, txnSink(c, topic, prefix, append(opts, kafka.ClientOptions(kgo.Dialer(conns.dial)))...), 1, nil, connectortest.SinkOptions{})
		var want []string
		write := func() {
			v := fmt.Sprintf("v%d", len(want))
			r.Write(0, v)
			want = append(want, v)
		}
		ids := func() int {
			t.Helper()
			m, err := c.TransactionalIDs(t.Context(), prefix)
			if err != nil {
				t.Fatal(err)
			}
			return len(m)
		}
		for range 3 {
			write()
			r.Complete(r.Checkpoint())
		}
		usual := conns.open.Load()
		for round := range 2 {
			for range failed {
				write()
				r.Checkpoint() // never completed
			}
			if most := conns.open.Load(); most < usual+failed-2 {
				t.Fatalf("round %d: %d connections with %d transactions open: the test does not see them", round, most, failed)
			}
			write()
			r.Complete(r.Checkpoint())
			wantCommitted(t, c, topic, want...)
			eventually(t, "the surplus clients are closed", func() bool { return conns.open.Load() <= usual+2 })
			for range 5 {
				write()
				r.Complete(r.Checkpoint())
			}
			wantCommitted(t, c, topic, want...)
			wantNoneOpen(t, c, topic, prefix)
			if n := ids(); n > failed+2 {
				t.Fatalf("round %d: %d ids, want at most %d", round, n, failed+2)
			}
		}
	})
}

// A transaction that the brokers abort before a checkpoint completes must not be part of a completed checkpoint: the job would lose its
// records. It goes back to the last checkpoint instead.
func TestOverdueTransactionFailsTheCheckpointAndLosesNothing(t *testing.T) {
	kafkatest.Each(t, func(t *testing.T, c *kafkatest.Cluster) {
		cases := []string{"open", "prepared", "prepared, then nothing to write"}
		if c.Fake == nil {
			cases = cases[2:] // brokers look for old transactions each 10 s only
		}
		for _, name := range cases {
			t.Run(name, func(t *testing.T) {
				topic, prefix := c.Topic(t, 1), kafkatest.Name("x")+"-"
				var ahead atomic.Int64
				clock := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
				limit, says := 10*time.Minute, "10m0s" // nothing here takes so long
				if c.Fake == nil {
					limit, says = 5*time.Second, "5s"
				}
				opts := []kafka.SinkOption{kafka.TransactionTimeout(limit), kafka.WithClockForTest(clock)}
				r := connectortest.MustStartSink(t, txnSink(c, topic, prefix, opts...), 1, nil, connectortest.SinkOptions{})
				r.Write(0, "a")
				cp := r.Checkpoint()
				r.Complete(cp)
				r.Write(0, "b")
				if name != "open" {
					r.Checkpoint() // never completed
				}
				if name == "prepared" {
					r.Write(0, "c")
				}
				if err := r.Writer(0).Flush(t.Context(), false); err != nil {
					t.Fatal(err)
				}
				if c.Fake == nil {
					eventually(t, "the broker has aborted the transaction", func() bool {
						open, err := c.OpenTransactions(t.Context(), prefix)
						return err == nil && len(open) == 0
					})
				} else {
					ahead.Store(int64(limit))
				}
				_, err := r.TryCheckpoint(false)
				if err == nil || !strings.Contains(err.Error(), "kafka.TransactionTimeout is "+says) || !strings.Contains(err.Error(), prefix) {
					t.Fatalf("got %v", err)
				}
				r.Kill()
				r2 := connectortest.MustStartSink(t, txnSink(c, topic, prefix, opts...), 1, cp, connectortest.SinkOptions{Attempt: 1})
				r2.Write(0, "b", "c") // as the source writes them again
				r2.Complete(r2.Checkpoint())
				wantCommitted(t, c, topic, "a", "b", "c")
				wantNoneOpen(t, c, topic, prefix)
			})
		}
	})
}

// PartitionFunc runs on goroutines of the client, where nobody would recover.
func TestPartitionFuncThatPanicsFailsTheJob(t *testing.T) {
	kafkatest.Each(t, func(t *testing.T, c *kafkatest.Cluster) {
		topic := c.Topic(t, 2)
		for name, guarantee := range map[string]kafka.SinkOption{"at least once": kafka.AtLeastOnce(), "exactly once": kafka.ExactlyOnce(topic + "-")} {
			r := connectortest.MustStartSink(t, kafka.Sink[string](text{}, kafka.Brokers(c.Brokers...), kafka.Topic(topic), guarantee,
				kafka.PartitionFunc(func(string, []byte, int) int { panic("ouch") })), 1, nil, connectortest.SinkOptions{})
			r.Write(0, "a")
			_, err := r.TryCheckpoint(false)
			if err == nil || !strings.Contains(err.Error(), "kafka.PartitionFunc: panic: ouch") || !strings.Contains(guard.Stack(err), "TestPartitionFuncThatPanics") {
				t.Errorf("%s: got %v", name, err)
			}
		}
	})
}

// A partition that does not exist is a fault of the user's function; the record must not go elsewhere.
func TestPartitionFuncOutOfRangeFailsTheJob(t *testing.T) {
	kafkatest.Each(t, func(t *testing.T, c *kafkatest.Cluster) {
		for _, bad := range []int{-1, 2} {
			topic := c.Topic(t, 2)
			r := connectortest.MustStartSink(t, kafka.Sink[string](text{}, kafka.Brokers(c.Brokers...), kafka.Topic(topic), kafka.AtLeastOnce(),
				kafka.PartitionFunc(func(string, []byte, int) int { return bad })), 1, nil, connectortest.SinkOptions{})
			r.Write(0, "a")
			if _, err := r.TryCheckpoint(false); err == nil || !strings.Contains(err.Error(), fmt.Sprint("partitioning choice of ", bad)) {
				t.Errorf("partition %d: got %v", bad, err)
			}
			if got := c.Read(t, topic, false); len(got) > 0 {
				t.Errorf("partition %d: the record was written to partition %d", bad, got[0].Partition)
			}
		}
	})
}
