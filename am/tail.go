package am

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/thalweg/thalweg/am/container"
	yarnpb "github.com/thalweg/thalweg/yarnrpc/proto/yarn"
	"github.com/thalweg/thalweg/yarnrpc/yarn"
)

// tailBytes is how much of an error file is asked for.
const tailBytes = 2 << 10

// nodeTail asks a container's NodeManager for the end of its taskmanager.err. "" when the node does not tell (it wants Kerberos on its
// pages, or is gone).
//
// Source: NodeManager REST API, /ws/v1/node/containers/{id}/logs/{file}, Hadoop 3.4 (a negative size counts from the end).
func nodeTail(ctx context.Context, p *yarnpb.ContainerProto) string {
	u := url.URL{
		Scheme: "http", Host: p.GetNodeHttpAddress(), Path: "/ws/v1/node/containers/" + yarn.ContainerIDOf(p.GetId()).String() + "/logs/" + container.TaskManagerLog + ".err",
		RawQuery: fmt.Sprintf("size=-%d&format=text", tailBytes),
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return ""
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return ""
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	if resp.StatusCode != http.StatusOK {
		return ""
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, 2*tailBytes))
	if err != nil {
		return ""
	}
	return logBody(string(b))
}

// logBody takes the file's content out of the frame that the NodeManager puts around it.
func logBody(s string) string {
	if _, rest, ok := strings.Cut(s, "LogContents:"); ok {
		s = rest
	}
	s, _, _ = strings.Cut(s, "End of LogType:")
	return strings.TrimSpace(s)
}
