// Command orders is the example order-totals, with a CPU profile on demand (see package profile). The throughput cases run the example
// itself; this is for finding out where its time goes.
package main

import (
	"fmt"
	"os"

	"github.com/thalweg/thalweg/bench/internal/profile"
	"github.com/thalweg/thalweg/examples/order-totals/pipeline"
	"github.com/thalweg/thalweg/stream"
)

func main() {
	if err := profile.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "orders:", err)
		os.Exit(2)
	}
	stream.Main("order-totals", pipeline.Build)
}
