package rest

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"github.com/thalweg/thalweg/checkpoint/coordinator"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/runtime/dispatcher"
	"github.com/thalweg/thalweg/runtime/jobmaster"
)

func (s *server) checkpointRoutes() {
	s.job("GET /jobs/{jobid}/checkpoints", checkpoints)
	s.job("GET /jobs/{jobid}/checkpoints/config", checkpointConfig)
	s.job("GET /jobs/{jobid}/checkpoints/details/{checkpointid}", checkpointDetails)
	s.job("GET /jobs/{jobid}/checkpoints/details/{checkpointid}/subtasks/{vertexid}", checkpointSubtasks)
	s.route("POST /jobs/{jobid}/checkpoints", s.triggerCheckpoint)
	s.route("GET /jobs/{jobid}/checkpoints/{triggerid}", func(r *http.Request) (any, error) {
		return s.operation(r, func(op dispatcher.Operation) object {
			if op.Result.Err != nil {
				return object{"failureCause": failureCause(op.Result.Err.Error(), "")}
			}
			return object{"checkpointId": op.Result.ID}
		})
	})
	s.route("POST /jobs/{jobid}/savepoints", s.triggerSavepoint)
	s.route("POST /jobs/{jobid}/stop", s.stop)
	s.route("GET /jobs/{jobid}/yarn-stop", func(r *http.Request) (any, error) {
		return s.start(r, r.URL.Query().Get("triggerId"), jobmaster.TriggerRequest{Kind: jobmaster.TriggerStop})
	})
	s.route("GET /jobs/{jobid}/savepoints/{triggerid}", func(r *http.Request) (any, error) { return s.operation(r, location) })
	s.route("POST /savepoint-disposal", s.dispose)
	s.route("GET /savepoint-disposal/{triggerid}", s.disposal)
}

var errNotEnabled = notFound("Checkpointing has not been enabled.")

func distribution(d coordinator.Distribution) object {
	return object{"min": d.Min, "max": d.Max, "avg": d.Avg, "p50": d.P50, "p90": d.P90, "p95": d.P95, "p99": d.P99, "p999": d.P999}
}

var nothing = object{"min": 0, "max": 0, "avg": 0, "p50": 0, "p90": 0, "p95": 0, "p99": 0, "p999": 0}

// checkpointJSON is Flink's CheckpointStatistics.
func checkpointJSON(d *jobmaster.Details, c *coordinator.Details) object {
	class := map[coordinator.Status]string{coordinator.InProgress: "in_progress", coordinator.StatusCompleted: "completed", coordinator.StatusFailed: "failed"}[c.Status]
	kind := "CHECKPOINT"
	switch c.Kind {
	case coordinator.Savepoint:
		kind = "SAVEPOINT"
	case coordinator.StopWithSavepoint:
		kind = "SYNC_SAVEPOINT"
	}
	ack := int64(-1)
	if !c.LatestAck.IsZero() {
		ack = c.LatestAck.UnixMilli()
	}
	o := object{"@class": class, "className": class, "id": c.ID, "status": c.Status, "is_savepoint": c.Savepoint(), "checkpoint_type": kind, "savepointFormat": nil,
		"trigger_timestamp": c.Trigger.UnixMilli(), "latest_ack_timestamp": ack, "checkpointed_size": c.CheckpointedSize, "state_size": c.StateSize,
		"end_to_end_duration": c.Duration().Milliseconds(), "alignment_buffered": 0, "processed_data": c.Processed, "persisted_data": c.Persisted,
		"num_subtasks": c.Subtasks, "num_acknowledged_subtasks": c.AckedSubtasks, "metadata_size": c.MetadataSize, "tasks": object{}}
	if c.Savepoint() {
		o["savepointFormat"] = "CANONICAL"
	}
	switch c.Status {
	case coordinator.StatusCompleted:
		o["external_path"], o["discarded"] = c.Dir, c.Discarded
	case coordinator.StatusFailed:
		o["failure_timestamp"], o["failure_message"] = c.End.UnixMilli(), d.Config.Redact(c.Failure)
	}
	return o
}

func optional(d *jobmaster.Details, c *coordinator.Details) any {
	if c == nil {
		return nil
	}
	return checkpointJSON(d, c)
}

