package kafkaproxy

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T) (*Proxy, *kgo.Client) {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	p, err := Start(c.ListenAddrs()[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	cl, err := kgo.NewClient(kgo.SeedBrokers(p.Addr()), kgo.TransactionalID("id"), kgo.DefaultProduceTopic("t"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return p, cl
}

// write writes a record in a transaction.
func write(ctx context.Context, cl *kgo.Client) error {
	if err := cl.BeginTransaction(); err != nil {
		return err
	}
	if err := cl.ProduceSync(ctx, kgo.StringRecord("x")).FirstErr(); err != nil {
		return err
	}
	return cl.EndTransaction(ctx, kgo.TryCommit)
}

func TestClientsStayBehindTheProxy(t *testing.T) {
	p, cl := start(t)
	if err := write(t.Context(), cl); err != nil {
		t.Fatal(err)
	}
	p.Cut()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := cl.Ping(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("while cut: %v, want no answer", err)
	}
	p.Heal()
	if err := write(t.Context(), cl); err != nil {
		t.Errorf("after the cut: %v", err)
	}
}

func TestHeldEndTxnIsDeliveredLate(t *testing.T) {
	p, cl := start(t)
	p.HoldEndTxn(200 * time.Millisecond)
	if err := write(t.Context(), cl); err != nil {
		t.Log("the client's view of a commit whose connection broke:", err)
	}
	late, err := p.AwaitLate(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if l := late[0]; l.ID != "id" || !l.Commit || l.Err != nil {
		t.Errorf("late: %+v", l)
	}
}

// Of several requests each has its own time, and those with none go through.
func TestEachEndTxnHasItsTime(t *testing.T) {
	p, cl := start(t)
	p.HoldEndTxn(0, 300*time.Millisecond)
	if err := write(t.Context(), cl); err != nil {
		t.Fatalf("the first is let through: %v", err)
	}
	if n := p.Delivered(); n != 0 {
		t.Fatalf("%d were held", n)
	}
	if err := write(t.Context(), cl); err != nil {
		t.Log("the second is held:", err)
	}
	if late, err := p.AwaitLate(t.Context(), 1); err != nil || late[0].Err != nil {
		t.Errorf("late: %+v, %v", late, err)
	}
}

func TestResetBreaksConnectionsOnly(t *testing.T) {
	p, cl := start(t)
	for range 3 {
		if err := write(t.Context(), cl); err != nil {
			t.Fatal(err)
		}
		p.Reset()
	}
}
