package blackhole_test

import (
	"sync/atomic"
	"testing"

	"github.com/thalweg/thalweg/connector/blackhole"
	"github.com/thalweg/thalweg/connector/connectortest"
)

func TestCounts(t *testing.T) {
	var n atomic.Int64
	r := connectortest.MustStartSink(t, blackhole.Sink[int](&n), 2, nil, connectortest.SinkOptions{})
	for i := range 3000 {
		r.Write(i%2, i)
	}
	r.Checkpoint()
	if n.Load() != 3000 {
		t.Fatalf("counted %d", n.Load())
	}
}
