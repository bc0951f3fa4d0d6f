package stream_test

import (
	"context"
	"fmt"

	"github.com/thalweg/thalweg/stream"
)

// stock reads what comes in and what goes out; the streams have types of their own.
type stock struct{ stream.Plain }

func (stock) ProcessFirst(_ *stream.ProcessContext, delivered int, out *stream.Collector[string]) error {
	out.Collect(fmt.Sprint("in ", delivered))
	return nil
}

func (stock) ProcessSecond(_ *stream.ProcessContext, order string, out *stream.Collector[string]) error {
	out.Collect("out " + order)
	return nil
}

// One function reads two streams without keys. Between the streams there is no order.
func ExampleConnectedStreams_Process() {
	build := func(env *stream.Environment) error {
		env.FromCollection(5, 7).
			Connect(env.FromCollection("tea", "rice")).
			Process(func() stream.CoProcessFunction[int, string, string] { return stock{} }).UID("stock").
			Print()
		return nil
	}
	if err := stream.RunLocal(context.Background(), "stock", build, stream.LocalOptions{}); err != nil {
		fmt.Println(err)
	}
	// Unordered output:
	// in 5
	// in 7
	// out tea
	// out rice
}
