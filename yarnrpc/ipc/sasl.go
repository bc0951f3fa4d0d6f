package ipc

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/thalweg/thalweg/yarnrpc/ipc/digestmd5"
	commonpb "github.com/thalweg/thalweg/yarnrpc/proto/common"
)

// Method is an authentication method by Hadoop's name.
type Method string

// The methods of Hadoop 3. Source: hadoop-common SaslRpcServer.AuthMethod.
const (
	MethodSimple   Method = "SIMPLE"
	MethodToken    Method = "TOKEN"
	MethodKerberos Method = "KERBEROS"
)

// Offer is one way to authenticate that a server names in its NEGOTIATE answer.
type Offer struct {
	Method    Method
	Mechanism string // SASL mechanism, "DIGEST-MD5", "GSSAPI"; empty for SIMPLE
	Protocol  string // service part of the server's principal; empty for TOKEN
	ServerID  string // host part of the principal, or the digest realm
	Challenge []byte // first challenge, nil when the mechanism lets the client begin
	Addr      string // host:port of the server as it was dialed; the client's own knowledge, no part of the offer
}

// Mechanism starts authentications of one method. Implementations are safe for concurrent use: a client begins a new
// session for each connection. TokenAuth is one; Kerberos plugs in here.
type Mechanism interface {
	// Accepts reports whether this mechanism can serve the offer, by method and SASL mechanism.
	Accepts(offer Offer) bool
	// Begin starts an exchange for one connection. It may ask others (a KDC) as long as ctx lasts.
	Begin(ctx context.Context, offer Offer) (Session, error)
}

// Session is one SASL exchange, used by one goroutine.
type Session interface {
	// Step takes the server's message (nil at the start when the offer had no challenge) and returns the answer. done
	// is true when this side is satisfied; an exchange that the server calls successful before that is refused.
	Step(in []byte) (out []byte, done bool, err error)
	// Wrapper returns the negotiated protection of messages, or nil for authentication only. Valid after done.
	Wrapper() Wrapper
}

// TokenAuth authenticates with a Hadoop token by DIGEST-MD5. Credential is asked for each connection, so that a token
// that was replaced (an AMRM token rolled by the ResourceManager) is used from the next connection on.
type TokenAuth struct {
	// Credential returns identifier and password. Ownership of the slices stays with the callee.
	Credential func() (identifier, password []byte, err error)
	// Protections that will do, in order of preference; authentication alone by default.
	Protections []Protection
}

// Accepts is true for TOKEN by DIGEST-MD5.
func (TokenAuth) Accepts(o Offer) bool {
	return o.Method == MethodToken && o.Mechanism == digestmd5.Mechanism
}

// Begin starts the exchange. User name and password of the digest are the base64 forms of identifier and password, the
// digest URI is "protocol/serverId" of the offer. Source: hadoop-common SaslRpcClient.SaslClientCallbackHandler.
func (t TokenAuth) Begin(_ context.Context, o Offer) (Session, error) {
	id, password, err := t.Credential()
	if err != nil {
		return nil, err
	}
	var accept []digestmd5.QOP
	for _, p := range t.Protections {
		accept = append(accept, p.QOP())
	}
	enc := base64.StdEncoding
	return digestSession{digestmd5.NewClient(enc.EncodeToString(id), []byte(enc.EncodeToString(password)), o.Protocol+"/"+o.ServerID, accept...)}, nil
}

type digestSession struct{ *digestmd5.Client }

func (s digestSession) Step(in []byte) (out []byte, done bool, err error) {
	out, done, err = s.Client.Step(in)
	var mismatch *digestmd5.MismatchError
	if errors.As(err, &mismatch) {
		err = protectionError(mismatch)
	}
	return out, done, err
}

func (s digestSession) Wrapper() Wrapper {
	if l := s.Client.Wrapper(); l != nil {
		return l
	}
	return nil
}

