package stream_test

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/thalweg/thalweg/stream"
)

// In BATCH a cached stream is computed once, and each of its readers gets it from disk.
func ExampleDataStream_Cache() {
	var computed atomic.Int64
	build := func(env *stream.Environment) error {
		squares := env.FromSequence(1, 4).
			Map(func(n int64) int64 { computed.Add(1); return n * n }).
			Cache()
		squares.Filter(func(n int64) bool { return n%2 == 0 }).Map(func(n int64) string { return fmt.Sprint("even ", n) }).Print()
		squares.Filter(func(n int64) bool { return n%2 == 1 }).Map(func(n int64) string { return fmt.Sprint("odd ", n) }).Print()
		return nil
	}
	err := stream.RunLocal(context.Background(), "squares", build, stream.LocalOptions{Config: map[string]string{"execution.runtime-mode": "batch"}})
	if err != nil {
		fmt.Println(err)
	}
	fmt.Println(computed.Load(), "computed")
	// Unordered output:
	// even 4
	// even 16
	// odd 1
	// odd 9
	// 4 computed
}