func checkpoints(_ *http.Request, d *jobmaster.Details) (any, error) {
	st := d.Checkpoints
	if st == nil {
		return nil, errNotEnabled
	}
	history := []object{}
	for i := range st.History {
		history = append(history, checkpointJSON(d, &st.History[i]))
	}
	var restored any
	if r := st.Latest.Restored; r != nil {
		restored = object{"id": r.ID, "restore_timestamp": r.Time.UnixMilli(), "is_savepoint": r.Savepoint, "external_path": r.Dir}
	}
	return object{
		"counts": object{"restored": st.Counts.Restored, "total": st.Counts.Total, "in_progress": st.Counts.InProgress, "completed": st.Counts.Completed, "failed": st.Counts.Failed},
		"summary": object{"checkpointed_size": distribution(st.Summary.CheckpointedSize), "state_size": distribution(st.Summary.StateSize),
			"end_to_end_duration": distribution(st.Summary.Duration), "alignment_buffered": nothing, "processed_data": distribution(st.Summary.Processed), "persisted_data": distribution(st.Summary.Persisted)},
		"latest":  object{"completed": optional(d, st.Latest.Completed), "savepoint": optional(d, st.Latest.Savepoint), "failed": optional(d, st.Latest.Failed), "restored": restored},
		"history": history}, nil
}

func checkpointConfig(_ *http.Request, d *jobmaster.Details) (any, error) {
	if d.Checkpoints == nil {
		return nil, errNotEnabled
	}
	c := d.Config
	mode := strings.ReplaceAll(config.CheckpointMode.Value(c), "-", "_")
	interval := config.CheckpointInterval.Value(c).Milliseconds()
	if interval <= 0 {
		interval = int64(^uint64(0) >> 1) // Flink's Long.MAX_VALUE for "off"
	}
	keep := config.Externalized.Value(c)
	return object{"mode": mode, "interval": interval, "timeout": config.CheckpointTimeout.Value(c).Milliseconds(), "min_pause": config.CheckpointMinPause.Value(c).Milliseconds(),
		"max_concurrent": config.ConcurrentCheckpoints(c), "externalization": object{"enabled": keep != "no_externalized_checkpoints", "delete_on_cancellation": keep != "retain_on_cancellation"},
		"state_backend": config.StateBackend.Value(c), "checkpoint_storage": "FileSystemCheckpointStorage", "checkpoint_directory": d.CheckpointDir,
		"unaligned_checkpoints": config.UnalignedCheckpoints(c), "tolerable_failed_checkpoints": config.TolerableFailures.Value(c), "aligned_checkpoint_timeout": config.AlignedTimeout.Value(c).Milliseconds(),
		"checkpoints_after_tasks_finish": true, "state_changelog_enabled": false, "changelog_periodic_materialization_interval": 0, "changelog_storage": ""}, nil
}

func findCheckpoint(r *http.Request, d *jobmaster.Details) (*coordinator.Details, error) {
	id, err := strconv.ParseInt(r.PathValue("checkpointid"), 10, 64)
	if err != nil {
		return nil, bad("Cannot resolve path parameter (checkpointid) from value %q: want a number.", clip(r.PathValue("checkpointid")))
	}
	if d.Checkpoints == nil {
		return nil, errNotEnabled
	}
	st := d.Checkpoints
	for i := range st.History {
		if st.History[i].ID == id {
			return &st.History[i], nil
		}
	}
	for _, c := range []*coordinator.Details{st.Latest.Completed, st.Latest.Savepoint, st.Latest.Failed} {
		if c != nil && c.ID == id {
			return c, nil
		}
	}
	return nil, notFound("Could not find checkpointing statistics for checkpoint %d.", id)
}

