package rest

import (
	"fmt"
	"math"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/thalweg/thalweg/checkpoint/coordinator"
	"github.com/thalweg/thalweg/runtime/jobmaster"
	"github.com/thalweg/thalweg/runtime/metrics"
	"github.com/thalweg/thalweg/runtime/resourcemanager"
	"github.com/thalweg/thalweg/runtime/scheduler"
	"github.com/thalweg/thalweg/runtime/scheduler/autoscale"
)

// value is a named number of a job on the JobManager.
type value struct {
	name    string
	v       float64
	counter bool
}

// jobValues are Flink's availability and checkpoint metrics of a job.
func jobValues(d *jobmaster.Details) []value {
	now := time.Now()
	if !d.End.IsZero() {
		now = d.End
	}
	out := []value{{"numRestarts", float64(d.Restarts), true}, {"fullRestarts", float64(d.Restarts), true}, {"numRescales", float64(d.Rescales), true}}
	for _, st := range []scheduler.JobState{scheduler.JobInitializing, scheduler.JobCreated, scheduler.JobRunning, scheduler.JobRestarting, scheduler.JobCancelling, scheduler.JobFailing} {
		name := strings.ToLower(string(st))
		in, since := 0.0, 0.0
		if d.State == st {
			in = 1
			if at, ok := d.Since[st]; ok {
				since = float64(now.Sub(at).Milliseconds())
			}
		}
		out = append(out, value{name + "State", in, false}, value{name + "Time", since, false})
	}
	up := 0.0
	if d.State == scheduler.JobRunning {
		up = float64(now.Sub(d.Since[scheduler.JobRunning]).Milliseconds())
	}
	out = append(out, value{"uptime", up, false})
	if st := d.Checkpoints; st != nil {
		out = append(out, checkpointValues(d, st)...)
	}
	return out
}

// loadValues are what the autoscaler knows of a vertex, under the names of Flink's; means of the metrics window.
func loadValues(e *autoscale.Evaluation) []value {
	out := []value{{"PARALLELISM", float64(e.Parallelism), false}, {"RECOMMENDED_PARALLELISM", float64(e.Recommended), false}, {"LOAD", e.Busy, false},
		{"TARGET_DATA_RATE", e.Target, false}, {"CATCH_UP_DATA_RATE", e.CatchUp, false}, {"SCALE_UP_RATE_THRESHOLD", e.UpBelow, false},
		{"SCALE_DOWN_RATE_THRESHOLD", e.DownAbove, false}}
	if !math.IsNaN(e.Capacity) {
		out = append(out, value{"TRUE_PROCESSING_RATE", e.Capacity, false})
	}
	if e.Pending >= 0 {
		out = append(out, value{"LAG", float64(e.Pending), false})
	}
	return out
}

func checkpointValues(d *jobmaster.Details, st *coordinator.Stats) []value {
	out := []value{{"numberOfInProgressCheckpoints", float64(st.Counts.InProgress), false}, {"numberOfCompletedCheckpoints", float64(st.Counts.Completed), true},
		{"numberOfFailedCheckpoints", float64(st.Counts.Failed), true}, {"totalNumberOfCheckpoints", float64(st.Counts.Total), true}}
	last := st.Latest.Completed
	if last == nil {
		out = append(out, value{"lastCheckpointDuration", -1, false}, value{"lastCheckpointSize", -1, false}, value{"lastCompletedCheckpointId", -1, false})
	} else {
		out = append(out, value{"lastCheckpointDuration", float64(last.Duration().Milliseconds()), false}, value{"lastCheckpointSize", float64(last.CheckpointedSize), false},
			value{"lastCheckpointFullSize", float64(last.StateSize), false}, value{"lastCompletedCheckpointId", float64(last.ID), false}, value{"lastCheckpointCompletedTimestamp", float64(last.End.UnixMilli()), false})
	}
	restored := -1.0
	if r := st.Latest.Restored; r != nil {
		restored = float64(r.Time.UnixMilli())
	}
	return append(out, value{"lastCheckpointRestoreTimestamp", restored, false})
}

// jobMetrics answers /jobs/:jobid/metrics: all names, or the values of those asked for.
func jobMetrics(r *http.Request, d *jobmaster.Details) (any, error) {
	want, err := listParam(r, "get")
	if err != nil {
		return nil, err
	}
	values := map[string]string{}
	out := []object{}
	all := jobValues(d)
	for i := range d.Load {
		for _, m := range loadValues(&d.Load[i]) {
			all = append(all, value{"AutoScaler.jobVertexID." + d.Graph.Vertices[i].ID.String() + "." + m.name + ".Average", m.v, false})
		}
	}
	for _, v := range all {
		if len(want) == 0 {
			out = append(out, object{"id": v.name})
		}
		values[v.name] = fmt.Sprintf("%v", number(v.v))
	}
	for _, name := range want {
		if v, ok := values[name]; ok {
			out = append(out, object{"id": name, "value": v})
		}
	}
	return out, nil
}

// number prints whole numbers without an exponent.
func number(v float64) any {
	if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
		return int64(v)
	}
	return v
}

