package rest

import (
	"net/http"
	"strings"
	"time"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/jobmaster"
	"github.com/thalweg/thalweg/runtime/scheduler"
)

func (s *server) jobRoutes() {
	s.route("GET /jobs", func(r *http.Request) (any, error) {
		return s.eachJob(r, func(d *jobmaster.Details) object { return object{"id": d.JobID.String(), "status": d.State} })
	})
	s.route("GET /jobs/overview", func(r *http.Request) (any, error) { return s.eachJob(r, jobOverview) })
	s.job("GET /jobs/{jobid}", s.jobDetails)
	s.job("GET /jobs/{jobid}/status", func(_ *http.Request, d *jobmaster.Details) (any, error) { return object{"status": d.State}, nil })
	s.job("GET /jobs/{jobid}/plan", func(_ *http.Request, d *jobmaster.Details) (any, error) { return object{"plan": plan(d)}, nil })
	s.job("GET /jobs/{jobid}/config", jobConfig)
	s.job("GET /jobs/{jobid}/jobmanager/config", func(_ *http.Request, d *jobmaster.Details) (any, error) { return pairs(d.Config), nil })
	s.job("GET /jobs/{jobid}/exceptions", exceptions)
	s.job("GET /jobs/{jobid}/execution-result", executionResult)
	s.job("GET /jobs/{jobid}/metrics", jobMetrics)
	s.job("GET /jobs/{jobid}/accumulators", func(*http.Request, *jobmaster.Details) (any, error) {
		return object{"job-accumulators": []any{}, "user-task-accumulators": []any{}, "serialized-user-task-accumulators": object{}}, nil
	})
	s.job("GET /jobs/{jobid}/vertices/{vertexid}", vertexDetails)
	s.job("GET /jobs/{jobid}/vertices/{vertexid}/backpressure", backPressure)
	s.route("PATCH /jobs/{jobid}", s.cancel)
	s.route("PATCH /jobs/{jobid}/{$}", s.cancel)
	s.route("GET /jobs/{jobid}/yarn-cancel", s.cancel)
}

func (s *server) cancel(r *http.Request) (any, error) {
	if mode := r.URL.Query().Get("mode"); mode != "" && mode != "cancel" {
		return nil, bad("The termination mode %q is not supported; use cancel, or stop the job with a savepoint.", clip(mode))
	}
	id, err := jobID(r)
	if err != nil {
		return nil, err
	}
	if err := s.opts.Dispatcher.Cancel(id); err != nil {
		return nil, err
	}
	return accepted{object{}}, nil
}

func (s *server) eachJob(r *http.Request, fn func(*jobmaster.Details) object) (any, error) {
	jobs, err := s.opts.Dispatcher.Jobs(r.Context())
	if err != nil {
		return nil, err
	}
	out := []object{}
	for _, d := range jobs {
		out = append(out, fn(d))
	}
	return object{"jobs": out}, nil
}

// end is Flink's form of an end time: ms, -1 while there is none.
func end(t time.Time) int64 {
	if t.IsZero() {
		return -1
	}
	return t.UnixMilli()
}

func duration(start, stop time.Time) int64 {
	if start.IsZero() {
		return -1
	}
	if stop.IsZero() {
		stop = time.Now()
	}
	return max(0, stop.Sub(start).Milliseconds())
}

// taskCounts counts tasks by state, under every state's name.
func taskCounts(tasks []jobmaster.TaskDetails, name func(scheduler.TaskState) string) map[string]int {
	n := map[string]int{}
	for _, s := range scheduler.TaskStates {
		n[name(s)] = 0
	}
	for _, t := range tasks {
		n[name(t.State)]++
	}
	return n
}

func upper(s scheduler.TaskState) string { return string(s) }
func lower(s scheduler.TaskState) string { return strings.ToLower(string(s)) }

func allTasks(d *jobmaster.Details) []jobmaster.TaskDetails {
	var out []jobmaster.TaskDetails
	for _, v := range d.Vertices {
		out = append(out, v.Tasks...)
	}
	return out
}

func jobOverview(d *jobmaster.Details) object {
	last := d.Start
	for _, at := range d.Since {
		if at.After(last) {
			last = at
		}
	}
	tasks := allTasks(d)
	counts := taskCounts(tasks, lower)
	counts["total"] = len(tasks)
	return object{"jid": d.JobID.String(), "name": d.Name, "state": d.State, "start-time": d.Start.UnixMilli(), "end-time": end(d.End),
		"duration": duration(d.Start, d.End), "last-modification": last.UnixMilli(), "tasks": counts, "pending-operators": 0,
		"jobType": d.Graph.Mode.Name(), "schedulerType": schedulerType(d)}
}