// Login is the outcome of Authenticate.
type Login struct {
	Method Method
	// Protected is true when messages are wrapped (integrity or privacy).
	Protected bool
}

// Authenticate sends the connection header on a fresh connection and runs the SASL exchange when there are mechanisms.
// Without mechanisms it announces no authentication, which only servers with SIMPLE accept, and reads nothing: a
// refusal comes as the answer to the first call.
//
// The returned connection is nc, or nc with protection of messages around it: what is written becomes one wrapped
// message, what is read is the unwrapped stream. addr is the server's host:port as it was dialed. ctx bounds what mechanisms
// ask of others; the caller sets deadlines on nc, and closes it on error.
//
// Errors: *RemoteError (refused by the server), ErrNoMechanism, ErrMalformed, those of the mechanism and of nc.
// Source: hadoop-common SaslRpcClient.saslConnect.
func Authenticate(ctx context.Context, nc net.Conn, addr string, mechanisms []Mechanism, allowSimple bool) (net.Conn, Login, error) {
	if len(mechanisms) == 0 {
		_, err := nc.Write(ConnectionHeader(AuthNone))
		return nc, Login{Method: MethodSimple}, err
	}
	hello, err := saslFrame(&commonpb.RpcSaslProto{State: commonpb.RpcSaslProto_NEGOTIATE.Enum()})
	if err != nil {
		return nil, Login{}, err
	}
	if _, err = nc.Write(append(ConnectionHeader(AuthSASL), hello...)); err != nil {
		return nil, Login{}, err
	}
	var (
		session Session
		done    bool
		login   = Login{Method: MethodSimple}
	)
	for rounds := 0; rounds < 16; rounds++ {
		msg, err := readSASL(nc)
		if err != nil {
			return nil, Login{}, err
		}
		reply := &commonpb.RpcSaslProto{}
		switch msg.GetState() {
		case commonpb.RpcSaslProto_NEGOTIATE:
			if session != nil {
				return nil, Login{}, fmt.Errorf("%w: second SASL negotiation", ErrMalformed)
			}
			offer, mech, err := choose(msg.GetAuths(), addr, mechanisms, allowSimple)
			if err != nil {
				return nil, Login{}, err
			}
			login.Method = offer.Method
			reply.State = commonpb.RpcSaslProto_INITIATE.Enum()
			reply.Auths = []*commonpb.RpcSaslProto_SaslAuth{{
				Method: proto.String(string(offer.Method)), Mechanism: proto.String(offer.Mechanism),
				Protocol: proto.String(offer.Protocol), ServerId: proto.String(offer.ServerID),
			}}
			if mech == nil { // SIMPLE: the server does not answer
				frame, err := saslFrame(reply)
				if err == nil {
					_, err = nc.Write(frame)
				}
				return nc, login, err
			}
			if session, err = mech.Begin(ctx, offer); err != nil {
				return nil, Login{}, err
			}
			if reply.Token, done, err = session.Step(offer.Challenge); err != nil {
				return nil, Login{}, err
			}
		case commonpb.RpcSaslProto_CHALLENGE:
			if session == nil {
				return nil, Login{}, fmt.Errorf("%w: SASL challenge before negotiation", ErrMalformed)
			}
			if reply.Token, done, err = session.Step(msg.GetToken()); err != nil {
				return nil, Login{}, err
			}
			reply.State = commonpb.RpcSaslProto_RESPONSE.Enum()
			if reply.Token == nil {
				reply.Token = []byte{} // Hadoop refuses an answer without one
			}
		case commonpb.RpcSaslProto_SUCCESS:
			return finish(nc, session, done, msg.GetToken(), login, allowSimple)
		default:
			return nil, Login{}, fmt.Errorf("%w: SASL state %s", ErrMalformed, msg.GetState())
		}
		frame, err := saslFrame(reply)
		if err != nil {
			return nil, Login{}, err
		}
		if _, err = nc.Write(frame); err != nil {
			return nil, Login{}, err
		}
	}
	return nil, Login{}, fmt.Errorf("%w: SASL exchange does not end", ErrMalformed)
}

