package yarn

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	yarnpb "github.com/thalweg/thalweg/yarnrpc/proto/yarn"
)

// AnyHost is the resource name that means any node of the cluster.
const AnyHost = "*"

// Resource is the size of a container or of a node, in the two resources that every cluster counts.
type Resource struct {
	MemoryMB int64
	VCores   int32
}

// String is "2048 MiB, 2 vcores".
func (r Resource) String() string { return fmt.Sprintf("%d MiB, %d vcores", r.MemoryMB, r.VCores) }

// Fits reports whether r is not larger than limit in any resource.
func (r Resource) Fits(limit Resource) bool {
	return r.MemoryMB <= limit.MemoryMB && r.VCores <= limit.VCores
}

// Proto returns the resource as a message.
func (r Resource) Proto() *yarnpb.ResourceProto {
	return &yarnpb.ResourceProto{Memory: proto.Int64(r.MemoryMB), VirtualCores: proto.Int32(r.VCores)}
}

// ResourceOf reads a message. Newer daemons repeat memory and vcores in resource_value_map; the plain fields win.
func ResourceOf(p *yarnpb.ResourceProto) Resource {
	r := Resource{MemoryMB: p.GetMemory(), VCores: p.GetVirtualCores()}
	for _, v := range p.GetResourceValueMap() {
		switch {
		case v.GetKey() == "memory-mb" && p.Memory == nil:
			r.MemoryMB = v.GetValue()
		case v.GetKey() == "vcores" && p.VirtualCores == nil:
			r.VCores = int32(v.GetValue()) //nolint:gosec // counted in int32 by YARN
		}
	}
	return r
}
