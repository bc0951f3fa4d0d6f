// Package rpc is the control plane's transport: ordered bidirectional streams of protobuf messages between a TaskManager and the
// JobMaster, between a worker and its TaskManager, and between the coordinator process and the JobMaster. It is layer L2 (imports
// runtime/rpc/pb only). Everything above talks to a Link and does not know what carries it: gRPC between machines (package remote), a Unix
// socket between the processes of a container, memory inside of one process.
//
// Main flow: the lower process dials (DialSocket, remote.Dial), opens a Link, and both ends Send and Recv until one of them
// closes; the other end receives what was sent before the close, then an error. Pipe makes a Link inside of one process.
//
// Invariants:
//
//  1. Messages of one direction arrive in the order of their Send calls, without gaps; after the first loss the link is over.
//  2. Send never blocks. Its queue is bounded (MaxQueued messages); a peer that does not keep up breaks its own link (ErrSlow), so that
//     an event loop is never held up by one of its peers. Relays that should slow their source down use SendWait.
//  3. A received message belongs to the receiver, a sent one is not touched again by the sender: Pipe passes pointers.
//  4. Done is closed when the link's goroutines have ended: an owner that waits for Done leaks nothing.
package rpc
