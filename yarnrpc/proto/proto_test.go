package proto_test

import (
	"testing"

	_ "github.com/colinmarc/hdfs/v2" // registers hadoop.common and hadoop.hdfs
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	commonpb "github.com/thalweg/thalweg/yarnrpc/proto/common"
	yarnpb "github.com/thalweg/thalweg/yarnrpc/proto/yarn"
)

// A program that links another Hadoop client starts at all (the registry panics for a name with two owners), and both
// sets of types read the same bytes.
func TestTypesLiveBesideAnotherHadoopClient(t *testing.T) {
	theirs, err := protoregistry.GlobalTypes.FindMessageByName("hadoop.common.TokenProto")
	if err != nil {
		t.Fatal(err)
	}
	b, err := proto.Marshal(&commonpb.TokenProto{
		Identifier: []byte("i"), Password: []byte("p"), Kind: proto.String("K"), Service: proto.String("S"),
	})
	if err != nil {
		t.Fatal(err)
	}
	m := theirs.New().Interface()
	if err := proto.Unmarshal(b, m); err != nil {
		t.Fatal(err)
	}
	f := m.ProtoReflect().Descriptor().Fields().ByName("kind")
	if got := m.ProtoReflect().Get(f).String(); got != "K" {
		t.Errorf("kind %q", got)
	}
}

func TestNamesAreOurs(t *testing.T) {
	for _, m := range []proto.Message{&commonpb.RpcSaslProto{}, &yarnpb.AllocateRequestProto{}} {
		d := m.ProtoReflect().Descriptor()
		if p := d.ParentFile().Package(); p != "thalweg.hadoop.common" && p != "thalweg.hadoop.yarn" {
			t.Errorf("%s is in package %s", d.Name(), p)
		}
	}
	if _, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName("hadoop.yarn.AllocateRequestProto")); err == nil {
		t.Error("Hadoop's own name is taken")
	}
}