func checkpointDetails(r *http.Request, d *jobmaster.Details) (any, error) {
	c, err := findCheckpoint(r, d)
	if err != nil {
		return nil, err
	}
	o := checkpointJSON(d, c)
	tasks := object{}
	for id, v := range c.Vertices {
		var size, written, acked, last, processed, persisted int64
		last = -1
		for _, s := range v.Subtasks {
			if s.Ack.IsZero() {
				continue
			}
			acked++
			size, written, last = size+s.Size, written+s.New, max(last, s.Ack.UnixMilli())
			processed, persisted = processed+s.Processed, persisted+s.Persisted
		}
		tasks[id.String()] = object{"id": c.ID, "status": c.Status, "latest_ack_timestamp": last, "checkpointed_size": written, "state_size": size,
			"end_to_end_duration": max(0, last-c.Trigger.UnixMilli()), "alignment_buffered": 0, "processed_data": processed, "persisted_data": persisted,
			"num_subtasks": len(v.Subtasks), "num_acknowledged_subtasks": acked}
	}
	o["tasks"] = tasks
	return o, nil
}

func checkpointSubtasks(r *http.Request, d *jobmaster.Details) (any, error) {
	c, err := findCheckpoint(r, d)
	if err != nil {
		return nil, err
	}
	v, err := vertexOf(r, d)
	if err != nil {
		return nil, err
	}
	subtasks := []object{}
	if vd := c.Vertices[v.Vertex.ID]; vd != nil {
		for i, s := range vd.Subtasks {
			if s.Ack.IsZero() {
				subtasks = append(subtasks, object{"index": i, "status": "pending_or_failed"})
				continue
			}
			subtasks = append(subtasks, object{"index": i, "status": "completed", "ack_timestamp": s.Ack.UnixMilli(), "end_to_end_duration": s.Ack.Sub(c.Trigger).Milliseconds(),
				"state_size": s.Size, "checkpointed_size": s.New, "checkpoint": object{"sync": s.Sync.Milliseconds(), "async": s.Async.Milliseconds()},
				"alignment": object{"buffered": 0, "processed": s.Processed, "persisted": s.Persisted, "duration": s.Alignment.Milliseconds()}, "start_delay": s.StartDelay.Milliseconds(), "unaligned_checkpoint": s.Unaligned, "aborted": false})
		}
	}
	return object{"id": c.ID, "status": c.Status, "subtasks": subtasks}, nil
}

func (s *server) start(r *http.Request, trigger string, req jobmaster.TriggerRequest) (any, error) {
	id, err := jobID(r)
	if err != nil {
		return nil, err
	}
	if trigger, err = triggerID(trigger); err != nil {
		return nil, err
	}
	trigger, err = s.opts.Dispatcher.StartTrigger(id, trigger, req)
	if err != nil {
		return nil, err
	}
	return accepted{object{"request-id": trigger}}, nil
}

func (s *server) triggerCheckpoint(r *http.Request) (any, error) {
	var b struct {
		CheckpointType string `json:"checkpointType"`
		TriggerID      string `json:"triggerId"`
	}
	if err := body(r, &b); err != nil {
		return nil, err
	}
	kind := strings.ToUpper(b.CheckpointType)
	switch kind {
	case "", "CONFIGURED", "INCREMENTAL", "FULL":
	default:
		return nil, bad("checkpointType %q is not supported; use CONFIGURED, INCREMENTAL or FULL.", clip(b.CheckpointType))
	}
	return s.start(r, b.TriggerID, jobmaster.TriggerRequest{Kind: jobmaster.TriggerCheckpoint, Native: true, Full: kind == "FULL"})
}

func native(format string) (bool, error) {
	switch strings.ToUpper(format) {
	case "", "CANONICAL":
		return false, nil
	case "NATIVE":
		return true, nil
	}
	return false, bad("formatType %q is not known; use CANONICAL or NATIVE.", clip(format))
}

// maxURI bounds URIs in requests.
const maxURI = 4096

func checkDirectory(uri string) error {
	if len(uri) > maxURI || strings.ContainsAny(uri, "\x00\n\r") {
		return bad("The directory is no URI.")
	}
	return nil
}

// directory is the full URI of the folder that a field of the body names; "" is the job's own.
func (s *server) directory(ctx context.Context, field, uri string) (string, error) {
	if err := checkDirectory(uri); err != nil || uri == "" || s.opts.CheckFolder == nil {
		return uri, err
	}
	full, err := s.opts.CheckFolder(ctx, field, uri)
	if err != nil {
		return "", bad("%v", err)
	}
	return full, nil
}

