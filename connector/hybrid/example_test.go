package hybrid_test

import (
	"context"
	"fmt"
	"time"

	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/connector/file"
	"github.com/thalweg/thalweg/connector/hybrid"
	"github.com/thalweg/thalweg/connector/kafka"
	"github.com/thalweg/thalweg/serde"
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
