package kafka_test

import (
	"fmt"
	"time"

	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/connector/kafka"
	"github.com/thalweg/thalweg/serde"
)

type Purchase struct {
	Customer string    `json:"customer_id"`
	Cents    int64     `json:"amount_in_cents"`
	At       time.Time `json:"occurred_at"`
}

type Total struct {
	Customer string `json:"customer_id"`
	Cents    int64  `json:"amount_in_cents"`
}

// The types of source and sink are inferred from the formats.
func Example() {
	orders := kafka.Source(serde.JSON[Purchase](), kafka.Brokers("kafka:9092"), kafka.Topics("orders"),
		kafka.GroupID("order-totals"), kafka.StartCommitted(kafka.Earliest))
	totals := kafka.Sink(serde.JSON[Total](), kafka.Brokers("kafka:9092"), kafka.Topic("order-totals"),
		kafka.ExactlyOnce("order-totals-"), kafka.KeyFunc(func(t Total) []byte { return []byte(t.Customer) }))
	_, commits := totals.(connector.CommittingSink[Total])
	fmt.Println(orders.Boundedness() == connector.Unbounded, commits)
	fmt.Println(orders.(connector.Validator).Validate(), totals.(connector.Validator).Validate())
	// Output:
	// true true
	// <nil> <nil>
}
