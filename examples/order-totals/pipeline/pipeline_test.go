package pipeline_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/thalweg/thalweg/connector/kafka/kafkatest"
	"github.com/thalweg/thalweg/examples/order-totals/pipeline"
	"github.com/thalweg/thalweg/stream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// run runs the job to the end of its input.
func run(t *testing.T, k *kafkatest.Cluster, in, out string, args ...string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	err := stream.RunLocal(ctx, "order-totals", pipeline.Build, stream.LocalOptions{
		Config: map[string]string{"parallelism.default": "2", "execution.checkpointing.interval": "200 ms", "execution.checkpointing.dir": "file://" + t.TempDir(), "restart-strategy.type": "none"},
		Args:   append([]string{"--brokers", strings.Join(k.Brokers, ","), "--in", in, "--out", out, "--txn-prefix", kafkatest.Name("t") + "-", "--bounded"}, args...),
		Logger: zerolog.Nop(),
	})
	if ctx.Err() != nil {
		t.Fatal("the job did not end")
	}
	return err
}

const good = `{"customer_id":"c","amount_in_cents":5,"occurred_at":"2026-01-01T00:00:01Z"}`

// timeless are purchases whose time has no window that JSON could hold.
var timeless = []string{
	`{"customer_id":"c","amount_in_cents":1}`,
	`{"customer_id":"c","amount_in_cents":1,"occurred_at":"9999-12-31T23:59:59.999Z"}`,
	`{"customer_id":"c","amount_in_cents":1,"occurred_at":"9999-12-31T23:59:00-14:00"}`,
	`{"customer_id":"c","amount_in_cents":1,"occurred_at":"0000-01-01T00:00:00Z"}`,
	`{"customer_id":"c","amount_in_cents":1,"occurred_at":"0000-01-01T00:00:00+14:00"}`,
	`{"customer_id":"c","amount_in_cents":1,"occurred_at":"10000-01-01T00:00:00Z"}`,
}

// Purchases whose time cannot be written in a result go to the dead letters, all others are counted.
func TestTimesWithoutWindowGoToTheDeadLetters(t *testing.T) {
	k := kafkatest.NewFake(t)
	in, out, dead := k.Topic(t, 1), k.Topic(t, 1), k.Topic(t, 1)
	for _, v := range timeless {
		k.Produce(t, in, 0, v)
	}
	k.Produce(t, in, 0, good, good)
	if err := run(t, k, in, out, "--dead-letter", dead); err != nil {
		t.Fatal(err)
	}
	letters := k.Read(t, dead, true)
	if len(letters) != len(timeless) {
		t.Fatalf("%d dead letters, want %d", len(letters), len(timeless))
	}
	for i, r := range letters {
		if string(r.Value) != timeless[i] {
			t.Errorf("dead letter %d is %s, want %s", i, r.Value, timeless[i])
		}
	}
	results := k.Read(t, out, true)
	if len(results) != 1 {
		t.Fatalf("%d results, want 1", len(results))
	}
	var total pipeline.Total
	if err := json.Unmarshal(results[0].Value, &total); err != nil || total.Cents != 10 || total.Count != 2 {
		t.Fatalf("%s: %v", results[0].Value, err)
	}
}

// Without a topic for dead letters, such a purchase fails the job and is named by its place.
func TestTimeWithoutWindowFailsTheJob(t *testing.T) {
	for _, v := range timeless {
		k := kafkatest.NewFake(t)
		in, out := k.Topic(t, 1), k.Topic(t, 1)
		k.Produce(t, in, 0, good, v)
		err := run(t, k, in, out)
		if err == nil || errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "topic "+in+" partition 0 offset 1") {
			t.Errorf("%s: got %v", v, err)
		}
	}
}

// The first and last times that have a window are counted.
func TestFirstAndLastTimesThatHaveAWindow(t *testing.T) {
	for _, at := range []string{"0000-01-01T00:01:00Z", "9999-12-31T23:58:59.999Z"} {
		k := kafkatest.NewFake(t)
		in, out := k.Topic(t, 1), k.Topic(t, 1)
		k.Produce(t, in, 0, `{"customer_id":"c","amount_in_cents":7,"occurred_at":"`+at+`"}`)
		if err := run(t, k, in, out); err != nil {
			t.Fatal(err)
		}
		results := k.Read(t, out, true)
		if len(results) != 1 || !strings.Contains(string(results[0].Value), `"amount_in_cents":7`) {
			t.Errorf("%s: results %v", at, results)
		}
	}
}
