package stream_test

import (
	"context"
	"fmt"
	"strconv"

	"github.com/thalweg/thalweg/stream"
)

// rejected is what cannot be parsed.
var rejected = stream.NewOutputTag[string]("rejected")

type parse struct{ stream.Plain }

func (parse) ProcessElement(ctx *stream.ProcessContext, text string, out *stream.Collector[int]) error {
	n, err := strconv.Atoi(text)
	if err != nil {
		ctx.Output(rejected, text)
		return nil
	}
	out.Collect(n)
	return nil
}

// A function with a second output, of a type of its own.
func ExampleOutputTag() {
	build := func(env *stream.Environment) error {
		numbers := env.FromCollection("1", "two", "3").
			Process(func() stream.ProcessFunction[string, int] { return parse{} }).UID("parse")
		numbers.Map(func(n int) string { return fmt.Sprint("number ", n) }).Print()
		numbers.GetSideOutput(rejected).Map(func(s string) string { return "rejected " + s }).Print()
		return nil
	}
	if err := stream.RunLocal(context.Background(), "numbers", build, stream.LocalOptions{}); err != nil {
		fmt.Println(err)
	}
	// Unordered output:
	// number 1
	// rejected two
	// number 3
}
