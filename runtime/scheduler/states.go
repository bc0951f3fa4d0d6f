package scheduler

import "slices"

// JobState is the state of a job under Flink's names.
type JobState string

const (
	JobInitializing JobState = "INITIALIZING"
	JobCreated      JobState = "CREATED"
	JobRunning      JobState = "RUNNING"
	JobFailing      JobState = "FAILING"
	JobFailed       JobState = "FAILED"
	JobCancelling   JobState = "CANCELLING"
	JobCanceled     JobState = "CANCELED"
	JobFinished     JobState = "FINISHED"
	JobRestarting   JobState = "RESTARTING"
	JobSuspended    JobState = "SUSPENDED"
	JobReconciling  JobState = "RECONCILING"
)

// TaskState is the state of one attempt of one subtask under Flink's names.
type TaskState string

const (
	TaskCreated      TaskState = "CREATED"
	TaskScheduled    TaskState = "SCHEDULED"
	TaskDeploying    TaskState = "DEPLOYING"
	TaskInitializing TaskState = "INITIALIZING"
	TaskRunning      TaskState = "RUNNING"
	TaskFinished     TaskState = "FINISHED"
	TaskCanceling    TaskState = "CANCELING"
	TaskCanceled     TaskState = "CANCELED"
	TaskFailed       TaskState = "FAILED"
	TaskReconciling  TaskState = "RECONCILING"
)

// JobStates and TaskStates list all states in the order of a life.
var (
	JobStates  = []JobState{JobInitializing, JobCreated, JobRunning, JobFailing, JobFailed, JobCancelling, JobCanceled, JobFinished, JobRestarting, JobSuspended, JobReconciling}
	TaskStates = []TaskState{TaskCreated, TaskScheduled, TaskDeploying, TaskInitializing, TaskRunning, TaskFinished, TaskCanceling, TaskCanceled, TaskFailed, TaskReconciling}
)

// jobTransitions and taskTransitions are the only changes there are. Source: Flink 2.x JobStatus and ExecutionState; SUSPENDED is how a
// JobMaster that lost its leadership leaves a job, and is the end of that JobMaster only.
var (
	jobTransitions = map[JobState][]JobState{
		JobInitializing: {JobCreated, JobFailed, JobCanceled, JobSuspended},
		JobCreated:      {JobRunning, JobFailing, JobCancelling, JobSuspended},
		JobRunning:      {JobRestarting, JobFailing, JobCancelling, JobFinished, JobSuspended},
		JobRestarting:   {JobRunning, JobFailing, JobCancelling, JobSuspended},
		JobFailing:      {JobFailed, JobSuspended},
		JobCancelling:   {JobCanceled, JobSuspended},
		JobReconciling:  {JobRunning, JobRestarting, JobFailing, JobCancelling, JobSuspended},
	}
	taskTransitions = map[TaskState][]TaskState{
		TaskCreated:      {TaskScheduled, TaskCanceled, TaskFailed},
		TaskScheduled:    {TaskDeploying, TaskCanceled, TaskFailed},
		TaskDeploying:    {TaskInitializing, TaskRunning, TaskCanceling, TaskCanceled, TaskFailed},
		TaskInitializing: {TaskRunning, TaskCanceling, TaskCanceled, TaskFailed},
		TaskRunning:      {TaskFinished, TaskCanceling, TaskCanceled, TaskFailed},
		TaskCanceling:    {TaskCanceled, TaskFinished, TaskFailed},
		TaskReconciling:  {TaskRunning, TaskCanceling, TaskFailed},
	}
)

// Terminal reports whether the job has ended for good. SUSPENDED is not the job's end.
func (s JobState) Terminal() bool { return s == JobFailed || s == JobCanceled || s == JobFinished }

// Terminal reports whether the attempt has ended.
func (s TaskState) Terminal() bool {
	return s == TaskFinished || s == TaskCanceled || s == TaskFailed
}

func (s JobState) may(to JobState) bool   { return slices.Contains(jobTransitions[s], to) }
func (s TaskState) may(to TaskState) bool { return slices.Contains(taskTransitions[s], to) }
