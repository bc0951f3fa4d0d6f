// Package yarn holds what the three YARN protocols share: ids with Hadoop's text forms, resources, token identifiers,
// protocol names and exception classes. Layer L1; imports yarnrpc/{ipc,token,proto}.
//
// The messages themselves are the generated types of yarnrpc/proto/yarn; this package adds the small types that callers
// use as map keys, print and parse.
//
// A trap of the generated types: the getter of an unset enumeration gives its first value, which for proto2 is not zero
// and looks like an answer (AllocateResponseProto.GetAMCommand gives AM_RESYNC, GetYarnApplicationState gives NEW). Look at
// the field for nil where it may be unset.
package yarn

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	yarnpb "github.com/thalweg/thalweg/yarnrpc/proto/yarn"
)

// ErrMalformed is wrapped by errors about text or bytes that are not an id.
var ErrMalformed = errors.New("malformed")

// ApplicationID names an application. Comparable; the zero value is no application.
type ApplicationID struct {
	ClusterTimestamp int64 // start of the ResourceManager, milliseconds since 1970
	ID               int32
}

// AttemptID names one run of an ApplicationMaster; Attempt counts from 1.
type AttemptID struct {
	App     ApplicationID
	Attempt int32
}

// ContainerID names a container. The upper bits of ID hold the ResourceManager's epoch, which counts its restarts.
type ContainerID struct {
	Attempt AttemptID
	ID      int64
}

// containerBits is how many bits of ContainerID.ID count containers. Source: hadoop-yarn-api ContainerId.CONTAINER_ID_BITMASK.
const containerBits = 40

// NodeID names a NodeManager by host and port of its container manager.
type NodeID struct {
	Host string
	Port int32
}

// IsZero reports whether the id is unset.
func (a ApplicationID) IsZero() bool { return a == ApplicationID{} }

// String is "application_<timestamp>_<number with at least 4 digits>".
func (a ApplicationID) String() string {
	return fmt.Sprintf("application_%d_%04d", a.ClusterTimestamp, a.ID)
}

// Proto returns the id as a message.
func (a ApplicationID) Proto() *yarnpb.ApplicationIdProto {
	return &yarnpb.ApplicationIdProto{Id: proto.Int32(a.ID), ClusterTimestamp: proto.Int64(a.ClusterTimestamp)}
}

// ApplicationIDOf reads a message; nil is the zero id.
func ApplicationIDOf(p *yarnpb.ApplicationIdProto) ApplicationID {
	return ApplicationID{ClusterTimestamp: p.GetClusterTimestamp(), ID: p.GetId()}
}

// String is "appattempt_<timestamp>_<application, 4 digits>_<attempt, 6 digits>".
func (a AttemptID) String() string {
	return fmt.Sprintf("appattempt_%d_%04d_%06d", a.App.ClusterTimestamp, a.App.ID, a.Attempt)
}

// Proto returns the id as a message.
func (a AttemptID) Proto() *yarnpb.ApplicationAttemptIdProto {
	return &yarnpb.ApplicationAttemptIdProto{ApplicationId: a.App.Proto(), AttemptId: proto.Int32(a.Attempt)}
}

// AttemptIDOf reads a message; nil is the zero id.
func AttemptIDOf(p *yarnpb.ApplicationAttemptIdProto) AttemptID {
	return AttemptID{App: ApplicationIDOf(p.GetApplicationId()), Attempt: p.GetAttemptId()}
}

// Epoch counts the ResourceManager's restarts before the container was granted.
func (c ContainerID) Epoch() int64 { return c.ID >> containerBits }

// Sequence is the container's number within its attempt and epoch.
func (c ContainerID) Sequence() int64 { return c.ID & (1<<containerBits - 1) }

// String is "container_[e<epoch>_]<timestamp>_<application>_<attempt, 2 digits>_<number, 6 digits>".
func (c ContainerID) String() string {
	epoch := ""
	if e := c.Epoch(); e > 0 {
		epoch = fmt.Sprintf("e%02d_", e)
	}
	a := c.Attempt
	return fmt.Sprintf("container_%s%d_%04d_%02d_%06d", epoch, a.App.ClusterTimestamp, a.App.ID, a.Attempt, c.Sequence())
}

// Proto returns the id as a message.
func (c ContainerID) Proto() *yarnpb.ContainerIdProto {
	return &yarnpb.ContainerIdProto{AppAttemptId: c.Attempt.Proto(), Id: proto.Int64(c.ID)}
}

