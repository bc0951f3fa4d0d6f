package stream_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/thalweg/thalweg/stream"
)

type word struct {
	Text  string
	Count int
}

// A whole program, run in this process. A program's main calls Main with the same build function; then it also runs on a cluster.
func Example() {
	build := func(env *stream.Environment) error {
		env.FromCollection("to be", "or not to be").
			FlatMap(func(line string, out *stream.Collector[word]) error {
				for text := range strings.FieldsSeq(line) {
					out.Collect(word{text, 1})
				}
				return nil
			}).
			KeyBy(func(w word) string { return w.Text }).
			Reduce(func(acc, w word) word { return word{acc.Text, acc.Count + w.Count} }).UID("counts").
			Print()
		return nil
	}
	if err := stream.RunLocal(context.Background(), "words", build, stream.LocalOptions{}); err != nil {
		fmt.Println(err)
	}
	// Output:
	// {to 1}
	// {be 1}
	// {or 1}
	// {not 1}
	// {to 2}
	// {be 2}
}
