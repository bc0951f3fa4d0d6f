package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/thalweg/thalweg/connector/datagen"
)

// TestAsyncWait: every record is answered once, in order when asked for, also when the job restarts with records in flight.
func TestAsyncWait(t *testing.T) {
	for _, ordered := range []bool{true, false} {
		t.Run(fmt.Sprint("ordered ", ordered), func(t *testing.T) {
			var calls, failed atomic.Int64
			out := &collect[int64]{}
			ask := Async(func(ctx context.Context, v int64) ([]int64, error) {
				if calls.Add(1) == 150 && failed.Add(1) == 1 {
					return nil, errors.New("the service is away")
				}
				select {
				case <-time.After(time.Duration(v%5) * time.Millisecond):
				case <-ctx.Done():
				}
				return []int64{v * 10}, nil
			})
			conf := map[string]string{"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "10 ms", "execution.checkpointing.interval": "20 ms",
				"execution.checkpointing.dir": "file://" + t.TempDir(), "parallelism.default": "1"}
			err := runJob(t, conf, func(env *Environment) error {
				s := env.FromSource(datagen.Source(func(n int64) int64 { return n }, datagen.Count(300), datagen.RatePerSecond(2000)), NoWatermarks[int64](), "n").UID("n")
				opts := AsyncOptions[int64]{Timeout: time.Minute, Capacity: 20}
				if ordered {
					s.OrderedWait(ask, opts).UID("ask").SinkTo(out)
				} else {
					s.UnorderedWait(ask, opts).UID("ask").SinkTo(out)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if failed.Load() != 1 {
				t.Fatal("the function did not fail: the test shows nothing")
			}
			var last int64 = -1
			seen := map[int64]bool{}
			restarts := 0
			for _, v := range out.got {
				seen[v] = true
				if v < last {
					restarts++ // after a restart the results go back to the checkpoint's: the sink of this test does not commit
				}
				last = v
			}
			if len(seen) != 300 {
				t.Fatalf("%d records were answered, want 300", len(seen))
			}
			if ordered && restarts > 1 {
				t.Fatalf("results went back %d times, want once at most: %v", restarts, out.got)
			}
		})
	}
}

// TestAFunctionThatNeverAnswers: its time-out ends the job, though the function does not return when its context ends.
func TestAFunctionThatNeverAnswers(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	for _, restart := range []string{"none", "fixed-delay"} {
		err := runJob(t, map[string]string{
			"restart-strategy.type": restart, "restart-strategy.fixed-delay.attempts": "1", "restart-strategy.fixed-delay.delay": "1 ms", "task.cancellation.timeout": "100 ms",
		}, func(env *Environment) error {
			env.FromCollection(1, 2, 3).OrderedWait(Async(func(_ context.Context, v int) ([]int, error) {
				if v == 2 {
					<-release
				}
				return []int{v}, nil
			}), AsyncOptions[int]{Timeout: 50 * time.Millisecond}).Name("ask").SinkTo(&collect[int]{})
			return nil
		})
		if err == nil || !strings.Contains(err.Error(), "did not answer in time") || !strings.Contains(err.Error(), "ask") {
			t.Errorf("restart %s: %v", restart, err)
		}
	}
}

func TestAsyncWaitMistakes(t *testing.T) {
	ask := Async(func(context.Context, int64) ([]int64, error) { return nil, nil })
	err := runJob(t, nil, func(env *Environment) error {
		s := env.FromCollection[int64](1)
		s.OrderedWait(ask, AsyncOptions[int64]{}).SinkTo(&collect[int64]{})
		s.UnorderedWait(ask, AsyncOptions[int64]{Timeout: time.Second, Capacity: -1}).SinkTo(&collect[int64]{})
		s.UnorderedWait(ask, AsyncOptions[int64]{Timeout: time.Second, Retry: AsyncRetry[int64]{MaxAttempts: 3}}).SinkTo(&collect[int64]{})
		return nil
	})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"OrderedWait: Timeout is 0s", "Capacity is -1", "Retry needs MaxAttempts (3)"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v\ndoes not say %q", err, want)
		}
	}
	if strings.Count(err.Error(), "async_test.go:") != 3 {
		t.Errorf("%v\ndoes not say where", err)
	}
}

func TestRetryDelays(t *testing.T) {
	r := RetryExponential[int](5, 100*time.Millisecond, time.Second, 3)
	var got []time.Duration
	for n := 1; n <= 4; n++ {
		got = append(got, r.Delay(n))
	}
	if want := []time.Duration{100 * time.Millisecond, 300 * time.Millisecond, 900 * time.Millisecond, time.Second}; !slices.Equal(got, want) {
		t.Errorf("delays %v, want %v", got, want)
	}
}
