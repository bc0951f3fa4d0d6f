package ipcserver

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"

	"google.golang.org/protobuf/proto"

	"github.com/thalweg/thalweg/yarnrpc/ipc"
	"github.com/thalweg/thalweg/yarnrpc/ipc/digestmd5"
	commonpb "github.com/thalweg/thalweg/yarnrpc/proto/common"
)

// saslRealm is Hadoop's realm and server id for tokens.
const saslRealm = "default"

// Mechanism is a way to log in.
type Mechanism interface {
	// Begin prepares an exchange for one connection, and says how it is offered.
	Begin() (ipc.Offer, Session)
}

// Session is the server's side of one exchange, used by one goroutine.
type Session interface {
	// Step takes the client's message and returns the answer; done is true when the client is logged in.
	Step(in []byte) (out []byte, done bool, err error)
	// User is who logged in. Valid after done.
	User() string
	// Wrapper protects the messages that follow, or is nil. Valid after done.
	Wrapper() ipc.Wrapper
}

type offered struct {
	ipc.Offer
	Session
}

// tokenSession is DIGEST-MD5 with the passwords of Config.
type tokenSession struct {
	*digestmd5.Server
	password   func(identifier []byte) ([]byte, error)
	identifier []byte
}

func (c *session) tokens() offered {
	var qops []digestmd5.QOP
	for _, p := range c.s.cfg.Protections {
		qops = append(qops, p.QOP())
	}
	t := &tokenSession{Server: digestmd5.NewServer(saslRealm, "/"+saslRealm, qops...), password: c.s.cfg.Password}
	return offered{ipc.Offer{Method: ipc.MethodToken, Mechanism: digestmd5.Mechanism, ServerID: saslRealm, Challenge: t.Challenge()}, t}
}

func (t *tokenSession) User() string { return "" }

func (t *tokenSession) Wrapper() ipc.Wrapper {
	if l := t.Server.Wrapper(); l != nil {
		return l
	}
	return nil
}

func (t *tokenSession) Step(in []byte) (out []byte, done bool, err error) {
	_, proof, err := t.Verify(in, func(user string) ([]byte, error) {
		var err error
		if t.identifier, err = base64.StdEncoding.DecodeString(user); err != nil {
			return nil, err
		}
		password, err := t.password(t.identifier)
		if err != nil {
			return nil, err
		}
		return []byte(base64.StdEncoding.EncodeToString(password)), nil
	})
	return proof, err == nil, err
}

func refuse(class ipc.Class, text string) error {
	return &ipc.RemoteError{Class: string(class), Message: text, Code: commonpb.RpcResponseHeaderProto_FATAL_UNAUTHORIZED}
}

