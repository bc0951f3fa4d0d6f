package scheduler

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/runtime/graph"
)

// With failure-rate a job fails exactly when more failures than allowed lie within one interval.
func TestFailureRateAgainstTheListOfFailures(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(1, 4).Draw(t, "most")
		s := StrategyOf(config.Configuration{config.RestartStrategy.Key: rapid.SampledFrom([]string{"failure-rate", "failurerate"}).Draw(t, "spelling"),
			config.FailureRateMax.Key: string(rune('0' + most)), config.FailureRateInterval.Key: "10 s", config.FailureRateDelay.Key: "3 s"}, graph.Streaming)
		var all []time.Time
		at := time.Unix(0, 0)
		for range 30 {
			at = at.Add(time.Duration(rapid.IntRange(0, 12).Draw(t, "seconds")) * time.Second)
			free := rapid.IntRange(0, 4).Draw(t, "free") == 0
			if !free {
				all = append(all, at)
			}
			n := 0
			for _, f := range all {
				if at.Sub(f) <= 10*time.Second {
					n++
				}
			}
			pause, _, ok, why := s.onFailure(at, &Failure{Free: free})
			switch {
			case free && (!ok || pause != 0):
				t.Fatalf("a free failure: %s, %t", pause, ok)
			case !free && ok != (n <= most):
				t.Fatalf("restart %t (%s) with %d failures, %d are allowed: %v", ok, why, n, most, all)
			case !free && ok && pause != 3*time.Second:
				t.Fatalf("pause %s", pause)
			case !ok:
				return
			}
			if rapid.IntRange(0, 4).Draw(t, "forgiven") == 0 && !free {
				s.forgive()
				all = all[:len(all)-1]
			}
		}
	})
}

// Whatever is drawn, a pause is between the first and the longest one. Source: Flink ExponentialDelayRestartBackoffTimeStrategy.
func TestJitterStaysWithinTheBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := StrategyOf(config.Configuration{config.RestartStrategy.Key: "exponential-delay", config.ExponentialInitial.Key: "1 s", config.ExponentialMax.Key: "5 s",
			config.ExponentialMultiplier.Key: "2", config.ExponentialJitter.Key: "0.5"}, graph.Streaming)
		at := time.Unix(0, 0)
		for i := range 6 {
			at = at.Add(time.Second)
			pause, jitter, _, _ := s.onFailure(at, &Failure{})
			want := min(time.Second<<i, 5*time.Second)
			d := s.restart(0, pause, jitter).Pause(rapid.Float64Range(0, 0.999).Draw(t, "random"))
			if pause != want || d < max(time.Second, want/2) || d > min(5*time.Second, want*3/2) {
				t.Fatalf("failure %d: pause %s, drawn %s", i, pause, d)
			}
		}
		if d := s.restart(0, 0, 0).Pause(0.5); d != 0 {
			t.Fatalf("without a pause: %s", d)
		}
	})
}
