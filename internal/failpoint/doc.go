// Package failpoint names the moments of the checkpoint, commit and deployment protocols at which a fault run can strike: a process can be
// killed, stopped, delayed or given an error exactly there.
//
// Without the build tag `failpoints` At and Error are empty and cost nothing: the compiler leaves nothing of them. With it they look into the
// folder that THALWEG_FAILPOINTS names (nothing happens without one), which the processes of a run share:
//
//	armed/NAME    what to do at the point NAME ("/" of a name is "~" there), see Action; written by whoever injects faults
//	fired/NAME    the file of armed that a process took, by a rename, so that each is taken once; the process adds "pid PID at TIME"
//	reached/NAME  made when a process comes to the point for its first time, armed or not
//
// docs/failpoints.md lists the points; internal/lint compares it with the code.
package failpoint
