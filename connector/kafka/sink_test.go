package kafka_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/connector/connectortest"
	"github.com/thalweg/thalweg/connector/kafka"
	"github.com/thalweg/thalweg/connector/kafka/kafkatest"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"
)

// protocols runs fn with a client that speaks KIP-890 (transaction.version 2) and with one that does not.
func protocols(t *testing.T, fn func(t *testing.T, c *kafkatest.Cluster, opts []kafka.SinkOption)) {
	kafkatest.Each(t, func(t *testing.T, c *kafkatest.Cluster) {
		t.Run("tv2", func(t *testing.T) { fn(t, c, nil) })
		t.Run("tv1", func(t *testing.T) {
			fn(t, c, []kafka.SinkOption{kafka.ClientOptions(kgo.MaxVersions(kversion.V3_8_0()))})
		})
	})
}

func txnSink(c *kafkatest.Cluster, topic, prefix string, opts ...kafka.SinkOption) connector.Sink[string] {
	return kafka.Sink[string](text{}, append([]kafka.SinkOption{
		kafka.Brokers(c.Brokers...), kafka.Topic(topic), kafka.ExactlyOnce(prefix),
		kafka.KeyFunc(func(v string) []byte { return []byte(v) }),
	}, opts...)...)
}

func values(recs []*kgo.Record) (vs []string) {
	for _, r := range recs {
		vs = append(vs, string(r.Value))
	}
	return vs
}

func wantCommitted(t *testing.T, c *kafkatest.Cluster, topic string, want ...string) {
	t.Helper()
	wantValues(t, committed(t, c, topic), want)
}

func committed(t *testing.T, c *kafkatest.Cluster, topic string) []string {
	t.Helper()
	// The answer to EndTxn comes before the markers are in the log: wait for ends in progress.
	if _, err := c.OpenTransactions(context.Background(), ""); err != nil {
		t.Fatal(err)
	}
	return values(c.Read(t, topic, true))
}

// wantNoneOpen checks that readers with read_committed see up to the end of the topic and that no id with the prefix is in a transaction.
func wantNoneOpen(t *testing.T, c *kafkatest.Cluster, topic, prefix string) {
	t.Helper()
	open, err := c.OpenTransactions(context.Background(), prefix)
	if err != nil {
		t.Fatal(err)
	}
	if len(open) > 0 {
		t.Fatalf("open transactions: %v", open)
	}
	lag, err := c.StableLag(context.Background(), topic)
	if err != nil {
		t.Fatal(err)
	}
	if lag != 0 {
		t.Fatalf("last stable offset is %d behind the end", lag)
	}
}

func TestExactlyOnceCommitsWithTheCheckpoint(t *testing.T) {
	protocols(t, func(t *testing.T, c *kafkatest.Cluster, opts []kafka.SinkOption) {
		topic, prefix := c.Topic(t, 2), kafkatest.Name("x")+"-"
		r := connectortest.MustStartSink(t, txnSink(c, topic, prefix, opts...), 2, nil, connectortest.SinkOptions{})
		r.Write(0, "a", "b")
		r.Write(1, "c")
		cp1 := r.Checkpoint()
		r.Write(0, "d") // next interval, before the commit of the last one
		wantCommitted(t, c, topic)
		r.Complete(cp1)
		wantCommitted(t, c, topic, "a", "b", "c")
		cp2 := r.Checkpoint() // aborted by the coordinator: committed with the next one
		_ = cp2
		r.Write(0, "e")
		cp3 := r.Checkpoint()
		r.Complete(cp3)
		wantCommitted(t, c, topic, "a", "b", "c", "d", "e")
		if cp := r.Checkpoint(); len(cp.Committables) != 0 {
			t.Fatalf("an empty interval has committables")
		}
		for i := range 5 {
			r.Write(0, fmt.Sprintf("f%d", i))
			r.Complete(r.Checkpoint())
		}
		wantCommitted(t, c, topic, "a", "b", "c", "d", "e", "f0", "f1", "f2", "f3", "f4")
		wantNoneOpen(t, c, topic, prefix)
		ids, err := c.TransactionalIDs(context.Background(), prefix)
		if err != nil || len(ids) > 2*3 {
			t.Fatalf("ids %v: %v", ids, err)
		}
	})
}