func (s *server) jobDetails(_ *http.Request, d *jobmaster.Details) (any, error) {
	times := map[scheduler.JobState]int64{}
	for _, st := range scheduler.JobStates {
		times[st] = 0
		if at, ok := d.Since[st]; ok {
			times[st] = at.UnixMilli()
		}
	}
	vertices := []object{}
	status := taskCounts(nil, upper)
	for i := range d.Vertices {
		v := vertexJSON(d, &d.Vertices[i])
		status[string(v["status"].(scheduler.TaskState))]++
		vertices = append(vertices, v)
	}
	maxParallelism := config.MaxParallelism.Value(d.Config)
	o := object{"jid": d.JobID.String(), "name": d.Name, "isStoppable": true, "state": d.State, "job-type": d.Graph.Mode.Name(), "schedulerType": schedulerType(d),
		"start-time": d.Start.UnixMilli(), "end-time": end(d.End), "duration": duration(d.Start, d.End), "maxParallelism": maxParallelism,
		"now": time.Now().UnixMilli(), "timestamps": times, "vertices": vertices, "status-counts": status, "plan": plan(d), "stream-graph": object{},
		"pending-operators": 0, "restarts": d.Restarts, "adopted-tasks": d.Adopted, "slots-required": d.Slots, "slots-allocated": d.HasSlots, "rescales": d.Rescales, "rescaling": d.Resizing, "warnings": d.Graph.Warnings}
	if s.opts.ApplicationID != "" {
		o["application-id"] = s.opts.ApplicationID
	}
	if d.Problem != "" {
		o["problem"] = d.Problem
	}
	return o, nil
}

// vertexStatus aggregates the tasks' states. Source: Flink ExecutionJobVertex.getAggregateJobVertexState.
func vertexStatus(tasks []jobmaster.TaskDetails) scheduler.TaskState {
	n := map[scheduler.TaskState]int{}
	for _, t := range tasks {
		n[t.State]++
	}
	for _, s := range []scheduler.TaskState{scheduler.TaskFailed, scheduler.TaskCanceling} {
		if n[s] > 0 {
			return s
		}
	}
	if n[scheduler.TaskCanceled] > 0 {
		return scheduler.TaskCanceled
	}
	for _, s := range []scheduler.TaskState{scheduler.TaskInitializing, scheduler.TaskRunning} {
		if n[s] > 0 {
			return s
		}
	}
	if n[scheduler.TaskFinished] > 0 {
		if n[scheduler.TaskFinished] == len(tasks) {
			return scheduler.TaskFinished
		}
		return scheduler.TaskRunning
	}
	for _, s := range []scheduler.TaskState{scheduler.TaskDeploying, scheduler.TaskScheduled} {
		if n[s] > 0 {
			return s
		}
	}
	return scheduler.TaskCreated
}

// taskTimes are the start and end of a task: of its deployment, and of its last state when that is final.
func taskTimes(t *jobmaster.TaskDetails) (start, stop time.Time) {
	start = t.Since[scheduler.TaskDeploying]
	if t.State.Terminal() {
		stop = t.Since[t.State]
	}
	return start, stop
}

func metricsJSON(tasks []jobmaster.TaskDetails) object {
	var m struct{ rb, wb, rr, wr, busy, idle, back int64 }
	complete := len(tasks) > 0
	for _, t := range tasks {
		if t.Metrics == nil {
			complete = false
			continue
		}
		m.rb += t.Metrics.GetBytesIn()
		m.wb += t.Metrics.GetBytesOut()
		m.rr += t.Metrics.GetRecordsIn()
		m.wr += t.Metrics.GetRecordsOut()
		m.busy += t.Metrics.GetBusyMs()
		m.idle += t.Metrics.GetIdleMs()
		m.back += t.Metrics.GetBackpressuredMs()
	}
	return object{"read-bytes": m.rb, "read-bytes-complete": complete, "write-bytes": m.wb, "write-bytes-complete": complete,
		"read-records": m.rr, "read-records-complete": complete, "write-records": m.wr, "write-records-complete": complete,
		"accumulated-backpressured-time": m.back, "accumulated-idle-time": m.idle, "accumulated-busy-time": m.busy}
}

func vertexJSON(d *jobmaster.Details, v *jobmaster.VertexDetails) object {
	var start, stop time.Time
	ended := len(v.Tasks) > 0
	for i := range v.Tasks {
		a, b := taskTimes(&v.Tasks[i])
		if !a.IsZero() && (start.IsZero() || a.Before(start)) {
			start = a
		}
		ended = ended && !b.IsZero()
		if b.After(stop) {
			stop = b
		}
	}
	if !ended {
		stop = time.Time{}
	}
	startMs := int64(-1)
	if !start.IsZero() {
		startMs = start.UnixMilli()
	}
	operators := []object{}
	for _, o := range v.Vertex.Operators {
		operators = append(operators, object{"id": o.ID.String(), "uid": o.UID, "name": o.Name})
	}
	return object{"id": v.Vertex.ID.String(), "slotSharingGroupId": v.Vertex.SlotSharingGroup, "operators": operators, "name": v.Vertex.Name, "maxParallelism": v.Vertex.MaxParallelism,
		"parallelism": v.Vertex.Parallelism, "status": vertexStatus(v.Tasks), "start-time": startMs, "end-time": end(stop), "duration": duration(start, stop),
		"tasks": taskCounts(v.Tasks, upper), "metrics": metricsJSON(v.Tasks)}
}