// prometheus serves everything that the JobManager knows, the workers' reports included: one address to scrape per application.
func (s *server) prometheus(w http.ResponseWriter, r *http.Request) {
	jobs, err := s.opts.Dispatcher.Jobs(r.Context())
	if err != nil {
		s.fail(w, r, err)
		return
	}
	tms := s.opts.TaskManagers.TaskManagers()
	w.Header().Set("Content-Type", metrics.ContentType)
	if err := metrics.WritePrometheus(w, s.samples(jobs, tms)); err != nil {
		s.log.Debug().Err(err).Msg("metrics not written") // the client is gone
	}
}

func (s *server) samples(jobs []*jobmaster.Details, tms []resourcemanager.TaskManagerInfo) []metrics.Sample {
	host, _ := os.Hostname() // "" is fine
	jm := metrics.Scope{Host: host}
	hosts := map[string]string{}
	var out []metrics.Sample
	add := func(sc metrics.Scope, name string, v float64, counter bool) {
		out = append(out, metrics.Sample{Scope: sc, Name: name, Value: v, Counter: counter})
	}
	total, free, running := 0, 0, 0
	for _, t := range tms {
		hosts[t.ID] = t.Host
		total, free = total+t.Slots, free+t.FreeSlots
		sc := metrics.Scope{Host: t.Host, TaskManagerID: t.ID}
		cpu := t.CPUSeconds
		for _, w := range t.Workers {
			cpu += w.GetCpuSeconds()
		}
		add(sc, "Status.Process.RSS", float64(rss(t)), false)
		add(sc, "Status.Process.CPU.Time", cpu, true)
	}
	for _, d := range jobs {
		if !d.State.Terminal() {
			running++
		}
	}
	add(jm, "numRegisteredTaskManagers", float64(len(tms)), false)
	add(jm, "numPendingTaskManagers", float64(s.opts.TaskManagers.Pending()), false)
	add(jm, "numRunningJobs", float64(running), false)
	add(jm, "taskSlotsTotal", float64(total), false)
	add(jm, "taskSlotsAvailable", float64(free), false)
	for _, d := range jobs {
		sc := metrics.Scope{Host: host, JobID: d.JobID.String(), JobName: d.Name}
		for _, v := range jobValues(d) {
			add(sc, v.name, v.v, v.counter)
		}
		for i := range d.Load {
			v := d.Graph.Vertices[i]
			at := metrics.Scope{Host: host, JobID: d.JobID.String(), JobName: d.Name, VertexID: v.ID.String(), TaskName: v.Name}
			for _, m := range loadValues(&d.Load[i]) {
				add(at, "AutoScaler."+m.name, m.v, false)
			}
		}
		for i := range d.Vertices {
			for k := range d.Vertices[i].Tasks {
				out = taskSamples(out, d, &d.Vertices[i], &d.Vertices[i].Tasks[k], hosts)
			}
		}
	}
	return out
}

func taskSamples(out []metrics.Sample, d *jobmaster.Details, v *jobmaster.VertexDetails, t *jobmaster.TaskDetails, hosts map[string]string) []metrics.Sample {
	m := t.Metrics
	if m == nil {
		return out
	}
	sc := metrics.Scope{Host: hosts[t.TaskManager], TaskManagerID: t.TaskManager, JobID: d.JobID.String(), JobName: d.Name, VertexID: v.Vertex.ID.String(), TaskName: v.Vertex.Name,
		Subtask: t.ID.Subtask, Attempt: t.ID.Attempt}
	add := func(sc metrics.Scope, name string, v float64, counter bool) {
		out = append(out, metrics.Sample{Scope: sc, Name: name, Value: v, Counter: counter})
	}
	add(sc, "numRecordsIn", float64(m.GetRecordsIn()), true)
	add(sc, "numRecordsOut", float64(m.GetRecordsOut()), true)
	add(sc, "numBytesIn", float64(m.GetBytesIn()), true)
	add(sc, "numBytesOut", float64(m.GetBytesOut()), true)
	add(sc, "numRecordsInPerSecond", t.Rates.RecordsIn, false)
	add(sc, "numRecordsOutPerSecond", t.Rates.RecordsOut, false)
	add(sc, "numBytesInPerSecond", t.Rates.BytesIn, false)
	add(sc, "numBytesOutPerSecond", t.Rates.BytesOut, false)
	add(sc, "busyTimeMsPerSecond", t.Rates.Busy, false)
	add(sc, "idleTimeMsPerSecond", t.Rates.Idle, false)
	add(sc, "backPressuredTimeMsPerSecond", t.Rates.BackPressured, false)
	if m.GetWatermarkMs() != math.MinInt64 {
		add(sc, "currentInputWatermark", float64(m.GetWatermarkMs()), false)
	}
	for _, x := range m.GetMetrics() {
		op := sc
		op.OperatorID, op.OperatorName = x.GetOperatorId(), x.GetOperatorName()
		add(op, x.GetName(), x.GetValue(), x.GetCounter())
	}
	return out
}
