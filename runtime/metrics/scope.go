package metrics

import (
	"strconv"
	"strings"
)

// Scope says whose a metric is. Which fields are set decides its kind: JobManager, job on the JobManager, TaskManager, task, operator.
type Scope struct {
	Host          string
	TaskManagerID string // "" for the JobManager
	JobID         string
	JobName       string
	VertexID      string
	TaskName      string
	Subtask       int
	Attempt       int
	OperatorID    string
	OperatorName  string
}

func (s *Scope) task() bool     { return s.TaskName != "" || s.VertexID != "" }
func (s *Scope) operator() bool { return s.OperatorName != "" || s.OperatorID != "" }

// Identifier is the scope in Flink's default formats, such as
//
//	<host>.jobmanager.<job_name>
//	<host>.taskmanager.<tm_id>.<job_name>.<task_name>.<subtask_index>
//	<host>.taskmanager.<tm_id>.<job_name>.<operator_name>.<subtask_index>
//
// **Source:** Flink metrics.scope.* options.
func (s *Scope) Identifier() string {
	parts := []string{s.Host, "jobmanager"}
	if s.TaskManagerID != "" {
		parts = []string{s.Host, "taskmanager", s.TaskManagerID}
	}
	if s.JobName != "" {
		parts = append(parts, s.JobName)
	}
	switch {
	case s.operator():
		parts = append(parts, s.OperatorName, strconv.Itoa(s.Subtask))
	case s.task():
		parts = append(parts, s.TaskName, strconv.Itoa(s.Subtask))
	}
	for i, p := range parts {
		parts[i] = strings.ReplaceAll(p, ".", "_")
	}
	return strings.Join(parts, ".")
}

// prefix is the logical scope that Flink's Prometheus reporter puts before a name.
func (s *Scope) prefix() string {
	switch {
	case s.TaskManagerID == "" && s.operator():
		return "flink_jobmanager_job_operator_"
	case s.TaskManagerID == "" && s.JobID != "":
		return "flink_jobmanager_job_"
	case s.TaskManagerID == "":
		return "flink_jobmanager_"
	case s.operator():
		return "flink_taskmanager_job_task_operator_"
	case s.task():
		return "flink_taskmanager_job_task_"
	case s.JobID != "":
		return "flink_taskmanager_job_"
	}
	return "flink_taskmanager_"
}

// labels are Flink's variables in the order in which they are printed.
func (s *Scope) labels() [][2]string {
	l := [][2]string{{"host", s.Host}}
	add := func(k, v string) {
		if v != "" {
			l = append(l, [2]string{k, v})
		}
	}
	add("tm_id", s.TaskManagerID)
	add("job_id", s.JobID)
	add("job_name", s.JobName)
	add("task_id", s.VertexID)
	add("task_name", s.TaskName)
	if s.task() && s.TaskManagerID != "" || s.operator() { // else it is about all subtasks of a vertex
		add("subtask_index", strconv.Itoa(s.Subtask))
		add("task_attempt_num", strconv.Itoa(s.Attempt))
	}
	add("operator_id", s.OperatorID)
	add("operator_name", s.OperatorName)
	return l
}