// ContainerIDOf reads a message; nil is the zero id.
func ContainerIDOf(p *yarnpb.ContainerIdProto) ContainerID {
	return ContainerID{Attempt: AttemptIDOf(p.GetAppAttemptId()), ID: p.GetId()}
}

// String is "host:port".
func (n NodeID) String() string { return n.Host + ":" + strconv.Itoa(int(n.Port)) }

// Proto returns the id as a message.
func (n NodeID) Proto() *yarnpb.NodeIdProto {
	return &yarnpb.NodeIdProto{Host: proto.String(n.Host), Port: proto.Int32(n.Port)}
}

// NodeIDOf reads a message; nil is the zero id.
func NodeIDOf(p *yarnpb.NodeIdProto) NodeID { return NodeID{Host: p.GetHost(), Port: p.GetPort()} }

// ParseApplicationID reads "application_1700000000000_0001".
//
// Errors: ErrMalformed.
func ParseApplicationID(s string) (ApplicationID, error) {
	n, err := numbers(s, "application", 2)
	if err != nil || n[1] > 1<<31-1 {
		return ApplicationID{}, fmt.Errorf("yarn: application id %q: %w, want application_<timestamp>_<number>", s, ErrMalformed)
	}
	return ApplicationID{n[0], int32(n[1])}, nil //nolint:gosec // checked
}

// ParseAttemptID reads "appattempt_1700000000000_0001_000001".
//
// Errors: ErrMalformed.
func ParseAttemptID(s string) (AttemptID, error) {
	n, err := numbers(s, "appattempt", 3)
	if err != nil || n[1] > 1<<31-1 || n[2] > 1<<31-1 {
		return AttemptID{}, fmt.Errorf("yarn: attempt id %q: %w, want appattempt_<timestamp>_<number>_<attempt>", s, ErrMalformed)
	}
	return AttemptID{ApplicationID{n[0], int32(n[1])}, int32(n[2])}, nil //nolint:gosec // checked
}

// ParseContainerID reads "container_1700000000000_0001_01_000001" and, from a ResourceManager that was restarted,
// "container_e02_1700000000000_0001_01_000001". YARN gives a container its own in the environment variable CONTAINER_ID.
//
// Errors: ErrMalformed.
func ParseContainerID(s string) (ContainerID, error) {
	bad := fmt.Errorf("yarn: container id %q: %w, want container_[e<epoch>_]<timestamp>_<number>_<attempt>_<number>", s, ErrMalformed)
	rest, epoch := s, int64(0)
	if after, ok := strings.CutPrefix(s, "container_e"); ok {
		e, tail, ok := strings.Cut(after, "_")
		v, err := number(e)
		if !ok || err != nil || v >= 1<<(63-containerBits) {
			return ContainerID{}, bad
		}
		rest, epoch = "container_"+tail, v
	}
	n, err := numbers(rest, "container", 4)
	if err != nil || n[1] > 1<<31-1 || n[2] > 1<<31-1 || n[3] >= 1<<containerBits {
		return ContainerID{}, bad
	}
	return ContainerID{AttemptID{ApplicationID{n[0], int32(n[1])}, int32(n[2])}, epoch<<containerBits | n[3]}, nil //nolint:gosec // checked
}

// ParseNodeID reads "host:port".
//
// Errors: ErrMalformed.
func ParseNodeID(s string) (NodeID, error) {
	i := strings.LastIndexByte(s, ':')
	if i > 0 {
		if p, err := number(s[i+1:]); err == nil && p <= 65535 {
			return NodeID{s[:i], int32(p)}, nil //nolint:gosec // checked
		}
	}
	return NodeID{}, fmt.Errorf("yarn: node id %q: %w, want host:port", s, ErrMalformed)
}

func numbers(s, prefix string, want int) ([]int64, error) {
	parts := strings.Split(s, "_")
	if len(parts) != want+1 || parts[0] != prefix {
		return nil, ErrMalformed
	}
	out := make([]int64, want)
	for i, p := range parts[1:] {
		v, err := number(p)
		if err != nil {
			return nil, err
		}
		out[i] = v
	}
	return out, nil
}

func number(s string) (int64, error) {
	if s == "" || s[0] < '0' || s[0] > '9' {
		return 0, ErrMalformed
	}
	return strconv.ParseInt(s, 10, 64)
}
