// Package dispatcher owns the jobs of a cluster: it takes submissions, starts a JobMaster for each, keeps their results, and recovers them
// in a new application attempt. It is layer L3. In application mode there is one job; a session has several.
//
// Invariants:
//
//  1. A job is in the job store before its JobMaster starts, and leaves it after its result is stored.
//  2. The coordinator process of a job is started and ended with its JobMaster; it never outlives Close.
package dispatcher
