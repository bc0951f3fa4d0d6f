// Package taskmanager is the process that owns a container's task slots: it registers with the JobMaster, starts and watches one worker
// process per job (the user's binary), relays their messages, reports their resource use and their deaths. It is layer L3. It never runs user code in its
// own process; in the embedded cluster a Launcher runs the worker's code as a goroutine instead.
//
// Main flow: Run looks up the leader (Options.Leader), dials it, registers and serves the link; when the link breaks it looks up
// again, while the workers live on. StartWorker makes a worker: fetch the artifact by content, launch it, wait for its connection on
// the Unix socket and its hello, relay. An exit is reported at once with its cause in words.
//
// Invariants:
//
//  1. A JobMaster with a lower epoch than one served before is refused.
//  2. At most one worker per job; StartWorker for a live one repeats its hello.
//  3. When a JobMaster with a higher epoch takes over, the tasks of the earlier one are cancelled in the workers before anything else
//     reaches them.
//  4. No worker outlives Run: they are in process groups of their own, killed at the end, and die with their parent (Pdeathsig).
//  5. WorkerExited is the last message about a worker's process, after everything that it had sent.
package taskmanager