// The process dies between a completed checkpoint and its commit, with an open transaction of the next interval; the job comes back at
// another parallelism, with subtasks in any order.
func TestExactlyOnceAfterCrash(t *testing.T) {
	protocols(t, func(t *testing.T, c *kafkatest.Cluster, opts []kafka.SinkOption) {
		for _, tc := range []struct {
			before, after int
			descending    bool
		}{{4, 2, false}, {4, 2, true}, {2, 4, false}, {3, 3, true}, {3, 1, false}} {
			t.Run(fmt.Sprintf("%d to %d", tc.before, tc.after), func(t *testing.T) {
				topic, prefix := c.Topic(t, 2), kafkatest.Name("x")+"-"
				r := connectortest.MustStartSink(t, txnSink(c, topic, prefix, opts...), tc.before, nil, connectortest.SinkOptions{})
				var want []string
				put := func(s string) {
					for sub := range tc.before {
						r.Write(sub, fmt.Sprintf("%s%d", s, sub))
						want = append(want, fmt.Sprintf("%s%d", s, sub))
					}
				}
				put("a")
				r.Complete(r.Checkpoint())
				put("b")
				cp := r.Checkpoint()
				committed := len(want)
				put("lost")
				for sub := range tc.before {
					if err := r.Writer(sub).Flush(context.Background(), false); err != nil {
						t.Fatal(err)
					}
				}
				want = want[:committed]

				r2 := connectortest.MustStartSink(t, txnSink(c, topic, prefix, opts...), tc.after, cp, connectortest.SinkOptions{Attempt: 1, Descending: tc.descending})
				wantCommitted(t, c, topic, want...)
				wantNoneOpen(t, c, topic, prefix)

				// What the former run still writes is refused. (The embedded broker refuses it too, but opens a transaction for the fenced
				// producer before it looks at the epoch.)
				if c.Fake == nil {
					for sub := range tc.before {
						_ = r.Writer(sub).Write("zombie", connector.NoTimestamp)
					}
					if _, err := r.TryCheckpoint(false); err == nil {
						t.Fatal("the former run could still write")
					}
					wantNoneOpen(t, c, topic, prefix)
				}

				// Restored a second time from the same checkpoint: commits are repeated without harm.
				r2.Write(0, "lost too")
				if err := r2.Writer(0).Flush(context.Background(), false); err != nil {
					t.Fatal(err)
				}
				r3 := connectortest.MustStartSink(t, txnSink(c, topic, prefix, opts...), tc.after, cp, connectortest.SinkOptions{Attempt: 2, Descending: !tc.descending})
				r3.Write(0, "c")
				r3.Complete(r3.Checkpoint())
				wantCommitted(t, c, topic, append(want, "c")...)
				wantNoneOpen(t, c, topic, prefix)
			})
		}
	})
}

// A job that starts without state aborts what former runs left open, whatever their parallelism, and touches no other application's.
func TestStraysAreAbortedWithoutState(t *testing.T) {
	protocols(t, func(t *testing.T, c *kafkatest.Cluster, opts []kafka.SinkOption) {
		topic, prefix := c.Topic(t, 1), kafkatest.Name("x")+"-"
		r := connectortest.MustStartSink(t, txnSink(c, topic, prefix, opts...), 4, nil, connectortest.SinkOptions{})
		other := connectortest.MustStartSink(t, txnSink(c, topic, prefix+"1-", opts...), 1, nil, connectortest.SinkOptions{})
		for sub := range 4 {
			r.Write(sub, "stray")
		}
		r.Checkpoint()
		r.Write(3, "stray")
		if err := r.Writer(3).Flush(context.Background(), false); err != nil {
			t.Fatal(err)
		}
		other.Write(0, "other")
		ocp := other.Checkpoint()

		r2 := connectortest.MustStartSink(t, txnSink(c, topic, prefix, opts...), 2, nil, connectortest.SinkOptions{})
		other.Complete(ocp)
		wantNoneOpen(t, c, topic, prefix)
		r2.Write(1, "a")
		r2.Complete(r2.Checkpoint())
		wantCommitted(t, c, topic, "other", "a")
		wantNoneOpen(t, c, topic, prefix)
	})
}

