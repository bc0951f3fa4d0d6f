// Package hdfspb holds the protobuf schemas that fs/hdfs speaks. Layer L1; it imports yarnrpc/proto only.
package hdfspb

//go:generate sh -c "cd ../../.. && protoc -I . --go_out=. --go_opt=module=github.com/thalweg/thalweg fs/hdfs/hdfspb/hdfs.proto"
