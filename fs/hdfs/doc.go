// Package hdfs is the file system hdfs://, over Hadoop's own protocols. Layer L1; it imports fs, yarnrpc/{ipc,conf,token} and
// yarnrpc/proto.
//
// Calls to the NameNode (ClientProtocol) share one multiplexed connection per FileSystem (yarnrpc/ipc), so uploads in parallel do not
// queue. Block data goes straight to DataNodes (data transfer protocol, version 28), one connection per open block.
//
// The life of a written file: create (under a temporary name when it may replace another one), addBlock, packets of 64 KiB with
// checksums to the first DataNode of the pipeline while acknowledgements are read beside it, an empty last packet, complete until the
// NameNode says that the block is there, and rename for the temporary name. Nothing is appended to, and a file whose Close returned nil
// is complete and visible.
//
// Invariants:
//
//  1. All attempts of one NameNode call carry one call id, so the NameNode's retry cache answers a repeated create, rename or complete
//     whose first answer was lost as it answered the first.
//  2. What the NameNode says will pass is waited out: safe mode, standby, a block that is not reported yet, a lease in recovery, no live
//     DataNode. The wait ends with the caller's deadline, without one after Config.RetryTimeout, and is then fs.ErrUnavailable with the
//     NameNode's own words.
//  3. A DataNode lost while it is written to is repaired without the caller: the block goes on with the nodes of the pipeline that are
//     left; without any, up to 4 MiB of it are kept and written to other nodes. Only when the last replica of a larger block is lost
//     does the write fail, and the caller writes the file again.
//  4. Each byte read has passed its checksum. A bad or dead replica is left for another one.
//  5. Connections to DataNodes are protected as the cluster wants it (package sasl): with the block's token at a level of
//     Config.DataProtection, or with a key of the NameNode's where dfs.encrypt.data.transfer is on. Tokens and keys that have ended are
//     asked for again.
//  6. No goroutine outlives an open file but the one that renews leases, which ends with the last open file and with Close.
package hdfs
