// Package scheduler decides what a job does next: which tasks are deployed where, when they are cancelled, whether a failure is followed by
// a restart, and when the job has ended. It is layer L3 and a pure core: no goroutine, clock, I/O or randomness. runtime/jobmaster is its
// shell: it turns what happens into events, carries out the effects, in order, and reports back.
//
// Main flow:
//
//	Start -> RequireSlots, Prepare -> (shell: slots, workers, coordinator process, state to restore) -> Prepared -> Deploy
//	TaskChanged(RUNNING) of all tasks -> AllRunning
//	TaskChanged(END_OF_DATA) of all tasks -> TriggerFinal -> FinalDone -> FinishTasks -> TaskChanged(FINISHED) of all -> Ended(FINISHED)
//	a failure -> CancelTasks -> (all tasks ended) -> ScheduleRestart -> RestartDue -> Prepare ...
//
// Invariants:
//
//  1. States change along the tables of states.go only; a message that would need another change is dropped as late.
//  2. A restart replaces the tasks of whole stages by new attempts, after every old one has ended or its worker is gone. Stages that were not
//     hit run on: in STREAMING these are the pipelines that are not connected with the failed task.
//  3. Slots needed: for each slot sharing group the greatest parallelism in it; one slot holds at most one subtask of each vertex.
//  4. Ended is the last effect, sent once.
//  5. In BATCH a stage whose commits are prepared is never run again, by this or a later JobMaster, and commits after its progress is kept.
package scheduler