// Two jobs with one prefix: the one that came first is fenced, and its error says what to look for.
func TestFencedByAnotherJob(t *testing.T) {
	protocols(t, func(t *testing.T, c *kafkatest.Cluster, opts []kafka.SinkOption) {
		topic, prefix := c.Topic(t, 1), kafkatest.Name("same")+"-"
		first := connectortest.MustStartSink(t, txnSink(c, topic, prefix, opts...), 1, nil, connectortest.SinkOptions{})
		first.Write(0, "a")
		if err := first.Writer(0).Flush(context.Background(), false); err != nil {
			t.Fatal(err)
		}
		connectortest.MustStartSink(t, txnSink(c, topic, prefix, opts...), 1, nil, connectortest.SinkOptions{})
		_ = first.Writer(0).Write("b", connector.NoTimestamp) // the barrier has the error
		_, err := first.TryCheckpoint(false)
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("uses the transactional id prefix %q too", prefix)) || strings.Count(err.Error(), "another job") != 1 {
			t.Fatalf("%v, want a hint at the other job", err)
		}
	})
}

// Of two jobs with one prefix one writes at a time: when the second has begun, nothing that the first wrote becomes visible, be it written or prepared, and the
// first fails with the loss and its reason; when the first begins again, it is the other way round.
func TestTwoJobsWithOnePrefixNeverBothCommit(t *testing.T) {
	protocols(t, func(t *testing.T, c *kafkatest.Cluster, opts []kafka.SinkOption) {
		topic, prefix := c.Topic(t, 1), kafkatest.Name("same")+"-"
		start := func() *connectortest.SinkRun[string] {
			return connectortest.MustStartSink(t, txnSink(c, topic, prefix, opts...), 1, nil, connectortest.SinkOptions{})
		}
		var want []string
		last := start()
		for i := range 3 {
			name := string(rune('a' + i))
			last.Write(0, name)
			last.Complete(last.Checkpoint())
			want = append(want, name)
			last.Write(0, name+" prepared")
			prepared := last.Checkpoint()
			last.Write(0, name+" written")
			if err := last.Writer(0).Flush(context.Background(), false); err != nil {
				t.Fatal(err)
			}
			next := start()
			var lost *kafka.LostTransactionError
			if err := last.TryComplete(prepared); !errors.As(err, &lost) || !strings.Contains(err.Error(), fmt.Sprintf("another application uses the transactional id prefix %q", prefix)) {
				t.Fatalf("commit of what was prepared before another job began: %v", err)
			}
			_ = last.Writer(0).Write(name+" late", connector.NoTimestamp) // the barrier has the error
			if _, err := last.TryCheckpoint(false); err == nil || !strings.Contains(err.Error(), "another job") {
				t.Fatalf("the job that came before goes on: %v", err)
			}
			last = next
		}
		wantCommitted(t, c, topic, want...)
	})
}

// A prefix that was changed between two runs still gets its leftovers aborted.
func TestFormerPrefixIsCleanedUp(t *testing.T) {
	kafkatest.Each(t, func(t *testing.T, c *kafkatest.Cluster) {
		topic, prefix := c.Topic(t, 1), kafkatest.Name("x")+"-"
		r := connectortest.MustStartSink(t, txnSink(c, topic, prefix), 2, nil, connectortest.SinkOptions{})
		r.Write(0, "a")
		cp := r.Checkpoint()
		r.Write(1, "stray")
		if err := r.Writer(1).Flush(context.Background(), false); err != nil {
			t.Fatal(err)
		}
		connectortest.MustStartSink(t, txnSink(c, topic, "new-"+prefix), 1, cp, connectortest.SinkOptions{})
		wantNoneOpen(t, c, topic, prefix)
		wantCommitted(t, c, topic, "a")
	})
}

