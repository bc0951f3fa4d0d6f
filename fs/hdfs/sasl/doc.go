// Package sasl protects connections to DataNodes: the SASL handshake that comes before an operation of the data transfer protocol on
// a secured cluster, and the streams that follow it. Layer L1; it imports fs/hdfs/hdfspb, yarnrpc/ipc
// with its digestmd5, and yarnrpc/proto/common.
//
//	client: uint32 0xDEADBEEF | message (empty payload)
//	server: message (DIGEST-MD5 challenge)
//	client: message (answer, and AES/CTR as an option when privacy was chosen)
//	server: message (proof, and keys for AES/CTR when it takes the option)
//
// Each message is a DataTransferEncryptorMessageProto after its length as a varint. What follows depends on the level: at authentication
// the plain stream; at integrity, and at privacy without AES, messages of DIGEST-MD5, each after its length as a uint32; with AES the
// stream encrypted in counter mode.
//
// Invariants:
//
//  1. The level is the client's first that the server offers. Nothing is sent over a connection that is protected less than that.
//  2. The server has proved that it knows the secret before Client returns.
//  3. Secrets are neither in errors nor in logs.
//
// Source: hadoop-hdfs-client 3.4.2 SaslDataTransferClient, DataTransferSaslUtil, SaslParticipant; hadoop-common SaslInputStream.
package sasl
