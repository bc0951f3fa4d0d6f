package kerberos

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jcmturner/gokrb5/v8/iana/errorcode"
	"github.com/jcmturner/gokrb5/v8/iana/nametype"
	"github.com/jcmturner/gokrb5/v8/messages"
	"github.com/jcmturner/gokrb5/v8/types"

	"github.com/thalweg/thalweg/yarnrpc/ipc"
)

// Mechanism is the SASL name.
const Mechanism = "GSSAPI"

// ourBuffer is the longest protected message that this side asks for, in bytes. Servers send longer ones all the same.
const ourBuffer = 1 << 16

// layers are the bits of a protection in the last messages of the exchange. Source: RFC 4752 section 3.3.
var layers = map[ipc.Protection]byte{ipc.ProtectAuthentication: 1, ipc.ProtectIntegrity: 2, ipc.ProtectPrivacy: 4}

type mechanism struct {
	login  *Login
	accept []ipc.Protection
	server ServerPrincipal
}

// Mechanism authenticates connections by SASL GSSAPI with mutual authentication. accept are the protections of messages that
// will do, in order of preference, authentication alone by default. server is whom to talk to.
func (l *Login) Mechanism(accept []ipc.Protection, server ServerPrincipal) ipc.Mechanism {
	if len(accept) == 0 {
		accept = []ipc.Protection{ipc.ProtectAuthentication}
	}
	return &mechanism{l, accept, server}
}

// Accepts is true for KERBEROS by GSSAPI.
func (m *mechanism) Accepts(o ipc.Offer) bool {
	return o.Method == ipc.MethodKerberos && o.Mechanism == Mechanism
}

// Begin checks the server's principal and obtains a ticket for it.
func (m *mechanism) Begin(ctx context.Context, o ipc.Offer) (ipc.Session, error) {
	realm, err := m.login.cfg.checkServer(ctx, m.server, o)
	if err != nil {
		return nil, err
	}
	service := types.PrincipalName{NameType: nametype.KRB_NT_SRV_HST, NameString: []string{o.Protocol, o.ServerID}}
	t, err := m.login.ticketFor(ctx, service, realm)
	if err != nil {
		return nil, err
	}
	return &session{m: m, ticket: t, server: service.PrincipalNameString() + "@" + realm}, nil
}

// session is one exchange: AP-REQ, AP-REP, then the layers of protection. Source: RFC 4752 section 3.1.
type session struct {
	m      *mechanism
	ticket ticket
	server string

	sent bool
	init initiator
	gss  *gssContext
	done bool
	qop  ipc.Protection
	most int // bytes of a message that the server takes
}

// Step takes the server's next message.
func (s *session) Step(in []byte) (out []byte, done bool, err error) {
	switch {
	case s.done:
		return nil, true, fmt.Errorf("kerberos: %w: message after the end of the exchange", ipc.ErrMalformed)
	case !s.sent:
		s.sent = true
		out, err = s.init.begin(s.m.login.who, s.ticket)
	case s.gss == nil:
		s.gss, err = s.init.finish(in)
		out = []byte{}
	default:
		out, err = s.layer(in)
		s.done = err == nil
	}
	if err != nil {
		return nil, false, s.explain(err)
	}
	return out, s.done, nil
}

// layer chooses the protection: a byte of those offered and 3 bytes of the longest message, both ways.
func (s *session) layer(in []byte) ([]byte, error) {
	offer, err := s.gss.unwrap(in, false)
	if err != nil {
		return nil, err
	}
	if len(offer) != 4 {
		return nil, fmt.Errorf("%w: offer of %d bytes, want 4", errToken, len(offer))
	}
	at := slices.IndexFunc(s.m.accept, func(p ipc.Protection) bool { return layers[p]&offer[0] != 0 })
	if at < 0 {
		var offered []ipc.Protection
		for _, p := range []ipc.Protection{ipc.ProtectAuthentication, ipc.ProtectIntegrity, ipc.ProtectPrivacy} {
			if layers[p]&offer[0] != 0 {
				offered = append(offered, p)
			}
		}
		return nil, ipc.MismatchedProtection(offered, s.m.accept)
	}
	s.qop = s.m.accept[at]
	s.most = int(offer[1])<<16 | int(offer[2])<<8 | int(offer[3])
	answer := []byte{layers[s.qop], 0, 0, 0}
	if s.qop != ipc.ProtectAuthentication {
		if s.most <= wrapOverhead {
			return nil, fmt.Errorf("%w: it takes messages of %d bytes", errToken, s.most)
		}
		answer[1], answer[2], answer[3] = byte(ourBuffer>>16), byte(ourBuffer>>8&0xff), byte(ourBuffer&0xff)
	}
	return s.gss.wrap(answer, false)
}

func (s *session) explain(err error) error {
	var refusal messages.KRBError
	switch {
	case errors.Is(err, errToken):
		return fmt.Errorf("kerberos: %s: %w: %w", s.server, ipc.ErrMalformed, err)
	case errors.As(err, &refusal) && refusal.ErrorCode == errorcode.KRB_AP_ERR_SKEW:
		return loginError("%s refuses the ticket: its clock and this machine's differ by too much: set both (chronyc makestep)", s.server)
	case errors.As(err, &refusal):
		return loginError("%s refuses the ticket: %s", s.server, errorcode.Lookup(refusal.ErrorCode))
	}
	return err
}

// Wrapper is the protection that was agreed on, nil for authentication alone.
func (s *session) Wrapper() ipc.Wrapper {
	if !s.done || s.qop == ipc.ProtectAuthentication {
		return nil
	}
	return &layerWrapper{s.gss, s.qop == ipc.ProtectPrivacy, s.most - wrapOverhead}
}

type layerWrapper struct {
	gss   *gssContext
	seal  bool
	limit int
}

func (w *layerWrapper) Wrap(plain []byte) ([]byte, error) { return w.gss.wrap(plain, w.seal) }

func (w *layerWrapper) Unwrap(token []byte) ([]byte, error) {
	plain, err := w.gss.unwrap(token, w.seal)
	if err != nil {
		return nil, fmt.Errorf("kerberos: %w: %w", ipc.ErrMalformed, err)
	}
	return plain, nil
}

func (w *layerWrapper) Limit() int { return w.limit }
