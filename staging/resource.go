package staging

import (
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/thalweg/thalweg/fs"
	yarnpb "github.com/thalweg/thalweg/yarnrpc/proto/yarn"
)

// Resource is the descriptor by which YARN localises the artifact. PUBLIC where that is possible, PRIVATE else.
//
// Errors: a URI that is none.
func (a Artifact) Resource() (*yarnpb.LocalResourceProto, error) {
	v := yarnpb.LocalResourceVisibilityProto_PRIVATE
	if a.Public {
		v = yarnpb.LocalResourceVisibilityProto_PUBLIC
	}
	u, err := yarnURL(a.URI)
	if err != nil {
		return nil, err
	}
	kind := yarnpb.LocalResourceTypeProto_FILE
	if a.Archive {
		kind = yarnpb.LocalResourceTypeProto_ARCHIVE
	}
	return &yarnpb.LocalResourceProto{
		Resource: u, Size: proto.Int64(a.Size), Timestamp: proto.Int64(a.ModTime.UnixMilli()),
		Type: kind.Enum(), Visibility: v.Enum(),
	}, nil
}

func yarnURL(uri string) (*yarnpb.URLProto, error) {
	u, err := fs.Parse(uri)
	if err != nil || u.Scheme == "" || u.Path == "" || strings.HasPrefix(uri, "/") {
		return nil, fmt.Errorf("staging: %q is not the URI of a file", uri)
	}
	out := &yarnpb.URLProto{Scheme: proto.String(u.Scheme), File: proto.String(u.Path)}
	if u.Hostname() != "" {
		out.Host = proto.String(u.Hostname())
	}
	port := -1 // none: a nameservice, or the scheme's default
	if u.Port() != "" {
		if port, err = strconv.Atoi(u.Port()); err != nil {
			return nil, fmt.Errorf("staging: %q: bad port", uri)
		}
	}
	out.Port = proto.Int32(int32(port)) //nolint:gosec // a port
	return out, nil
}
