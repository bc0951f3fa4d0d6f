package yarn

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	yarnpb "github.com/thalweg/thalweg/yarnrpc/proto/yarn"
)

// AnyHost is the resource name that means any node of the cluster.
const AnyHost = "*"

// Resource is the size of a container or of a node.
type Resource struct {
	MemoryMB int64
	VCores   int32
	Others   Others // "" for none
}

// Others are resources beside memory and vcores, such as yarn.io/gpu, in a form that can be compared: "yarn.io/fpga=0 yarn.io/gpu=2", by name.
type Others string

// OthersOf makes Others of amounts by name.
func OthersOf(amounts map[string]int64) Others {
	var all []string
	for name, n := range amounts {
		all = append(all, name+"="+strconv.FormatInt(n, 10))
	}
	slices.Sort(all)
	return Others(strings.Join(all, " "))
}

// Amounts are the amounts by name; zeros of resources that the cluster knows are among them.
func (o Others) Amounts() map[string]int64 {
	out := map[string]int64{}
	for entry := range strings.FieldsSeq(string(o)) {
		name, n, _ := strings.Cut(entry, "=")
		out[name], _ = strconv.ParseInt(n, 10, 64)
	}
	return out
}

// String is "2048 MiB, 2 vcores", with other resources of which there are some behind that.
func (r Resource) String() string {
	s := fmt.Sprintf("%d MiB, %d vcores", r.MemoryMB, r.VCores)
	for entry := range strings.FieldsSeq(string(r.Others)) {
		if name, n, _ := strings.Cut(entry, "="); n != "0" {
			s += ", " + n + " " + name
		}
	}
	return s
}

// Fits reports whether r is not larger than limit in any resource.
func (r Resource) Fits(limit Resource) bool {
	if r.MemoryMB > limit.MemoryMB || r.VCores > limit.VCores {
		return false
	}
	if r.Others == "" {
		return true
	}
	most := limit.Others.Amounts()
	for name, n := range r.Others.Amounts() {
		if n > most[name] {
			return false
		}
	}
	return true
}

// Proto returns the resource as a message.
func (r Resource) Proto() *yarnpb.ResourceProto {
	p := &yarnpb.ResourceProto{Memory: proto.Int64(r.MemoryMB), VirtualCores: proto.Int32(r.VCores)}
	for entry := range strings.FieldsSeq(string(r.Others)) {
		name, text, _ := strings.Cut(entry, "=")
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			p.ResourceValueMap = append(p.ResourceValueMap, &yarnpb.ResourceInformationProto{Key: proto.String(name), Value: proto.Int64(n)})
		}
	}
	return p
}

// ResourceOf reads a message. Newer daemons repeat memory and vcores in resource_value_map; the plain fields win.
func ResourceOf(p *yarnpb.ResourceProto) Resource {
	r := Resource{MemoryMB: p.GetMemory(), VCores: p.GetVirtualCores()}
	others := map[string]int64{}
	for _, v := range p.GetResourceValueMap() {
		switch {
		case v.GetKey() == "memory-mb":
			if p.Memory == nil {
				r.MemoryMB = v.GetValue()
			}
		case v.GetKey() == "vcores":
			if p.VirtualCores == nil {
				r.VCores = int32(v.GetValue()) //nolint:gosec // counted in int32 by YARN
			}
		default:
			others[v.GetKey()] = v.GetValue()
		}
	}
	r.Others = OthersOf(others)
	return r
}
