package integration

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/thalweg/thalweg/connector/kafka/kafkatest"
	"github.com/thalweg/thalweg/test/eos"
)

// spec is an input of n purchases, windows of a second of event time.
func spec(n int64) eos.Spec {
	s := eos.DefaultSpec(7, n)
	s.Partitions, s.Customers, s.Window, s.Step, s.OutOfOrder = 3, 20, time.Second, 10*time.Millisecond, 500*time.Millisecond
	return s
}

// wholeInput is a new topic with all of the spec's purchases, and the records that close the windows.
func wholeInput(t *testing.T, k *kafkatest.Cluster, s eos.Spec) string {
	t.Helper()
	in := k.Topic(t, s.Partitions)
	e := eos.Cluster{Brokers: k.Brokers}
	if err := e.Write(t.Context(), in, s, 0, s.Records, 0); err != nil {
		t.Fatal(err)
	}
	if err := e.WriteSentinels(t.Context(), in, s); err != nil {
		t.Fatal(err)
	}
	return in
}

// total is a result without the time's spelling.
type total struct {
	customer string
	start    int64 // ms
	cents    int64
}

func (x total) String() string {
	return fmt.Sprintf("%s at %s: %d cents", x.customer, time.UnixMilli(x.start).UTC().Format(time.RFC3339), x.cents)
}

// expected recomputes the results of records 0 to n without the product.
func expected(s eos.Spec, n int64) []string {
	sums := map[total]int64{}
	for i := range n {
		if s.Malformed(i) {
			continue
		}
		p := s.Purchase(i)
		ms := p.At.UnixMilli()
		sums[total{customer: p.Customer, start: ms - ms%s.Window.Milliseconds()}] += p.Cents
	}
	var out []string
	for k, cents := range sums {
		k.cents = cents
		out = append(out, k.String())
	}
	slices.Sort(out)
	return out
}

// results are output values as comparable texts, sorted; those of the records that close the windows are left out.
func results(t *testing.T, values []string) (out []string) {
	t.Helper()
	for _, v := range values {
		var x eos.Total
		if err := json.Unmarshal([]byte(v), &x); err != nil {
			t.Fatalf("output value %q: %v", v, err)
		}
		if !strings.HasPrefix(x.Customer, "~end-") {
			out = append(out, total{x.Customer, x.Start.UnixMilli(), x.Cents}.String())
		}
	}
	slices.Sort(out)
	return out
}

// committed is what a read_committed reader finds in a topic now.
func committed(t *testing.T, k *kafkatest.Cluster, topic string) []string {
	t.Helper()
	var values []string
	for _, r := range k.Read(t, topic, true) {
		values = append(values, string(r.Value))
	}
	return results(t, values)
}

// allCommitted is committed once nothing is undecided any more: a commit is decided before its markers are in the topic, which a busy broker
// is slow to write.
func allCommitted(t *testing.T, k *kafkatest.Cluster, topic string) []string {
	t.Helper()
	until(t, patience, "the last commits to be visible", func() (bool, error) {
		lag, err := k.StableLag(t.Context(), topic)
		return lag == 0 && err == nil, err
	})
	return committed(t, k, topic)
}

// same fails with the first differences of two sorted lists.
func same(t *testing.T, what string, got, want []string) {
	t.Helper()
	if slices.Equal(got, want) {
		return
	}
	count := map[string]int{}
	for _, w := range want {
		count[w]++
	}
	for _, g := range got {
		count[g]--
	}
	var diffs []string
	for k, n := range count {
		switch {
		case n > 0:
			diffs = append(diffs, fmt.Sprintf("%d missing: %s", n, k))
		case n < 0:
			diffs = append(diffs, fmt.Sprintf("%d too many: %s", -n, k))
		}
	}
	slices.Sort(diffs)
	t.Errorf("%s: %d results, want %d; %d differences:\n%s", what, len(got), len(want), len(diffs), strings.Join(diffs[:min(10, len(diffs))], "\n"))
}

// noOpenTransactions checks that no transaction of the prefix holds readers back.
func noOpenTransactions(t *testing.T, k *kafkatest.Cluster, txnPrefix string) {
	t.Helper()
	open, err := k.OpenTransactions(t.Context(), txnPrefix)
	if err != nil || len(open) > 0 {
		t.Errorf("open transactions of %s: %v %v", txnPrefix, open, err)
	}
}
