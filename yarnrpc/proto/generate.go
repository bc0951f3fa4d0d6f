// Package proto holds the protobuf schemas of the Hadoop protocols that Thalweg speaks: common (IPC headers, tokens)
// and yarn (the three YARN protocols). Layer L1; imports nothing of ours.
//
// The schemas are our own files with Hadoop's field numbers, types and defaults. Their proto packages are
// thalweg.hadoop.common and thalweg.hadoop.yarn and not Hadoop's: the wire does not carry names, and other Hadoop
// clients in the same process register Hadoop's names in protobuf's global registry, where a second owner panics.
package proto

//go:generate sh -c "cd ../.. && protoc -I . --go_out=. --go_opt=module=github.com/thalweg/thalweg yarnrpc/proto/common/*.proto yarnrpc/proto/yarn/*.proto"
