package kafka_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/connector/connectortest"
	"github.com/thalweg/thalweg/connector/kafka"
	"github.com/thalweg/thalweg/connector/kafka/kafkatest"
)

func strays(t *testing.T, c *kafkatest.Cluster) *kafka.Transactions {
	t.Helper()
	x, err := kafka.ConnectTransactions(t.Context(), connectortest.Logger(t), kafka.Brokers(c.Brokers...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.Close)
	return x
}

// open lists the open transactions of a prefix.
func open(t *testing.T, x *kafka.Transactions, prefix string) (all []kafka.Transaction) {
	t.Helper()
	listed, err := x.List(t.Context(), kafka.Selection{Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	for _, tx := range listed {
		if tx.Open() {
			all = append(all, tx)
		}
	}
	return all
}

// prepared is what a checkpoint has prepared, as it stands in a snapshot.
func prepared(t *testing.T, cp *connectortest.SinkCheckpoint) (all []kafka.PreparedTransaction) {
	t.Helper()
	for _, b := range cp.Committables {
		p, err := kafka.DecodePrepared(b)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	return all
}

// A job that died for good leaves what its last checkpoint prepared, and what it wrote since. The first is committed by the checkpoint, the second
// aborted; other applications' transactions are not touched, and readers wait for nothing.
func TestStraysAreListedCommittedAndAborted(t *testing.T) {
	protocols(t, func(t *testing.T, c *kafkatest.Cluster, opts []kafka.SinkOption) {
		topic, prefix := c.Topic(t, 2), kafkatest.Name("x")+"-"
		r := connectortest.MustStartSink(t, txnSink(c, topic, prefix, opts...), 3, nil, connectortest.SinkOptions{})
		other := connectortest.MustStartSink(t, txnSink(c, topic, prefix+"1-", opts...), 1, nil, connectortest.SinkOptions{})
		other.Write(0, "other")
		ocp := other.Checkpoint()
		r.Write(0, "a", "b")
		r.Write(2, "c")
		cp := r.Checkpoint()
		r.Write(1, "since")
		if err := r.Writer(1).Flush(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		r.Abandon()

		x := strays(t, c)
		listed := open(t, x, prefix)
		want := prepared(t, cp)
		if len(listed) != 3 || len(want) != 2 {
			t.Fatalf("%d open, %d prepared: %v", len(listed), len(want), listed)
		}
		for _, tx := range listed {
			if tx.State != "Ongoing" || tx.Started.IsZero() || tx.Timeout <= 0 || len(tx.Partitions) == 0 || tx.Partitions[0].Topic != topic {
				t.Errorf("%+v", tx)
			}
		}
		for _, p := range want {
			at := slices.IndexFunc(listed, p.Is)
			if at < 0 {
				t.Fatalf("%+v is not listed", p)
			}
			listed = slices.Delete(listed, at, at+1)
			if before, err := x.Commit(t.Context(), p); err != nil || before {
				t.Fatalf("commit %s: before %v, %v", p.ID, before, err)
			}
			if before, err := x.Commit(t.Context(), p); err != nil || !before {
				t.Fatalf("again %s: before %v, %v", p.ID, before, err)
			}
		}
		if err := x.Abort(t.Context(), listed[0]); err != nil {
			t.Fatal(err)
		}
		if err := x.Abort(t.Context(), listed[0]); !errors.Is(err, kafka.ErrMovedOn) && err != nil {
			t.Fatal(err)
		}
		if _, err := c.OpenTransactions(t.Context(), ""); err != nil { // waits for ends in progress
			t.Fatal(err)
		}
		if left := open(t, x, prefix); len(left) != 0 {
			t.Fatalf("still open: %v", left)
		}
		other.Complete(ocp)
		wantCommitted(t, c, topic, "a", "b", "c", "other")

		// The job comes back after all, from the very checkpoint.
		r2 := connectortest.MustStartSink(t, txnSink(c, topic, prefix, opts...), 2, cp, connectortest.SinkOptions{Attempt: 1})
		r2.Write(0, "since")
		r2.Complete(r2.Checkpoint())
		wantCommitted(t, c, topic, "a", "b", "c", "other", "since")
		wantNoneOpen(t, c, topic, prefix)
	})
}

// Between the list and the abort the id went on to another transaction: that one is not aborted.
func TestAbortOfATransactionThatHasMovedOn(t *testing.T) {
	protocols(t, func(t *testing.T, c *kafkatest.Cluster, opts []kafka.SinkOption) {
		topic, prefix := c.Topic(t, 1), kafkatest.Name("x")+"-"
		r := connectortest.MustStartSink(t, txnSink(c, topic, prefix, opts...), 1, nil, connectortest.SinkOptions{})
		r.Write(0, "a")
		if err := r.Writer(0).Flush(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		x := strays(t, c)
		old := open(t, x, prefix)
		r.Abandon()
		r2 := connectortest.MustStartSink(t, txnSink(c, topic, prefix, opts...), 1, nil, connectortest.SinkOptions{Attempt: 1})
		r2.Write(0, "b")
		cp := r2.Checkpoint()
		if len(old) != 1 {
			t.Fatalf("%v", old)
		}
		if err := x.Abort(t.Context(), old[0]); !errors.Is(err, kafka.ErrMovedOn) {
			t.Fatalf("got %v", err)
		}
		r2.Complete(cp)
		wantCommitted(t, c, topic, "b")
	})
}

// The writer of an aborted transaction is still alive: it cannot go on with it.
func TestAbortFencesTheWriter(t *testing.T) {
	protocols(t, func(t *testing.T, c *kafkatest.Cluster, opts []kafka.SinkOption) {
		if c.Fake != nil {
			return // the embedded broker opens a transaction for a fenced producer before it looks at the epoch
		}
		topic, prefix := c.Topic(t, 1), kafkatest.Name("x")+"-"
		r := connectortest.MustStartSink(t, txnSink(c, topic, prefix, opts...), 1, nil, connectortest.SinkOptions{})
		r.Write(0, "a")
		if err := r.Writer(0).Flush(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		x := strays(t, c)
		for _, tx := range open(t, x, prefix) {
			if err := x.Abort(t.Context(), tx); err != nil {
				t.Fatal(err)
			}
		}
		_ = r.Writer(0).Write("b", connector.NoTimestamp)
		if _, err := r.TryCheckpoint(false); err == nil {
			t.Fatal("the writer went on")
		}
		wantNoneOpen(t, c, topic, prefix)
		wantCommitted(t, c, topic)
	})
}

// The brokers have aborted what a checkpoint prepared: the commit tells the loss.
func TestCommitOfAnAbortedTransactionTellsTheLoss(t *testing.T) {
	protocols(t, func(t *testing.T, c *kafkatest.Cluster, opts []kafka.SinkOption) {
		topic, prefix := c.Topic(t, 1), kafkatest.Name("x")+"-"
		r := connectortest.MustStartSink(t, txnSink(c, topic, prefix, opts...), 1, nil, connectortest.SinkOptions{})
		r.Write(0, "a")
		cp := r.Checkpoint()
		r.Kill()
		if err := c.AbortTransactions(t.Context(), prefix); err != nil {
			t.Fatal(err)
		}
		var lost *kafka.LostTransactionError
		if _, err := strays(t, c).Commit(t.Context(), prepared(t, cp)[0]); !errors.As(err, &lost) || lost.Topics[0].Topic != topic {
			t.Fatalf("got %v", err)
		}
	})
}

// An id whose epochs are used up gets another producer id from the brokers. The sink goes on, a restart finds out what became of the last
// transaction before it, and what the former producer still writes is refused (KAFKA-9666).
func TestEpochsThatAreUsedUp(t *testing.T) {
	protocols(t, func(t *testing.T, c *kafkatest.Cluster, opts []kafka.SinkOption) {
		topic, prefix := c.Topic(t, 1), kafkatest.Name("x")+"-"
		id := prefix + "0-0"
		producers := map[int64]bool{}
		epoch := int16(-1)
		for epoch < 32_760 { // the largest is 32766
			p, e := c.Initialise(t, id)
			producers[p], epoch = true, e
		}
		var want []string
		r := connectortest.MustStartSink(t, txnSink(c, topic, prefix, opts...), 1, nil, connectortest.SinkOptions{})
		for i := range 24 { // three ids share the transactions
			v := string(rune('a' + i))
			r.Write(0, v)
			want = append(want, v)
			cp := r.Checkpoint()
			for _, p := range prepared(t, cp) {
				if p.ID == id {
					producers[p.ProducerID] = true
				}
			}
			if i%8 != 5 {
				r.Complete(cp)
				continue
			}
			r.Kill()
			r = connectortest.MustStartSink(t, txnSink(c, topic, prefix, opts...), 1, cp, connectortest.SinkOptions{Attempt: i})
			wantCommitted(t, c, topic, want...)
			r.Kill()
			r = connectortest.MustStartSink(t, txnSink(c, topic, prefix, opts...), 1, cp, connectortest.SinkOptions{Attempt: i + 1})
		}
		wantCommitted(t, c, topic, want...)
		wantNoneOpen(t, c, topic, prefix)
		if len(producers) < 2 {
			t.Fatalf("producer ids %v: the epochs were not used up, the test shows nothing", producers)
		}
	})
}

// "job" and "job2" are prefixes of two jobs: neither aborts what is the other's, whatever their subtasks' numbers.
func TestAPrefixThatBeginsWithAnother(t *testing.T) {
	protocols(t, func(t *testing.T, c *kafkatest.Cluster, opts []kafka.SinkOption) {
		topic, job := c.Topic(t, 1), kafkatest.Name("x")+"-job"
		second := connectortest.MustStartSink(t, txnSink(c, topic, job+"2", opts...), 1, nil, connectortest.SinkOptions{})
		second.Write(0, "a")
		cp := second.Checkpoint()
		connectortest.MustStartSink(t, txnSink(c, topic, job, opts...), 2, nil, connectortest.SinkOptions{})
		if n := len(open(t, strays(t, c), job)); n != 0 {
			t.Errorf("%d transactions are listed as of %s", n, job)
		}
		if n := len(open(t, strays(t, c), job+"2")); n != 1 {
			t.Errorf("%d transactions are listed as of %s2", n, job)
		}
		second.Complete(cp)
		wantCommitted(t, c, topic, "a")
	})
}

// Two sinks of one job with one prefix, whatever the order of the brokers.
func TestSinksOwnTheirPrefix(t *testing.T) {
	of := func(prefix string, brokers ...string) string {
		return kafka.Sink[string](text{}, kafka.Brokers(brokers...), kafka.Topic("t"), kafka.ExactlyOnce(prefix)).(connector.Owner).Owns()[0]
	}
	if a, b := of("x-", "a:1", "b:1"), of("x-", "b:1", "a:1"); a != b {
		t.Errorf("%s, %s", a, b)
	}
	if a, b := of("x-", "a:1"), of("y-", "a:1"); a == b {
		t.Errorf("%s, %s", a, b)
	}
	if _, ok := kafka.Sink[string](text{}, kafka.Brokers("a:1"), kafka.Topic("t")).(connector.Owner); ok {
		t.Error("a sink without transactions owns a prefix")
	}
}
