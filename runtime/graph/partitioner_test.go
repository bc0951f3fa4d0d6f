package graph

import (
	"testing"

	"pgregory.net/rapid"
)

// TestEdgesConnectBothEndsAlike: a consumer is connected with exactly the producers that are connected with it, each subtask with at
// least one of the other end, and pointwise edges with no more than they need.
func TestEdgesConnectBothEndsAlike(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := rapid.SampledFrom([]Partitioner{Forward, Rebalance, Hash, Broadcast, Rescale, Shuffle, Global, Custom}).Draw(rt, "partitioner")
		producers, consumers := rapid.IntRange(1, 50).Draw(rt, "producers"), rapid.IntRange(1, 50).Draw(rt, "consumers")
		if p == Forward {
			consumers = producers
		}
		edges := 0
		connected := map[[2]int]bool{}
		for i := range producers {
			from, to := p.Consumers(producers, consumers, i)
			if from >= to || from < 0 || to > consumers {
				rt.Fatalf("producer %d of %d has consumers [%d,%d) of %d", i, producers, from, to, consumers)
			}
			for j := from; j < to; j++ {
				connected[[2]int{i, j}] = true
			}
		}
		for j := range consumers {
			from, to := p.Producers(producers, consumers, j)
			if from >= to {
				rt.Fatalf("consumer %d of %d has no producer of %d", j, consumers, producers)
			}
			for i := from; i < to; i++ {
				edges++
				if !connected[[2]int{i, j}] {
					rt.Fatalf("consumer %d has producer %d, which does not know it (%d to %d)", j, i, producers, consumers)
				}
			}
		}
		if edges != len(connected) {
			rt.Fatalf("%d edges seen from the consumers, %d from the producers", edges, len(connected))
		}
		if p.pointwise() && edges != max(producers, consumers) {
			rt.Fatalf("%d edges between %d and %d subtasks", edges, producers, consumers)
		}
	})
}
