package kafka

import "github.com/thalweg/thalweg/connector"

// SplitForTest is the state of an unbounded split.
func SplitForTest(topic string, partition int32, offset int64) connector.Split {
	s := split{topic: topic, partition: partition, offset: offset, stop: noOffset, epoch: -1}
	return s.encode()
}
