package stream

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
)

// A task whose code does not return is not left behind for another attempt to run beside it: the job fails and says where the code is.
func TestStuckTaskEndsALocalJob(t *testing.T) {
	release, stuck := make(chan struct{}), make(chan struct{})
	defer close(release)
	var starts atomic.Int32
	err := runJob(t, map[string]string{"task.cancellation.timeout": "100 ms", "parallelism.default": "2", "restart-strategy.type": "fixed-delay",
		"restart-strategy.fixed-delay.attempts": "3", "restart-strategy.fixed-delay.delay": "1 ms"}, func(env *Environment) error {
		env.FromSequence(0, 9).SetParallelism(1).Rebalance().TryMap(func(i int64) (int64, error) {
			switch i {
			case 3:
				if starts.Add(1) == 1 {
					close(stuck)
					<-release
				}
			case 4:
				<-stuck
				return 0, errors.New("wrong")
			}
			return i, nil
		}).SinkTo(&collect[int64]{})
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), "does not return, at stuck_test.go:") || !strings.Contains(err.Error(), "Before: ") || !strings.Contains(err.Error(), "wrong") {
		t.Errorf("got %v", err)
	}
	if n := starts.Load(); n != 1 {
		t.Errorf("the job was started %d times", n)
	}
}