// A transaction that the brokers aborted before its commit is a loss that stops the job; an option lets it go on.
func TestLostTransactionFailsTheJob(t *testing.T) {
	protocols(t, func(t *testing.T, c *kafkatest.Cluster, opts []kafka.SinkOption) {
		topic, prefix := c.Topic(t, 1), kafkatest.Name("x")+"-"
		r := connectortest.MustStartSink(t, txnSink(c, topic, prefix, opts...), 1, nil, connectortest.SinkOptions{})
		r.Write(0, "a")
		cp := r.Checkpoint()
		if err := c.AbortTransactions(context.Background(), prefix); err != nil { // as after transaction.timeout.ms
			t.Fatal(err)
		}
		check := func(err error) {
			t.Helper()
			var lost *kafka.LostTransactionError
			if !errors.As(err, &lost) || lost.TransactionalID != prefix+"0-0" || len(lost.Topics) != 1 || lost.Topics[0].Topic != topic ||
				!strings.Contains(err.Error(), "offsets 0 to 0") || !strings.Contains(err.Error(), "AcceptLostTransactions") {
				t.Fatalf("got %v", err)
			}
		}
		check(r.TryComplete(cp)) // the live job
		for range 2 {            // a restored one, again and again
			_, err := connectortest.StartSink(t, txnSink(c, topic, prefix, opts...), 1, cp, connectortest.SinkOptions{})
			check(err)
		}
		r2 := connectortest.MustStartSink(t, txnSink(c, topic, prefix, append(opts, kafka.AcceptLostTransactions())...), 1, cp, connectortest.SinkOptions{})
		if n := r2.Metrics[0].Value("numTransactionsLost"); n != 1 {
			t.Fatalf("numTransactionsLost %v", n)
		}
		r2.Write(0, "b")
		r2.Complete(r2.Checkpoint())
		wantCommitted(t, c, topic, "b")
	})
}

// cutter is a dialer whose connections break around EndTxn requests.
type cutter struct {
	mu   sync.Mutex
	mode string // "", "request" (lost before the broker has it), "answer" (the broker has it, its answer is lost)
	left int
	hit  int
}

func (c *cutter) arm(mode string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mode, c.left, c.hit = mode, n, 0
}

func (c *cutter) hits() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hit
}

func (c *cutter) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &cutConn{Conn: conn, c: c}, nil
}

type cutConn struct {
	net.Conn
	c   *cutter
	mu  sync.Mutex
	cut bool
}

func (c *cutConn) Write(b []byte) (int, error) {
	if len(b) >= 6 && binary.BigEndian.Uint16(b[4:]) == 26 {
		c.c.mu.Lock()
		mode := ""
		if c.c.mode != "" && c.c.left > 0 {
			mode = c.c.mode
			c.c.left--
			c.c.hit++
		}
		c.c.mu.Unlock()
		switch mode {
		case "request":
			c.Close()
			return 0, errors.New("cut before EndTxn")
		case "answer":
			c.mu.Lock()
			c.cut = true
			c.mu.Unlock()
		}
	}
	return c.Conn.Write(b)
}

func (c *cutConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		c.Close()
		return 0, errors.New("cut after EndTxn")
	}
	return n, err
}

// The answer to EndTxn is lost, or the request: the outcome is found out, nothing is lost or written twice, and the sink goes on.
func TestEndOfTransactionWithUnknownOutcome(t *testing.T) {
	protocols(t, func(t *testing.T, c *kafkatest.Cluster, opts []kafka.SinkOption) {
		for _, mode := range []string{"request", "answer"} {
			for _, n := range []int{1, 3} {
				t.Run(fmt.Sprintf("%s %d", mode, n), func(t *testing.T) {
					topic, prefix := c.Topic(t, 2), kafkatest.Name("x")+"-"
					cut := &cutter{}
					s := txnSink(c, topic, prefix, append(opts, kafka.ClientOptions(kgo.Dialer(cut.dial), kgo.RequestRetries(0)))...)
					r := connectortest.MustStartSink(t, s, 1, nil, connectortest.SinkOptions{})
					var want []string
					for i := range 6 {
						v := fmt.Sprintf("v%d", i)
						r.Write(0, v)
						want = append(want, v)
						cp := r.Checkpoint()
						r.Write(0, v+"+")
						want = append(want, v+"+")
						if i%2 == 1 {
							cut.arm(mode, n)
						}
						r.Complete(cp)
						if i%2 == 1 && cut.hits() == 0 {
							t.Fatal("nothing was cut")
						}
						cut.arm("", 0)
					}
					r.Complete(r.Checkpoint())
					wantCommitted(t, c, topic, want...)
					wantNoneOpen(t, c, topic, prefix)
				})
			}
		}
	})
}

