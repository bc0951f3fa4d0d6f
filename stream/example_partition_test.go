package stream_test

import (
	"context"
	"fmt"

	"github.com/thalweg/thalweg/stream"
)

// where tells the subtask that a record came to.
type where struct {
	stream.Plain
	subtask int
}

func (w *where) Open(rt *stream.TaskContext) error {
	w.subtask = rt.Subtask()
	return nil
}

func (w *where) ProcessElement(_ *stream.ProcessContext, name string, out *stream.Collector[string]) error {
	out.Collect(fmt.Sprint(name, " is in subtask ", w.subtask))
	return nil
}

// The program decides which subtask gets a record.
func ExampleDataStream_PartitionCustom() {
	build := func(env *stream.Environment) error {
		env.FromCollection("ann", "bob", "zoe").
			PartitionCustom(func(initial byte, n int) int { return int(initial-'a') * n / 26 }, func(name string) byte { return name[0] }).
			Process(func() stream.ProcessFunction[string, string] { return &where{} }).UID("where").SetParallelism(2).
			Print().SetParallelism(1)
		return nil
	}
	if err := stream.RunLocal(context.Background(), "names", build, stream.LocalOptions{}); err != nil {
		fmt.Println(err)
	}
	// Unordered output:
	// ann is in subtask 0
	// bob is in subtask 0
	// zoe is in subtask 1
}
