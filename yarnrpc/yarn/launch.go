package yarn

import (
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	yarnpb "github.com/thalweg/thalweg/yarnrpc/proto/yarn"
)

// Ask is a request for count more containers of one size anywhere in the cluster. The count is absolute: it replaces what
// was asked before under the same priority and allocation request id, and 0 takes the request back.
//
// YARN accepts one size per priority and allocation request id.
func Ask(priority int32, allocationRequestID int64, size Resource, count int32) *yarnpb.ResourceRequestProto {
	return &yarnpb.ResourceRequestProto{
		Priority:            &yarnpb.PriorityProto{Priority: proto.Int32(priority)},
		ResourceName:        proto.String(AnyHost),
		Capability:          size.Proto(),
		NumContainers:       proto.Int32(count),
		RelaxLocality:       proto.Bool(true),
		AllocationRequestId: proto.Int64(allocationRequestID),
		ExecutionTypeRequest: &yarnpb.ExecutionTypeRequestProto{
			ExecutionType: yarnpb.ExecutionTypeProto_GUARANTEED.Enum(), EnforceExecutionType: proto.Bool(false),
		},
	}
}

// LaunchContext makes a container's launch context. command is run by bash on the node, with <LOG_DIR> replaced by the
// container's log folder and {{NAME}} by environment variables. tokens are the bytes of a credentials file, or nil.
func LaunchContext(command []string, environment map[string]string, resources map[string]*yarnpb.LocalResourceProto, tokens []byte) *yarnpb.ContainerLaunchContextProto {
	c := &yarnpb.ContainerLaunchContextProto{Command: command, Tokens: tokens}
	for _, k := range slices.Sorted(maps.Keys(environment)) {
		c.Environment = append(c.Environment, &yarnpb.StringStringMapProto{Key: proto.String(k), Value: proto.String(environment[k])})
	}
	for _, k := range slices.Sorted(maps.Keys(resources)) {
		c.LocalResources = append(c.LocalResources, &yarnpb.StringLocalResourceMapProto{Key: proto.String(k), Value: resources[k]})
	}
	return c
}

// LocalResource describes a file for a container's launch context: where it is, and the size and time that it must have.
// size is in bytes, modified in milliseconds since 1970, as the file system reports them.
func LocalResource(scheme, host string, port int32, file string, size, modified int64, kind yarnpb.LocalResourceTypeProto, visibility yarnpb.LocalResourceVisibilityProto) *yarnpb.LocalResourceProto {
	u := &yarnpb.URLProto{Scheme: proto.String(scheme), File: proto.String(file), Port: proto.Int32(port)}
	if host != "" {
		u.Host = proto.String(host)
	}
	return &yarnpb.LocalResourceProto{
		Resource: u, Size: proto.Int64(size), Timestamp: proto.Int64(modified), Type: kind.Enum(), Visibility: visibility.Enum(),
	}
}
