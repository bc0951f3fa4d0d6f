package ratelimit_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/connector/connectortest"
	"github.com/thalweg/thalweg/connector/datagen"
	"github.com/thalweg/thalweg/connector/ratelimit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func number(n int64) string { return fmt.Sprintf("%06d", n) }

func TestConformance(t *testing.T) {
	var want []string
	for n := range int64(300) {
		want = append(want, number(n))
	}
	connectortest.TestSource(t, connectortest.SourceSuite[string]{
		New: func() connector.Source[string] {
			return ratelimit.Source(datagen.Source(number, datagen.Count(300), datagen.Splits(3)), 20_000)
		},
		Key: func(s string) string { return s }, Want: want, Ordered: func(a, b string) bool { return a < b },
	})
}

// TestRateOfAllSubtasks: the source takes no less time than the rate allows, whatever its parallelism.
func TestRateOfAllSubtasks(t *testing.T) {
	for _, par := range []int{1, 3} {
		r := connectortest.StartSource(t, ratelimit.Source(datagen.Source(number, datagen.Count(600), datagen.Splits(6)), 2000), par, nil)
		began := time.Now()
		r.Until("the end", r.Ended)
		r.Close()
		if took := time.Since(began); took < 150*time.Millisecond || len(r.Records) != 600 {
			t.Errorf("parallelism %d: %d records at 2000 per second took %v", par, len(r.Records), took)
		}
	}
}

func TestBadRates(t *testing.T) {
	for _, rate := range []float64{0, -1, math.NaN()} {
		err := ratelimit.Source(datagen.Source(number, datagen.Count(-5)), rate).(connector.Validator).Validate()
		if err == nil || !strings.Contains(err.Error(), "records per second") || !strings.Contains(err.Error(), "Count") {
			t.Errorf("rate %v: %v", rate, err)
		}
	}
	if err := ratelimit.Source[int](nil, 1).(connector.Validator).Validate(); err == nil {
		t.Error("no source")
	}
}

// A rate above all that a source can reach does not slow it down, and one that is infinite is none; a very small one waits.
func TestLargeRates(t *testing.T) {
	for _, rate := range []float64{1e18, 1e20, 1e300, math.MaxFloat64, math.Inf(1)} {
		r := connectortest.StartSource(t, ratelimit.Source(datagen.Source(number, datagen.Count(2000), datagen.Splits(2)), rate), 1, nil)
		r.Until("the end", r.Ended)
		r.Close()
		if len(r.Records) != 2000 {
			t.Errorf("rate %v: %d records", rate, len(r.Records))
		}
	}
}