func finish(nc net.Conn, s Session, done bool, token []byte, login Login, allowSimple bool) (net.Conn, Login, error) {
	if s == nil { // the server does without: it is not secure
		if !allowSimple {
			return nil, Login{}, fmt.Errorf("%w: the server asks for no authentication, which is not allowed here", ErrNoMechanism)
		}
		return nc, Login{Method: MethodSimple}, nil
	}
	if token != nil && !done {
		var out []byte
		var err error
		if out, done, err = s.Step(token); err != nil {
			return nil, Login{}, err
		}
		if len(out) > 0 {
			done = false
		}
	}
	if !done {
		return nil, Login{}, fmt.Errorf("%w: the server did not prove itself", ErrMalformed)
	}
	w := s.Wrapper()
	if w == nil {
		return nc, login, nil
	}
	login.Protected = true
	return &wrappedConn{Conn: nc, w: w, limit: DefaultMaxMessage}, login, nil
}

// choose takes the first of the server's offers that we can serve, as Hadoop's client does.
func choose(auths []*commonpb.RpcSaslProto_SaslAuth, addr string, mechanisms []Mechanism, allowSimple bool) (Offer, Mechanism, error) {
	var names []string
	for _, a := range auths {
		o := Offer{
			Method: Method(a.GetMethod()), Mechanism: a.GetMechanism(), Protocol: a.GetProtocol(), ServerID: a.GetServerId(),
			Challenge: a.Challenge, Addr: addr,
		}
		for _, m := range mechanisms {
			if m.Accepts(o) {
				return o, m, nil
			}
		}
		if o.Method == MethodSimple && allowSimple {
			return o, nil, nil
		}
		names = append(names, a.GetMethod())
	}
	return Offer{}, nil, fmt.Errorf("%w: the server offers [%s]", ErrNoMechanism, strings.Join(names, " "))
}

func saslFrame(m *commonpb.RpcSaslProto) ([]byte, error) {
	return EncodeFrame(requestHeader(CallIDSASL, []byte{}, -1), m)
}

// readSASL reads one message of the exchange; a refusal by the server is a *RemoteError.
func readSASL(r io.Reader) (*commonpb.RpcSaslProto, error) {
	frame, err := ReadFrame(r, 1<<20)
	if err != nil {
		return nil, noEOF(err)
	}
	head, rest, err := ParseResponse(frame)
	if err != nil {
		return nil, err
	}
	if head.GetStatus() != commonpb.RpcResponseHeaderProto_SUCCESS {
		return nil, remoteError(head, "")
	}
	if int32(head.GetCallId()) != CallIDSASL { //nolint:gosec // a negative id travels as uint32
		return nil, fmt.Errorf("%w: call id %d during authentication", ErrMalformed, int32(head.GetCallId())) //nolint:gosec // same
	}
	m := &commonpb.RpcSaslProto{}
	_, err = ConsumeMessage(rest, m)
	return m, err
}

// ParseResponse splits a frame into the response header and the rest, which holds the answer after a success.
//
// Errors: ErrMalformed.
func ParseResponse(frame []byte) (*commonpb.RpcResponseHeaderProto, []byte, error) {
	head := &commonpb.RpcResponseHeaderProto{}
	rest, err := ConsumeMessage(frame, head)
	return head, rest, err
}

func remoteError(h *commonpb.RpcResponseHeaderProto, method string) error {
	return NewRemoteError(h.GetExceptionClassName(), h.GetErrorMsg(), method, errorDetail(h),
		h.GetStatus() == commonpb.RpcResponseHeaderProto_FATAL)
}

func errorDetail(h *commonpb.RpcResponseHeaderProto) commonpb.RpcResponseHeaderProto_RpcErrorCodeProto {
	if h.ErrorDetail == nil {
		return 0
	}
	return *h.ErrorDetail
}