// target is directory for a savepoint of the job that the path names. It is tried, for a job that is there.
func (s *server) target(r *http.Request, field, uri string) (string, error) {
	full, err := s.directory(r.Context(), field, uri)
	if err != nil || full == "" || s.opts.TryFolder == nil {
		return full, err
	}
	id, err := jobID(r)
	if err != nil {
		return "", err
	}
	if _, err := s.opts.Dispatcher.Details(r.Context(), id); err != nil {
		return "", err
	}
	if err := s.opts.TryFolder(r.Context(), full); err != nil {
		return "", bad("%s: %v", field, err)
	}
	return full, nil
}

func (s *server) triggerSavepoint(r *http.Request) (any, error) {
	var b struct {
		Directory string `json:"target-directory"`
		Cancel    bool   `json:"cancel-job"`
		Format    string `json:"formatType"`
		TriggerID string `json:"triggerId"`
	}
	if err := body(r, &b); err != nil {
		return nil, err
	}
	dir, err := s.target(r, "target-directory", b.Directory)
	if err != nil {
		return nil, err
	}
	nat, err := native(b.Format)
	if err != nil {
		return nil, err
	}
	return s.start(r, b.TriggerID, jobmaster.TriggerRequest{Kind: jobmaster.TriggerSavepoint, Directory: dir, Native: nat, Cancel: b.Cancel})
}

func (s *server) stop(r *http.Request) (any, error) {
	var b struct {
		Directory string `json:"targetDirectory"`
		Drain     bool   `json:"drain"`
		Format    string `json:"formatType"`
		TriggerID string `json:"triggerId"`
	}
	if err := body(r, &b); err != nil {
		return nil, err
	}
	dir, err := s.target(r, "targetDirectory", b.Directory)
	if err != nil {
		return nil, err
	}
	nat, err := native(b.Format)
	if err != nil {
		return nil, err
	}
	return s.start(r, b.TriggerID, jobmaster.TriggerRequest{Kind: jobmaster.TriggerStop, Directory: dir, Drain: b.Drain, Native: nat})
}

func location(op dispatcher.Operation) object {
	if op.Result.Err != nil {
		return object{"failure-cause": failureCause(op.Result.Err.Error(), "")}
	}
	return object{"location": op.Result.Path}
}

func (s *server) operation(r *http.Request, show func(dispatcher.Operation) object) (any, error) {
	id, err := jobID(r)
	if err != nil {
		return nil, err
	}
	trigger, err := triggerID(r.PathValue("triggerid"))
	if err != nil {
		return nil, err
	}
	op, err := s.opts.Dispatcher.Operation(id, trigger)
	if err != nil {
		return nil, err
	}
	return status(op, show), nil
}

func status(op dispatcher.Operation, show func(dispatcher.Operation) object) object {
	if !op.Done {
		return object{"status": object{"id": "IN_PROGRESS"}}
	}
	return object{"status": object{"id": "COMPLETED"}, "operation": show(op)}
}

func (s *server) dispose(r *http.Request) (any, error) {
	var b struct {
		Path      string `json:"savepoint-path"`
		TriggerID string `json:"triggerId"`
	}
	if err := body(r, &b); err != nil {
		return nil, err
	}
	if b.Path == "" {
		return nil, bad("savepoint-path is missing.")
	}
	uri, err := s.directory(r.Context(), "savepoint-path", b.Path)
	if err != nil {
		return nil, err
	}
	trigger, err := triggerID(b.TriggerID)
	if err != nil {
		return nil, err
	}
	if trigger, err = s.opts.Dispatcher.StartDisposal(trigger, uri); err != nil {
		return nil, err
	}
	return accepted{object{"request-id": trigger}}, nil
}

func (s *server) disposal(r *http.Request) (any, error) {
	trigger, err := triggerID(r.PathValue("triggerid"))
	if err != nil {
		return nil, err
	}
	op, err := s.opts.Dispatcher.Disposal(trigger)
	if err != nil {
		return nil, err
	}
	return status(op, func(op dispatcher.Operation) object {
		if op.Result.Err != nil {
			return object{"failure-cause": failureCause(op.Result.Err.Error(), "")}
		}
		return object{}
	}), nil
}
