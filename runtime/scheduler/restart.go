package scheduler

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/runtime/graph"
)

// Strategy decides about restarts. It is a value of the core: its only clock is what it is given.
type Strategy struct {
	kind string // "none", "fixed-delay", "failure-rate", "exponential-delay"

	attempts                   int // -1: no limit; with failure-rate: in the interval
	delay, interval            time.Duration
	initial, longest, forgiven time.Duration
	multiplier, jitter         float64

	used     int           // failures counted
	next     time.Duration // exponential: pause of the next restart
	paused   time.Duration // exponential: pause of the last restart
	recent   []time.Time   // failure-rate: the counted failures of the interval; never changed, only replaced
	last     time.Time     // of the last counted failure
	progress bool          // since the last restart: a completed checkpoint, a stage finished for the first time, or a minute of all tasks running

	before counts // the last failure
}

type counts struct {
	used   int
	next   time.Duration
	recent []time.Time
}

// forgive takes the last failure back.
func (s *Strategy) forgive() {
	s.used, s.next, s.recent = s.before.used, s.before.next, s.before.recent
}

// batchAttempts is how many failures in a row fail a job in BATCH for which nothing is set: a stage that always fails must come to an end.
const batchAttempts = 10

// StrategyOf reads the restart strategy. As in Flink the default is none for a job without checkpoints; in BATCH, where a restart costs the
// stage that failed alone, it is exponential-delay with batchAttempts.
func StrategyOf(c config.Configuration, mode graph.Mode) Strategy {
	kind, attempts := config.RestartStrategy.Value(c), config.ExponentialAttempts.Value(c)
	switch set := config.RestartStrategy.IsSet(c); {
	case mode == graph.Batch && !config.ExponentialAttempts.IsSet(c):
		attempts = batchAttempts
	case !set && mode != graph.Batch && config.CheckpointInterval.Value(c) <= 0:
		kind = "none"
	}
	switch strings.ReplaceAll(kind, "-", "") {
	case "exponentialdelay":
		return Strategy{kind: "exponential-delay", attempts: attempts, initial: config.ExponentialInitial.Value(c),
			next: config.ExponentialInitial.Value(c), longest: config.ExponentialMax.Value(c), forgiven: config.ExponentialReset.Value(c),
			multiplier: config.ExponentialMultiplier.Value(c), jitter: config.ExponentialJitter.Value(c)}
	case "fixeddelay":
		return Strategy{kind: "fixed-delay", attempts: config.FixedDelayAttempts.Value(c), delay: config.FixedDelay.Value(c)}
	case "failurerate":
		return Strategy{kind: "failure-rate", attempts: config.FailureRateMax.Value(c), interval: config.FailureRateInterval.Value(c), delay: config.FailureRateDelay.Value(c)}
	default:
		return Strategy{kind: "none"}
	}
}

func (s *Strategy) String() string {
	switch s.kind {
	case "exponential-delay":
		return fmt.Sprintf("exponential-delay (from %s to %s, factor %g)", s.initial, s.longest, s.multiplier)
	case "fixed-delay":
		return fmt.Sprintf("fixed-delay (%d attempts, %s)", s.attempts, s.delay)
	case "failure-rate":
		return fmt.Sprintf("failure-rate (%d restarts in %s, %s)", s.attempts, s.interval, s.delay)
	default:
		return "none"
	}
}

// Unhealable is why there is no restart after a fatal failure.
const Unhealable = "the failure is not one that a restart can heal"

// onFailure returns the pause before the restart, or ok false with the reason why there is none.
//
// Rules: a fatal failure is never retried; a free one always, at once, and is not counted. With exponential-delay a process that died is
// replaced without a pause when it is the first failure, or when the job made progress since the last restart; such a failure does not make later pauses longer.
func (s *Strategy) onFailure(at time.Time, f *Failure) (pause time.Duration, jitter float64, ok bool, why string) {
	s.before = counts{s.used, s.next, s.recent}
	if f.Fatal {
		return 0, 0, false, Unhealable
	}
	if s.kind == "none" {
		return 0, 0, false, "no restart strategy is set (restart-strategy.type)"
	}
	if f.Free {
		return 0, 0, true, ""
	}
	switch s.kind {
	case "fixed-delay":
		if s.used++; s.used > s.attempts {
			return 0, 0, false, fmt.Sprintf("%d restarts are used up (restart-strategy.fixed-delay.attempts)", s.attempts)
		}
		return s.delay, 0, true, ""
	case "failure-rate":
		if s.recent = append(s.since(at.Add(-s.interval)), at); len(s.recent) > s.attempts {
			return 0, 0, false, fmt.Sprintf("%d failures within %s, %d are allowed (restart-strategy.failure-rate.max-failures-per-interval)", len(s.recent), s.interval, s.attempts)
		}
		return s.delay, 0, true, ""
	}
	if s.used > 0 && at.Sub(s.last) >= s.forgiven+s.paused {
		s.used, s.next = 0, s.initial
	}
	first := s.used == 0 || s.progress
	s.progress = false
	s.last, s.paused = at, 0
	if f.Death && first {
		s.used = max(s.used, 1)
		return 0, 0, true, ""
	}
	if s.used++; s.attempts >= 0 && s.used > s.attempts {
		return 0, 0, false, fmt.Sprintf("%d failures without a pause of %s between them (restart-strategy.exponential-delay.attempts-before-reset-backoff)", s.used, s.forgiven)
	}
	pause = s.next
	s.paused = pause
	s.next = time.Duration(math.Min(float64(s.next)*s.multiplier, float64(s.longest)))
	return pause, s.jitter, true, ""
}

// since are the counted failures from a time on, in a slice of its own.
func (s *Strategy) since(from time.Time) (out []time.Time) {
	for _, t := range s.recent {
		if !t.Before(from) {
			out = append(out, t)
		}
	}
	return out
}

// restart is the effect for a pause: jitter never leaves the bounds of the pauses.
func (s *Strategy) restart(attempt int, pause time.Duration, jitter float64) ScheduleRestart {
	e := ScheduleRestart{Attempt: attempt, After: pause, Jitter: jitter, Least: pause, Most: pause}
	if jitter > 0 {
		e.Least, e.Most = min(s.initial, pause), max(s.longest, pause)
	}
	return e
}

// Pause is how long to wait, with a number drawn from [0, 1).
// Source: Flink 2.x ExponentialDelayRestartBackoffTimeStrategy.calculateActualBackoffTime.
func (e ScheduleRestart) Pause(random float64) time.Duration {
	d := e.After + time.Duration((random*2-1)*e.Jitter*float64(e.After))
	return max(e.Least, min(d, e.Most))
}