// plan is the job graph in the form of Flink's JSON plan.
func plan(d *jobmaster.Details) object {
	nodes := []object{}
	for i := range d.Graph.Vertices {
		v := &d.Graph.Vertices[i]
		n := object{"id": v.ID.String(), "parallelism": v.Parallelism, "operator": "", "operator_strategy": "", "description": v.Name, "optimizer_properties": object{}}
		var inputs []object
		for k, in := range v.Inputs {
			inputs = append(inputs, object{"num": k, "id": in.From.String(), "ship_strategy": in.Partitioner, "exchange": "pipelined_bounded"})
		}
		if inputs != nil {
			n["inputs"] = inputs
		}
		nodes = append(nodes, n)
	}
	return object{"jid": d.JobID.String(), "name": d.Name, "type": "STREAMING", "nodes": nodes}
}

func jobConfig(_ *http.Request, d *jobmaster.Details) (any, error) {
	strategy := scheduler.StrategyOf(d.Config, d.Graph.Mode)
	return object{"jid": d.JobID.String(), "name": d.Name, "execution-config": object{"restart-strategy": strategy.String(),
		"job-parallelism": config.Parallelism.Value(d.Config), "object-reuse-mode": config.ObjectReuse.Value(d.Config), "user-config": d.Config.Redacted()}}, nil
}

func executionResult(_ *http.Request, d *jobmaster.Details) (any, error) {
	if !d.State.Terminal() {
		return object{"status": object{"id": "IN_PROGRESS"}}, nil
	}
	status := map[scheduler.JobState]string{scheduler.JobFinished: "SUCCEEDED", scheduler.JobCanceled: "CANCELED", scheduler.JobFailed: "FAILED"}[d.State]
	o := object{"id": d.JobID.String(), "application-status": status, "accumulator-results": object{}, "net-runtime": duration(d.Start, d.End)}
	if d.State == scheduler.JobFailed && d.Root != nil {
		o["failure-cause"] = failureCause(d.Config.Redact(d.Root.Message), d.Config.Redact(d.Root.Detail))
	}
	return object{"status": object{"id": "COMPLETED"}, "job-execution-result": o}, nil
}

// failureCause is Flink's SerializedThrowable without the serialized part.
func failureCause(message, detail string) object {
	if detail != "" {
		detail = message + "\n" + detail
	} else {
		detail = message
	}
	return object{"class": "error", "message": message, "stack-trace": detail}
}

func vertexOf(r *http.Request, d *jobmaster.Details) (*jobmaster.VertexDetails, error) {
	id, err := graph.ParseID(r.PathValue("vertexid"))
	if err != nil {
		return nil, bad("Cannot resolve path parameter (vertexid) from value %q: want 32 hex digits.", clip(r.PathValue("vertexid")))
	}
	for i := range d.Vertices {
		if d.Vertices[i].Vertex.ID.ID == id {
			return &d.Vertices[i], nil
		}
	}
	return nil, notFound("Vertex %s not found in job %s.", id, d.JobID)
}

func vertexDetails(r *http.Request, d *jobmaster.Details) (any, error) {
	v, err := vertexOf(r, d)
	if err != nil {
		return nil, err
	}
	subtasks := []object{}
	for i := range v.Tasks {
		t := &v.Tasks[i]
		start, stop := taskTimes(t)
		at := int64(-1)
		if !start.IsZero() {
			at = start.UnixMilli()
		}
		subtasks = append(subtasks, object{"subtask": i, "status": t.State, "attempt": t.ID.Attempt, "taskmanager-id": t.TaskManager, "endpoint": t.TaskManager,
			"start-time": at, "end-time": end(stop), "duration": duration(start, stop), "metrics": metricsJSON(v.Tasks[i : i+1])})
	}
	return object{"id": v.Vertex.ID.String(), "name": v.Vertex.Name, "parallelism": v.Vertex.Parallelism, "maxParallelism": v.Vertex.MaxParallelism,
		"now": time.Now().UnixMilli(), "subtasks": subtasks, "aggregated": object{"metrics": metricsJSON(v.Tasks)}}, nil
}

// backPressure. Source: Flink JobVertexBackPressureInfo: OK up to 10 %, LOW up to 50 %, HIGH above.
func backPressure(r *http.Request, d *jobmaster.Details) (any, error) {
	v, err := vertexOf(r, d)
	if err != nil {
		return nil, err
	}
	level := func(ratio float64) string {
		switch {
		case ratio <= 0.1:
			return "ok"
		case ratio <= 0.5:
			return "low"
		}
		return "high"
	}
	worst := 0.0
	subtasks := []object{}
	for i, t := range v.Tasks {
		ratio := t.Rates.BackPressured / 1000
		worst = max(worst, ratio)
		subtasks = append(subtasks, object{"subtask": i, "attempt-number": t.ID.Attempt, "backpressureLevel": level(ratio), "ratio": ratio,
			"busyRatio": t.Rates.Busy / 1000, "idleRatio": t.Rates.Idle / 1000})
	}
	return object{"status": "ok", "backpressureLevel": level(worst), "end-timestamp": time.Now().UnixMilli(), "subtasks": subtasks}, nil
}