func TestAtLeastOnceIsAcknowledgedAtTheBarrier(t *testing.T) {
	kafkatest.Each(t, func(t *testing.T, c *kafkatest.Cluster) {
		for _, g := range []kafka.DeliveryGuarantee{kafka.GuaranteeNone, kafka.GuaranteeAtLeastOnce} {
			topic := c.Topic(t, 3)
			s := kafka.Sink[string](text{}, kafka.Brokers(c.Brokers...), kafka.Topic(topic), kafka.Guarantee(g, ""),
				kafka.KeyFunc(func(v string) []byte { return []byte("k" + v) }),
				kafka.HeaderFunc(func(v string) []kafka.Header { return []kafka.Header{{Key: "h", Value: []byte(v)}} }),
				kafka.PartitionFunc(func(v string, key []byte, n int) int { return len(key) % n }))
			if _, ok := s.(connector.CommittingSink[string]); ok {
				t.Fatal("a sink without transactions commits")
			}
			r := connectortest.MustStartSink(t, s, 1, nil, connectortest.SinkOptions{})
			want := seq("v", 0, 200)
			if err := r.Writer(0).Write(want[0], 1234); err != nil {
				t.Fatal(err)
			}
			r.Write(0, want[1:]...)
			if _, err := r.TryCheckpoint(g == kafka.GuaranteeNone); err != nil {
				t.Fatal(err)
			}
			recs := c.Read(t, topic, false)
			wantValues(t, values(recs), want)
			for _, rec := range recs {
				if string(rec.Key) != "k"+string(rec.Value) || int(rec.Partition) != len(rec.Key)%3 || string(rec.Headers[0].Value) != string(rec.Value) {
					t.Fatalf("record %+v", rec)
				}
				if string(rec.Value) == want[0] && rec.Timestamp.UnixMilli() != 1234 {
					t.Fatalf("timestamp %v", rec.Timestamp)
				}
			}
			size := 0
			for _, rec := range recs {
				size += len(rec.Key) + len(rec.Value)
			}
			if n := r.Metrics[0].Value("numBytesSend"); n != float64(size) {
				t.Fatalf("numBytesSend %v, want %d", n, size)
			}
			if r.Metrics[0].Has("numRecordsSend") {
				t.Fatal("the operator counts numRecordsSend already: two series of one name break a scrape")
			}
			r.Close()
		}
	})
}

// A record that the topic never takes: the error names it and says what to do, and no restart is tried.
func TestRecordThatIsTooLarge(t *testing.T) {
	kafkatest.Each(t, func(t *testing.T, c *kafkatest.Cluster) {
		for _, g := range []kafka.DeliveryGuarantee{kafka.GuaranteeAtLeastOnce, kafka.GuaranteeExactlyOnce} {
			s := kafka.Sink[string](text{}, kafka.Brokers(c.Brokers...), kafka.Topic(c.Topic(t, 1)), kafka.Guarantee(g, kafkatest.Name("large")),
				kafka.KeyFunc(func(string) []byte { return []byte("order-17") }))
			r := connectortest.MustStartSink(t, s, 1, nil, connectortest.SinkOptions{})
			r.Write(0, strings.Repeat("x", 3<<20))
			_, err := r.TryCheckpoint(false)
			var final interface{ Fatal() bool }
			if !errors.As(err, &final) || !final.Fatal() {
				t.Errorf("%v is retried", err)
			}
			for _, want := range []string{"order-17", "max.message.bytes"} {
				if !strings.Contains(fmt.Sprint(err), want) {
					t.Errorf("%v lacks %q", err, want)
				}
			}
			r.Kill()
		}
	})
}

