// Package network moves encoded elements between tasks: the exchange of the data plane. It is layer L2 and carries no promise of
// compatibility.
//
// A task writes into a Partition, which has one Channel per consumer (a subpartition). A consumer task reads a Gate, which has one input
// channel per Source. An Environment (one per worker process) joins them: within the process a buffer is handed over as it is, between
// processes it travels over one TCP connection per (consumer worker, producer worker) pair, which the consumer dials and which all
// channels of the pair share.
//
// # Life of a buffer
//
//	task: Channel.Buf, append elements, Channel.Put
//	  -> Channel queue (bounded; Put blocks here: that is backpressure)
//	     -> local:  Gate.Poll takes it from the queue
//	     -> remote: serverConn.writeLoop takes it when the channel has credit, writev
//	                -> clientConn.readLoop -> queue of the input channel -> Gate.Poll
//	task: decodes, Gate.Release: the credit goes back, the memory too where SetRecycle(true)
//
// A blocking partition (NewBlockingPartition) is written to a file as a whole before anybody reads it; its consumers have channels of
// their own, so that it can be read again. It is the exchange of BATCH.
//
// # Invariants
//
//  1. A buffer holds whole elements, never a part of one.
//  2. The order of buffers and events of one channel is kept; nothing is lost or doubled unless the channel fails.
//  3. A producer never has more data buffers under way than the consumer granted credit for, so the receiver always takes what arrives:
//     no channel can hold up another one of the same connection. Events need no credit: they are few and small.
//  4. If a channel's queue is not empty, its reader has been told (readable) or is at this moment taking from it.
//  5. A failure is sticky and wakes both sides; it is a *ConnectionError unless the caller's own context ended.
//  6. Every goroutine belongs to the Environment, whose Close waits for all of them. Partitions and gates have none.
//
// # Locks
//
// Order where several are held: Environment.mu, then Channel.mu or clientConn.mu, then Gate.mu or serverConn.mu. No lock is held over
// I/O, and a gate's notify is called without any.
package network
