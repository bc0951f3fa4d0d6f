// Package allocator is the ledger between the workers that the JobMaster wants and the containers that YARN grants: a pure core
// (layer L5, imports yarnrpc/yarn only) without goroutine, clock or I/O. The shell in package am feeds it events and carries out its effects.
//
// Main flow: Want says how many workers of a size there shall be. Beat is answered by an Allocate effect: what the next allocate call
// carries. Answer brings grants and completions; each grant becomes a Start, or, when it is not needed any more, a release. Started,
// Registered, StartFailed and Tick move a container on; a container that ends is missing from then on, so that the next Beat asks for
// another one by itself.
//
// Invariants:
//
//  1. There is one ledger. A bucket per worker size holds how many are wanted, its containers hold what lives, and what is open at the
//     ResourceManager follows from the two; nothing is counted twice.
//  2. One priority and one allocation-request id per worker size. Grants are matched by these, never by the size that they show (YARN rounds
//     sizes up, and a calculator that looks at memory only changes the vcores).
//  3. Asks are absolute counts. The ResourceManager lowers its own count with each grant, so a grant lowers ours in the same step and is
//     no reason to send anything; an ask travels only when the count that is wanted differs from the count that the ResourceManager has.
//  4. An ask and a grant may cross. Grants in the answer to a call that carried an ask were made before it or after it, which cannot
//     be told apart: the count is unknown then, and said again by the next call. What is granted too much is released at once.
//  5. A release is sent until the container's completion confirms it.
//  6. Only what the worker or its launch did counts as a failed start. Preemption, lost nodes, releases and the ResourceManager's own
//     kills do not.
//  7. Containers of earlier attempts count as living until they register or the recovery time ends, so none is doubled.
//  8. A host where starts fail again and again is left out for a while, never for ever, and never more than half of the cluster: what is granted
//     there nevertheless goes back.
package allocator