func TestPreflight(t *testing.T) {
	kafkatest.Each(t, func(t *testing.T, c *kafkatest.Cluster) {
		topic := c.Topic(t, 1)
		env := connector.PreflightContext{Parallelism: 1, CheckpointInterval: 30 * time.Second, CheckpointTimeout: 10 * time.Minute, Logger: connectortest.Logger(t)}
		off := env
		off.CheckpointInterval = 0
		const free = "127.0.0.1:1" // nobody listens there; a port that was free a moment ago may be another test's now
		for _, tc := range []struct {
			name string
			of   any
			env  connector.PreflightContext
			want []string // empty: no error
		}{
			{"good source", source(c, topic), env, nil},
			{"good sink", txnSink(c, topic, "x-"), env, nil},
			{"missing topic at the source", source(c, "nix-da"), env, []string{`topic "nix-da" does not exist`}},
			{"missing topic at the sink", txnSink(c, "nix-da", "x-"), env, []string{`topic "nix-da" does not exist`}},
			{"missing dead-letter topic", source(c, topic, kafka.OnDecodeError(kafka.DeadLetter("nix"))), env, []string{`topic "nix" does not exist`}},
			{"time-out above the maximum", txnSink(c, topic, "x-", kafka.TransactionTimeout(time.Hour)), env, []string{"transaction.timeout.ms=3600000", "transaction.max.timeout.ms=900000", "kafka.TransactionTimeout"}},
			{"time-out below the checkpoints", txnSink(c, topic, "x-", kafka.TransactionTimeout(time.Minute)), env, []string{"kafka.TransactionTimeout is 1m0s", "execution.checkpointing.interval (30s)", "execution.checkpointing.timeout (10m0s)"}},
			{"no checkpoints", txnSink(c, topic, "x-"), off, []string{"execution.checkpointing.interval"}},
			{"unreachable", kafka.Source[string](text{}, kafka.Brokers(free), kafka.Topics(topic), kafka.ConnectTimeout(time.Second)), env, []string{"connect to brokers " + free}},
		} {
			err := tc.of.(connector.Preflight).Preflight(context.Background(), tc.env)
			if len(tc.want) == 0 && err != nil {
				t.Errorf("%s: %v", tc.name, err)
			}
			for _, w := range tc.want {
				if err == nil || !strings.Contains(err.Error(), w) {
					t.Errorf("%s: got %v, want %q", tc.name, err, w)
				}
			}
			if err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: more than one line: %v", tc.name, err)
			}
		}
		// The enumerator reports a missing topic as well.
		run := connectortest.StartSource(t, source(c, "nix-da"), 1, nil)
		if err := run.UntilFailed(); !strings.Contains(err.Error(), `topic "nix-da" does not exist`) {
			t.Error(err)
		}
	})
}

func TestOptionFaultsAreReportedAllAtOnce(t *testing.T) {
	err := kafka.Source[string](nil, kafka.Topics("a", "a"), kafka.StartCommitted(kafka.NoReset), kafka.OnDecodeError(kafka.DeadLetter(""))).(connector.Validator).Validate()
	for _, w := range []string{"no brokers", "no format", `"a" twice`, "kafka.GroupID", "DeadLetter has an empty topic"} {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("source: %v lacks %q", err, w)
		}
	}
	err = kafka.Sink[string](text{}, kafka.ExactlyOnce(""), kafka.TransactionTimeout(0), kafka.Linger(-1), kafka.KeyFunc(func(int) []byte { return nil })).(connector.Validator).Validate()
	for _, w := range []string{"no brokers", "no topic", "needs a transactional id prefix", "TransactionTimeout is 0s", "Linger is -1ns", "KeyFunc is a func(int) []uint8"} {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("sink: %v lacks %q", err, w)
		}
	}
}

// EndTxn version 5 must be what is spoken where the cluster has KIP-890.
func TestTransactionVersion2IsUsed(t *testing.T) {
	c := kafkatest.NewFake(t)
	topic := c.Topic(t, 1)
	var mu sync.Mutex
	versions := map[int16]int{}
	kafkatest.Observe(c.Fake, 26, func(v int16) {
		mu.Lock()
		defer mu.Unlock()
		versions[v]++
	})
	r := connectortest.MustStartSink(t, txnSink(c, topic, "x-"), 1, nil, connectortest.SinkOptions{})
	r.Write(0, "a")
	r.Complete(r.Checkpoint())
	mu.Lock()
	defer mu.Unlock()
	if versions[5] == 0 || len(versions) != 1 {
		t.Fatalf("EndTxn versions %v", versions)
	}
}
