// Package remote carries links of the control plane between machines, over gRPC: those of TaskManagers to the JobMaster, and the blobs that
// it serves. It is layer L2 (imports runtime/rpc only). It is apart from rpc because a job's binary needs no gRPC: its processes talk to their
// TaskManager over a Unix socket, and gRPC's packages take a third of the time that linking a test takes.
//
// Half-open peers: the server pings a silent connection every five seconds and gives up after another five; the client does the same at
// gRPC's least interval. The heartbeats of the protocol itself find a peer that is alive but stuck.
package remote
