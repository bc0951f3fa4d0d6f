package datagen_test

import (
	"context"
	"fmt"

	"github.com/thalweg/thalweg/connector/datagen"
	"github.com/thalweg/thalweg/stream"
)

// A hundred records a second, three in all. Record n depends on n alone, so that a job that is restored makes the same ones again.
func ExampleSource() {
	readings := datagen.Source(func(n int64) string { return fmt.Sprintf("sensor %d: %d", n%2, n*n) }, datagen.Count(3), datagen.RatePerSecond(100))
	build := func(env *stream.Environment) error {
		env.FromSource(readings, stream.NoWatermarks[string](), "readings").UID("readings").Print()
		return nil
	}
	if err := stream.RunLocal(context.Background(), "readings", build, stream.LocalOptions{}); err != nil {
		fmt.Println(err)
	}
	// Output:
	// sensor 0: 0
	// sensor 1: 1
	// sensor 0: 4
}
