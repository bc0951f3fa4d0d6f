package operator

import (
	"context"
	"math"
	"strings"
	"sync/atomic"
	"time"

	"github.com/thalweg/thalweg/state"
)

// What an operator's state takes is measured when a checkpoint is written, in the background: nothing on the path of a record is counted. The gauges of
// a state are there from its first checkpoint on; their names are those of Flink's for RocksDB, without what is RocksDB's own.

// stateMetric is the name of a metric of a state.
func stateMetric(name, metric string) string { return "state." + name + "." + metric }

// stateSize is what the last checkpoint has found out about a state. Gauges read it on another goroutine.
type stateSize struct {
	entries, bytes, largest atomic.Int64
	growth                  atomic.Uint64 // float64: bytes per second since the checkpoint before
}

// stateSizes are those of an operator, by name.
type stateSizes struct {
	by   map[string]*stateSize
	at   time.Time   // of the last checkpoint
	busy atomic.Bool // somebody is at it
}

// measured is a snapshot that publishes what writing it has found out.
type measured struct {
	state.Snapshot
	c  *Context
	at time.Time
}

func (c *Context) measured(s state.Snapshot) state.Snapshot {
	if c.Metrics == nil {
		return s
	}
	return &measured{s, c, time.UnixMilli(c.Now())}
}

// Write implements state.Snapshot.
func (m *measured) Write(ctx context.Context, sink state.Sink) (state.Handle, error) {
	h, err := m.Snapshot.Write(ctx, sink)
	if err == nil {
		m.c.publish(h.Stats, m.at)
	}
	return h, err
}

// publish takes what the checkpoint that began at a time has found out. Of checkpoints that are written at the same time, one is enough.
func (c *Context) publish(all []state.TableStats, at time.Time) {
	z := &c.sizes
	if !z.busy.CompareAndSwap(false, true) {
		return
	}
	defer z.busy.Store(false)
	if z.by == nil {
		z.by = map[string]*stateSize{}
	}
	seconds := at.Sub(z.at).Seconds()
	first := z.at.IsZero()
	z.at = at
	for _, s := range all {
		name := strings.TrimPrefix(s.Name, userPrefix)
		x := z.by[name]
		if x == nil {
			x = &stateSize{}
			x.entries.Store(-1)
			z.by[name] = x
			c.gauges(name, x)
		}
		if !first && seconds > 0 {
			x.growth.Store(math.Float64bits(float64(s.Bytes-x.bytes.Load()) / seconds))
		}
		if s.Entries >= 0 && x.entries.Swap(s.Entries) < 0 {
			c.Metrics.Gauge(stateMetric(name, "estimate-num-keys"), func() float64 { return float64(x.entries.Load()) })
		}
		x.bytes.Store(s.Bytes)
		largest := int64(0)
		for _, e := range s.Largest {
			largest = max(largest, e.Bytes)
		}
		x.largest.Store(largest)
	}
}

func (c *Context) gauges(name string, x *stateSize) {
	c.Metrics.Gauge(stateMetric(name, "estimate-live-data-size"), func() float64 { return float64(x.bytes.Load()) })
	c.Metrics.Gauge(stateMetric(name, "growth-bytes-per-second"), func() float64 { return math.Float64frombits(x.growth.Load()) })
	c.Metrics.Gauge(stateMetric(name, "largest-entry-size"), func() float64 { return float64(x.largest.Load()) })
}
