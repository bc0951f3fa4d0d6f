package kerberos

import (
	"fmt"
	"testing"
	"time"

	"github.com/jcmturner/gofork/encoding/asn1"
	"github.com/jcmturner/gokrb5/v8/asn1tools"
	"github.com/jcmturner/gokrb5/v8/crypto"
	"github.com/jcmturner/gokrb5/v8/iana/asnAppTag"
	"github.com/jcmturner/gokrb5/v8/iana/keyusage"
	"github.com/jcmturner/gokrb5/v8/iana/msgtype"
	"github.com/jcmturner/gokrb5/v8/messages"
	"github.com/jcmturner/gokrb5/v8/types"

	"github.com/thalweg/thalweg/yarnrpc/ipc"
	"github.com/thalweg/thalweg/yarnrpc/ipc/ipcserver"
)

// acceptor is the server half of the mechanism, with a keytab. Hadoop's is the one that test/integration uses.
type acceptor struct {
	keys             *keyring
	service, host    string
	offer            []ipc.Protection
	ownKey, impostor bool // assert a key of its own; do not know the ticket's key
}

func (a *acceptor) Begin() (ipc.Offer, ipcserver.Session) {
	return ipc.Offer{Method: ipc.MethodKerberos, Mechanism: Mechanism, Protocol: a.service, ServerID: a.host}, &acceptance{a: a}
}

type acceptance struct {
	a      *acceptor
	round  int
	gss    *gssContext
	client string
	qop    ipc.Protection
	most   int
}

func (s *acceptance) User() string { return s.client }

func (s *acceptance) Wrapper() ipc.Wrapper {
	if s.qop == ipc.ProtectAuthentication {
		return nil
	}
	return &layerWrapper{s.gss, s.qop == ipc.ProtectPrivacy, s.most - wrapOverhead}
}

func (s *acceptance) Step(in []byte) (out []byte, done bool, err error) {
	s.round++
	switch s.round {
	case 1:
		out, err = s.request(in)
		return out, false, err
	case 2:
		bits := byte(0)
		for _, p := range s.a.offer {
			bits |= layers[p]
		}
		out, err = s.gss.wrap([]byte{bits, 1, 0, 0}, false)
		return out, false, err
	}
	answer, err := s.gss.unwrap(in, false)
	if err != nil {
		return nil, false, err
	}
	for p, bit := range layers {
		if answer[0] == bit {
			s.qop = p
		}
	}
	s.most = int(answer[1])<<16 | int(answer[2])<<8 | int(answer[3])
	return nil, true, nil
}

func (s *acceptance) request(in []byte) ([]byte, error) {
	id, body, err := openToken(in)
	if err != nil || id != tokenAPReq {
		return nil, fmt.Errorf("no AP-REQ: %w", err)
	}
	var req messages.APReq
	if err := req.Unmarshal(body); err != nil {
		return nil, err
	}
	if ok, err := req.Verify(s.a.keys.keytab, 5*time.Minute, types.HostAddress{}, nil); err != nil || !ok {
		return nil, fmt.Errorf("AP-REQ: %w", err)
	}
	s.client = req.Authenticator.CName.PrincipalNameString() + "@" + req.Authenticator.CRealm
	s.gss = &gssContext{key: req.Authenticator.SubKey, send: 77, receive: uint32(req.Authenticator.SeqNumber)} //nolint:gosec // 30 bits
	part := messages.EncAPRepPart{CTime: req.Authenticator.CTime, Cusec: req.Authenticator.Cusec, SequenceNumber: 77}
	session := req.Ticket.DecryptedEncPart.Key
	if s.a.ownKey {
		var other types.Authenticator
		if err := other.GenerateSeqNumberAndSubKey(session.KeyType, len(session.KeyValue)); err != nil {
			return nil, err
		}
		part.Subkey, s.gss.key, s.gss.acceptorKey = other.SubKey, other.SubKey, true
	}
	if s.a.impostor {
		session = types.EncryptionKey{KeyType: session.KeyType, KeyValue: make([]byte, len(session.KeyValue))}
	}
	b, err := asn1.Marshal(part)
	if err != nil {
		return nil, err
	}
	sealed, err := crypto.GetEncryptedData(asn1tools.AddASNAppTag(b, asnAppTag.EncAPRepPart), session, keyusage.AP_REP_ENCPART, 0)
	if err != nil {
		return nil, err
	}
	if b, err = asn1.Marshal(messages.APRep{PVNO: 5, MsgType: msgtype.KRB_AP_REP, EncPart: sealed}); err != nil {
		return nil, err
	}
	return frameToken(tokenAPRep, asn1tools.AddASNAppTag(b, asnAppTag.APREP)), nil
}

func mustKeys(t *testing.T, path string) *keyring {
	t.Helper()
	k, err := readKeytab(path)
	if err != nil {
		t.Fatal(err)
	}
	return k
}