// negotiate answers one message of the SASL exchange: NEGOTIATE with the offers, the first challenge of the token among
// them, then INITIATE and each RESPONSE with a challenge, SUCCESS or a refusal.
func (c *session) negotiate(body []byte) error {
	m := &commonpb.RpcSaslProto{}
	if _, err := ipc.ConsumeMessage(body, m); err != nil {
		return err
	}
	reply := &commonpb.RpcSaslProto{}
	switch m.GetState() {
	case commonpb.RpcSaslProto_NEGOTIATE:
		reply.State = commonpb.RpcSaslProto_NEGOTIATE.Enum()
		c.sasl = nil
		if c.s.cfg.Password != nil {
			c.sasl = append(c.sasl, c.tokens())
		}
		for _, mech := range c.s.cfg.Mechanisms {
			offer, s := mech.Begin()
			c.sasl = append(c.sasl, offered{offer, s})
		}
		for _, o := range c.sasl {
			reply.Auths = append(reply.Auths, &commonpb.RpcSaslProto_SaslAuth{
				Method: proto.String(string(o.Method)), Mechanism: proto.String(o.Mechanism),
				Protocol: proto.String(o.Protocol), ServerId: proto.String(o.ServerID), Challenge: o.Challenge,
			})
		}
		if c.s.cfg.Simple {
			reply.Auths = append(reply.Auths, &commonpb.RpcSaslProto_SaslAuth{Method: proto.String(string(ipc.MethodSimple)), Mechanism: proto.String("")})
		}
		c.write(saslHeader(), reply)
		return nil
	case commonpb.RpcSaslProto_INITIATE:
		if len(m.GetAuths()) != 1 || c.step != nil {
			return refuse(ipc.ErrAccessControl, "want one way to authenticate")
		}
		method := ipc.Method(m.GetAuths()[0].GetMethod())
		if method == ipc.MethodSimple && c.s.cfg.Simple {
			c.authenticated = true
			return nil
		}
		for _, o := range c.sasl {
			if o.Method == method {
				c.step = o.Session
			}
		}
		if c.step == nil {
			return refuse(ipc.ErrAccessControl, string(method)+" was not negotiated")
		}
	case commonpb.RpcSaslProto_RESPONSE:
		if c.step == nil || c.authenticated {
			return refuse(ipc.ErrAccessControl, "answer without a challenge")
		}
	default:
		return refuse(ipc.ErrAccessControl, "unexpected SASL state "+m.GetState().String())
	}
	if m.Token == nil {
		return refuse("javax.security.sasl.SaslException", "Client did not send a token")
	}
	out, done, err := c.step.Step(m.GetToken())
	if err != nil {
		var remote *ipc.RemoteError
		if errors.As(err, &remote) {
			return err
		}
		return refuse("javax.security.sasl.SaslException", err.Error())
	}
	reply.Token = out
	if !done {
		reply.State = commonpb.RpcSaslProto_CHALLENGE.Enum()
		c.write(saslHeader(), reply)
		return nil
	}
	reply.State = commonpb.RpcSaslProto_SUCCESS.Enum()
	c.write(saslHeader(), reply) // the last one without protection
	c.authenticated, c.login = true, c.step.User()
	if t, ok := c.step.(*tokenSession); ok {
		c.identifier = t.identifier
	}
	c.wmu.Lock()
	defer c.wmu.Unlock()
	c.w = c.step.Wrapper()
	return nil
}

func saslHeader() *commonpb.RpcResponseHeaderProto {
	id := ipc.CallIDSASL
	return &commonpb.RpcResponseHeaderProto{
		CallId: proto.Uint32(uint32(id)), Status: commonpb.RpcResponseHeaderProto_SUCCESS.Enum(), //nolint:gosec // as Hadoop sends it
		ServerIpcVersionNum: proto.Uint32(ipc.Version), ClientId: []byte{}, RetryCount: proto.Int32(-1),
	}
}

// wrap puts a frame into one protected message, as Hadoop does with answers of any length.
func (c *session) wrap(frame []byte) ([]byte, error) {
	token, err := c.w.Wrap(frame)
	if err != nil {
		return nil, err
	}
	return ipc.EncodeFrame(saslHeader(), &commonpb.RpcSaslProto{State: commonpb.RpcSaslProto_WRAP.Enum(), Token: token})
}

// unwrap handles the frames of a protected message, which holds any part of the stream.
func (c *session) unwrap(ctx context.Context, body []byte) error {
	m := &commonpb.RpcSaslProto{}
	if _, err := ipc.ConsumeMessage(body, m); err != nil {
		return err
	}
	if m.GetState() != commonpb.RpcSaslProto_WRAP {
		return refuse(ipc.ErrAccessControl, "unexpected SASL state "+m.GetState().String())
	}
	plain, err := c.w.Unwrap(m.GetToken())
	if err != nil {
		return refuse("javax.security.sasl.SaslException", err.Error())
	}
	c.rest = append(c.rest, plain...)
	for {
		r := bytes.NewReader(c.rest)
		frame, err := ipc.ReadFrame(r, 64<<20)
		if err != nil {
			if errors.Is(err, ipc.ErrTooLarge) || errors.Is(err, ipc.ErrMalformed) {
				return err
			}
			return nil // the rest of it comes later
		}
		c.rest = c.rest[len(c.rest)-r.Len():]
		if err := c.frame(ctx, frame, true); err != nil {
			return err
		}
	}
}
