package hybrid_test

import (
	"context"
	"fmt"
	"time"

	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/connector/datagen"
	"github.com/thalweg/thalweg/connector/file"
	"github.com/thalweg/thalweg/connector/hybrid"
	"github.com/thalweg/thalweg/connector/kafka"
	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/stream"
)

// Orders of the past from files, then what came into Kafka since the newest of them was written.
func Example() {
	type order struct{ ID string }
	chain := hybrid.Source(file.Source(serde.JSON[order](), file.Paths("hdfs:///orders"))).
		ThenFrom(connector.Unbounded,
			func(_ context.Context, prev connector.Enumerator) (time.Time, error) {
				return prev.(file.Enumerator).Newest(), nil
			},
			func(from time.Time) connector.Source[order] {
				return kafka.Source(serde.JSON[order](), kafka.Brokers("kafka:9092"), kafka.Topics("orders"), kafka.StartTimestamp(from))
			})
	fmt.Println(chain.Validate(), chain.Boundedness() == connector.Unbounded)
	// Output: <nil> true
}

// One source after the other, in a job.
func ExampleSource() {
	history := datagen.Source(func(n int64) string { return fmt.Sprint("history ", n) }, datagen.Count(2))
	live := datagen.Source(func(n int64) string { return fmt.Sprint("live ", n) }, datagen.Count(2)) // without Count it would go on
	build := func(env *stream.Environment) error {
		env.FromSource(hybrid.Source(history).Then(live), stream.NoWatermarks[string](), "both").UID("both").Print()
		return nil
	}
	if err := stream.RunLocal(context.Background(), "both", build, stream.LocalOptions{}); err != nil {
		fmt.Println(err)
	}
	// Output:
	// history 0
	// history 1
	// live 0
	// live 1
}
