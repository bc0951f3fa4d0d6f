// Package ipc is a client of Hadoop's IPC, version 9, over protobuf (the engine that HDFS and YARN use). Layer L1; it
// imports only the schemas in yarnrpc/proto.
//
// Main flow of a call: Client.Call takes the shared connection or opens one (dial, connection header, SASL exchange by
// Authenticate, IpcConnectionContext), puts the request with a call id of its own on the connection's writer, and waits
// for the reader to deliver the answer with that id. Calls are answered in any order.
//
// Invariants:
//  1. One connection carries all concurrent calls of a client; no lock is held over I/O.
//  2. Every wait ends: by the answer, the end of the connection, the time of one attempt, the caller's context, or Close.
//  3. A connection's goroutines end with its socket; Client.Close waits for them.
//  4. A request whose bytes were not handed to the system is sent again on a new connection without the caller noticing;
//     one that may have reached the server is reported (ConnError.Sent) and repeated by policy only (Retry, Classify).
//  5. Credentials are asked for at each connection and never logged.
//
// Entry points: NewClient, Client.CallRetry, Classify, Authenticate (for other clients that need the login alone).
// The server half for fakes is ipcserver. Byte tables are at ConnectionHeader and EncodeFrame.
package ipc
