// Command order-totals adds up purchases per customer and minute, from Kafka to Kafka, exactly once.
//
//	thalweg run -t yarn-application bin/examples/order-totals --brokers kafka:9092 --in orders --out order-totals
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/thalweg/thalweg/examples/order-totals/pipeline"
	"github.com/thalweg/thalweg/stream"
)

func main() {
	if _, err := pipeline.Parse(os.Args[1:], os.Stderr); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			os.Exit(0)
		}
		fmt.Fprintln(os.Stderr, "order-totals:", err)
		os.Exit(2)
	}
	stream.Main("order-totals", pipeline.Build)
}
