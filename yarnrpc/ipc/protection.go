package ipc

import (
	"bytes"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/thalweg/thalweg/yarnrpc/ipc/digestmd5"
	commonpb "github.com/thalweg/thalweg/yarnrpc/proto/common"
)

// Protection is what guards the messages of a connection, by Hadoop's name.
type Protection string

// The protections. Source: hadoop-common SaslRpcServer.QualityOfProtection.
const (
	ProtectAuthentication Protection = "authentication" // the login alone
	ProtectIntegrity      Protection = "integrity"      // messages cannot be changed
	ProtectPrivacy        Protection = "privacy"        // nor read
)

// ParseProtections reads a value of hadoop.rpc.protection or dfs.data.transfer.protection: a comma-separated list, in
// order of preference. An empty value is authentication.
func ParseProtections(s string) ([]Protection, error) {
	var out []Protection
	for w := range strings.SplitSeq(s, ",") {
		p := Protection(strings.ToLower(strings.TrimSpace(w)))
		switch {
		case p == "" || slices.Contains(out, p):
		case p.QOP() == "":
			return nil, fmt.Errorf("protection %q: want authentication, integrity, privacy, or a list of them", w)
		default:
			out = append(out, p)
		}
	}
	if len(out) == 0 {
		out = []Protection{ProtectAuthentication}
	}
	return out, nil
}

// QOP is the name of p in SASL, empty when there is no such protection.
func (p Protection) QOP() digestmd5.QOP {
	switch p {
	case ProtectAuthentication:
		return digestmd5.QOPAuth
	case ProtectIntegrity:
		return digestmd5.QOPInt
	case ProtectPrivacy:
		return digestmd5.QOPConf
	}
	return ""
}

// ProtectionOf is the protection that SASL calls q; one that Hadoop has no name for keeps its own.
func ProtectionOf(q digestmd5.QOP) Protection {
	for _, p := range []Protection{ProtectAuthentication, ProtectIntegrity, ProtectPrivacy} {
		if p.QOP() == q {
			return p
		}
	}
	return Protection(q)
}

// MismatchedProtection is the error of a server whose protections this side does not accept.
func MismatchedProtection(offered, accepted []Protection) error {
	return fmt.Errorf("%w: the server protects connections by %s, this side accepts %s: set hadoop.rpc.protection as the cluster has it",
		ErrNoMechanism, join(offered), join(accepted))
}

func protectionError(m *digestmd5.MismatchError) error {
	var offered, accepted []Protection
	for _, q := range m.Offered {
		offered = append(offered, ProtectionOf(q))
	}
	for _, q := range m.Accepted {
		accepted = append(accepted, ProtectionOf(q))
	}
	return MismatchedProtection(offered, accepted)
}

func join(ps []Protection) string {
	s := make([]string, len(ps))
	for i, p := range ps {
		s[i] = string(p)
	}
	return strings.Join(s, " or ")
}

// Wrapper protects messages after authentication (SASL integrity or privacy). Wrap and Unwrap may run at the same time
// in two goroutines, each is called by one goroutine only.
type Wrapper interface {
	// Wrap protects one message, of at most Limit bytes. It does not keep plain.
	Wrap(plain []byte) ([]byte, error)
	// Unwrap checks and opens one message. It may work in wrapped, and the result may be a part of it.
	Unwrap(wrapped []byte) ([]byte, error)
	// Limit is the longest message that the peer takes at once, in bytes, as it said during authentication.
	Limit() int
}

// wrappedConn carries the plain stream inside SASL WRAP messages, in both directions.
type wrappedConn struct {
	net.Conn
	w     Wrapper
	limit int // of a message that comes, bytes: servers wrap an answer as a whole, however long
	rest  bytes.Reader
}

// Write sends b in as many wrapped messages as the peer's limit asks for. Callers write whole frames.
func (c *wrappedConn) Write(b []byte) (int, error) {
	for n := 0; n < len(b); {
		part := b[n:min(n+c.w.Limit(), len(b))]
		token, err := c.w.Wrap(part)
		if err != nil {
			return n, err
		}
		frame, err := saslFrame(&commonpb.RpcSaslProto{State: commonpb.RpcSaslProto_WRAP.Enum(), Token: token})
		if err != nil {
			return n, err
		}
		if _, err = c.Conn.Write(frame); err != nil {
			return n, err
		}
		n += len(part)
	}
	return len(b), nil
}

// Read returns bytes of the plain stream.
func (c *wrappedConn) Read(b []byte) (int, error) {
	for c.rest.Len() == 0 {
		frame, err := ReadFrame(c.Conn, c.limit+1<<16)
		if err != nil {
			return 0, err
		}
		head, body, err := ParseResponse(frame)
		if err != nil {
			return 0, err
		}
		m := &commonpb.RpcSaslProto{}
		if head.GetStatus() == commonpb.RpcResponseHeaderProto_SUCCESS && int32(head.GetCallId()) == CallIDSASL { //nolint:gosec // a negative id travels as uint32
			if _, err = ConsumeMessage(body, m); err != nil {
				return 0, err
			}
		}
		if m.State == nil || m.GetState() != commonpb.RpcSaslProto_WRAP { // whoever sent it, it cannot be believed, an error no more than an answer
			return 0, fmt.Errorf("%w: unprotected message on a protected connection", ErrMalformed)
		}
		plain, err := c.w.Unwrap(m.GetToken())
		if err != nil {
			return 0, err
		}
		c.rest.Reset(plain)
	}
	return c.rest.Read(b)
}
