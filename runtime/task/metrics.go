package task

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/internal/guard"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/operator"
	"github.com/thalweg/thalweg/runtime/rpc/pb"
)

// metrics of one task. The task's goroutine stores plain counts once per batch; the worker reads them.
type metrics struct {
	started    time.Time
	recordsIn  atomic.Int64
	recordsOut atomic.Int64
	watermark  atomic.Int64
	idleNanos  atomic.Int64
	idleSince  atomic.Int64 // unix nanos, 0 when not idle

	mu       sync.Mutex
	counters []*counter
	gauges   []*gauge
}

type counter struct {
	op   graph.OperatorID
	opN  string
	name string
	n    atomic.Int64
}

func (c *counter) Add(n int64) { c.n.Add(n) }

type gauge struct {
	op   graph.OperatorID
	opN  string
	name string
	fn   func() float64
}

func newMetrics() *metrics {
	m := &metrics{started: time.Now()}
	m.watermark.Store(operator.MinWatermark)
	return m
}

func (m *metrics) idleBegin() time.Time {
	now := time.Now()
	m.idleSince.Store(now.UnixNano())
	return now
}

func (m *metrics) idleEnd(start time.Time) {
	m.idleSince.Store(0)
	m.idleNanos.Add(int64(time.Since(start)))
}

type operatorMetrics struct {
	m   *metrics
	op  graph.OperatorID
	opN string
}

func (m *metrics) operator(id graph.OperatorID, name string) connector.Metrics {
	return operatorMetrics{m, id, name}
}

func (o operatorMetrics) Counter(name string) connector.Counter {
	c := &counter{op: o.op, opN: o.opN, name: name}
	o.m.mu.Lock()
	o.m.counters = append(o.m.counters, c)
	o.m.mu.Unlock()
	return c
}

func (o operatorMetrics) Gauge(name string, fn func() float64) {
	o.m.mu.Lock()
	o.m.gauges = append(o.m.gauges, &gauge{o.op, o.opN, name, fn})
	o.m.mu.Unlock()
}

// Metrics reads the task's metrics; safe from any goroutine.
func (t *Task) Metrics() *pb.TaskMetrics {
	m := t.metrics
	idle := m.idleNanos.Load()
	if since := m.idleSince.Load(); since != 0 {
		idle += max(0, time.Now().UnixNano()-since)
	}
	out := &pb.TaskMetrics{ExecutionId: t.d.Execution.String(), RecordsIn: m.recordsIn.Load(), RecordsOut: m.recordsOut.Load(), WatermarkMs: m.watermark.Load()}
	var blocked int64
	if ready := t.composed.Load(); ready {
		for _, p := range t.parts {
			blocked += p.BackpressuredNanos()
			out.BytesOut += p.BytesOut()
		}
		out.BytesIn = t.input.bytesIn()
	}
	total := int64(time.Since(m.started))
	out.IdleMs, out.BackpressuredMs = idle/1e6, blocked/1e6
	out.BusyMs = max(0, (total-idle-blocked)/1e6)
	m.mu.Lock()
	counters := m.counters
	m.mu.Unlock()
	for _, c := range counters {
		out.Metrics = append(out.Metrics, &pb.Metric{OperatorId: c.op.String(), OperatorName: c.opN, Name: c.name, Value: float64(c.n.Load()), Counter: true})
	}
	out.Metrics = append(out.Metrics, t.gauges()...)
	return out
}

// gauges asks all gauges, on a goroutine that one of them may end. One that panics, or ends it, is told of and not asked again.
func (t *Task) gauges() (out []*pb.Metric) {
	m := t.metrics
	m.mu.Lock()
	gauges := slices.Clone(m.gauges)
	m.mu.Unlock()
	if len(gauges) == 0 {
		return nil
	}
	var asked *gauge
	done := make(chan struct{})
	go guard.Call(func() error {
		for _, asked = range gauges {
			v := asked.fn()
			out = append(out, &pb.Metric{OperatorId: asked.op.String(), OperatorName: asked.opN, Name: asked.name, Value: v})
		}
		return nil
	}, func(err error) {
		defer close(done)
		if err != nil && m.drop(asked) {
			t.log.Warn().Err(err).Str("operator", asked.opN).Str("gauge", asked.name).Str("detail", guard.Stack(err)).
				Msg("a gauge failed; it is dropped until the task is started again")
		}
	})
	<-done
	return out
}

// drop reports whether the gauge was still there.
func (m *metrics) drop(g *gauge) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := len(m.gauges)
	m.gauges = slices.DeleteFunc(m.gauges, func(x *gauge) bool { return x == g })
	return len(m.gauges) < n
}
