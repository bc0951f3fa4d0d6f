package stream_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/thalweg/thalweg/connector/datagen"
	"github.com/thalweg/thalweg/stream"
)

// tally counts the records of its subtask, and knows the highest number of all subtasks. It fails once, after a checkpoint.
type tally struct {
	stream.Plain
	counts   stream.ListState[int64] // items are dealt out when the parallelism changes
	highs    stream.ListState[int64] // each subtask gets all items
	n, high  int64
	complete bool
	attempt  int
}

func (t *tally) Open(rt *stream.TaskContext) (err error) {
	t.attempt = rt.Attempt()
	if t.counts, err = rt.ListState[int64]("counts"); err != nil {
		return err
	}
	if t.highs, err = rt.UnionListState[int64]("highs"); err != nil {
		return err
	}
	counts, err := t.counts.Get() // what the checkpoint has; nothing in a new job
	for _, n := range counts {
		t.n += n
	}
	if err != nil {
		return err
	}
	highs, err := t.highs.Get()
	for _, n := range highs {
		t.high = max(t.high, n)
	}
	return err
}

func (t *tally) ProcessElement(_ *stream.ProcessContext, v int64, out *stream.Collector[string]) error {
	if t.complete && t.attempt == 0 {
		return errors.New("lost")
	}
	t.n, t.high = t.n+1, max(t.high, v)
	if v == 999 {
		out.Collect(fmt.Sprintf("%d records up to %d", t.n, t.high))
	}
	return nil
}

// SnapshotState runs at each checkpoint, before the states are stored.
func (t *tally) SnapshotState(int64) error {
	return errors.Join(t.counts.Update([]int64{t.n}), t.highs.Update([]int64{t.high}))
}

// The methods of CheckpointListener: what became of a checkpoint.
func (t *tally) NotifyCheckpointComplete(int64) error { t.complete = true; return nil }
func (*tally) NotifyCheckpointAborted(int64) error    { return nil }

// State of a subtask, which has no key: a function that is also a CheckpointedFunction fills it at each checkpoint.
func ExampleCheckpointedFunction() {
	build := func(env *stream.Environment) error {
		env.EnableCheckpointing(10*time.Millisecond, stream.ExactlyOnce)
		numbers := datagen.Source(func(n int64) int64 { return n }, datagen.Count(1000), datagen.RatePerSecond(5000))
		env.FromSource(numbers, stream.NoWatermarks[int64](), "numbers").UID("numbers").
			Process(func() stream.ProcessFunction[int64, string] { return &tally{} }).UID("tally").
			Print()
		return nil
	}
	err := stream.RunLocal(context.Background(), "tally", build, stream.LocalOptions{Config: map[string]string{
		"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "1 ms",
	}})
	if err != nil {
		fmt.Println(err)
	}
	// Output: 1000 records up to 999
}
