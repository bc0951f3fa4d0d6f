package jobmaster

import (
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/rpc/pb"
)

// taskMetrics keeps the last two reports of each task of the present attempt.
type taskMetrics struct {
	last map[string]*sample // by execution id
}

type sample struct {
	at, before    int64 // ms
	now, previous *pb.TaskMetrics
	rates         Rates
}

// Rates are per second over the last reporting interval.
type Rates struct {
	RecordsIn, RecordsOut, BytesIn, BytesOut float64
	Busy, Idle, BackPressured                float64 // ms per second
}

func newTaskMetrics() *taskMetrics { return &taskMetrics{last: map[string]*sample{}} }

// update takes a report. Tasks that are not current, such as those of an earlier attempt, are left out.
func (m *taskMetrics) update(w *pb.WorkerMetrics, current func(graph.ExecutionID) bool) {
	for _, t := range w.GetTasks() {
		if id, err := graph.ParseExecutionID(t.GetExecutionId()); err != nil || !current(id) {
			continue
		}
		s := m.last[t.GetExecutionId()]
		if s == nil {
			s = &sample{}
			m.last[t.GetExecutionId()] = s
		}
		s.before, s.previous = s.at, s.now
		s.at, s.now = w.GetTimeMs(), t
		if s.previous == nil || s.at <= s.before {
			continue
		}
		per := func(a, b int64) float64 { return float64(a-b) * 1000 / float64(s.at-s.before) }
		s.rates = Rates{RecordsIn: per(t.RecordsIn, s.previous.RecordsIn), RecordsOut: per(t.RecordsOut, s.previous.RecordsOut),
			BytesIn: per(t.BytesIn, s.previous.BytesIn), BytesOut: per(t.BytesOut, s.previous.BytesOut),
			Busy: per(t.BusyMs, s.previous.BusyMs), Idle: per(t.IdleMs, s.previous.IdleMs), BackPressured: per(t.BackpressuredMs, s.previous.BackpressuredMs)}
	}
}

// keep forgets the tasks that are not current, such as those of an attempt that ended.
func (m *taskMetrics) keep(current func(graph.ExecutionID) bool) {
	for text := range m.last {
		if id, err := graph.ParseExecutionID(text); err != nil || !current(id) {
			delete(m.last, text)
		}
	}
}
