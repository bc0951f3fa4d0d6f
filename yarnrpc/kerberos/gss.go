package kerberos

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/jcmturner/gokrb5/v8/asn1tools"
	"github.com/jcmturner/gokrb5/v8/crypto"
	"github.com/jcmturner/gokrb5/v8/iana/chksumtype"
	"github.com/jcmturner/gokrb5/v8/iana/flags"
	"github.com/jcmturner/gokrb5/v8/iana/keyusage"
	"github.com/jcmturner/gokrb5/v8/messages"
	"github.com/jcmturner/gokrb5/v8/types"
)

// errToken is wrapped by errors about GSS tokens that cannot be believed.
var errToken = errors.New("the server's GSS token is wrong")

// mechanismOID is 1.2.840.113554.1.2.2 in DER, which stands before each token of the exchange.
var mechanismOID = []byte{0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 0x01, 0x02, 0x02}

const (
	tokenAPReq = 0x0100
	tokenAPRep = 0x0200
	tokenError = 0x0300
)

// Flags of the context. Source: RFC 4121 section 4.1.1.1.
const (
	flagMutual   = 2
	flagReplay   = 4
	flagSequence = 8
	flagConf     = 16
	flagInteg    = 32
)

// initiator is the client's side of establishing a GSS context.
type initiator struct {
	session types.EncryptionKey // of the service ticket
	auth    types.Authenticator
}

// begin makes the first token: an AP-REQ that asks for mutual authentication, with a key of its own for this connection.
func (i *initiator) begin(who principal, t ticket) ([]byte, error) {
	var err error
	i.session = t.key
	if i.auth, err = types.NewAuthenticator(who.realm, who.name); err != nil {
		return nil, err
	}
	if err = i.auth.GenerateSeqNumberAndSubKey(t.key.KeyType, len(t.key.KeyValue)); err != nil {
		return nil, err
	}
	sum := make([]byte, 24) // uint32 16 | 16 bytes of channel binding, none | uint32 flags; little endian
	binary.LittleEndian.PutUint32(sum, 16)
	binary.LittleEndian.PutUint32(sum[20:], flagMutual|flagReplay|flagSequence|flagConf|flagInteg)
	i.auth.Cksum = types.Checksum{CksumType: chksumtype.GSSAPI, Checksum: sum}
	req, err := messages.NewAPReq(t.raw, t.key, i.auth)
	if err != nil {
		return nil, err
	}
	types.SetFlag(&req.APOptions, flags.APOptionMutualRequired)
	b, err := req.Marshal()
	if err != nil {
		return nil, err
	}
	return frameToken(tokenAPReq, b), nil
}

// finish checks that the server knows the ticket's key and returns the context.
//
// Errors: errToken, messages.KRBError.
func (i *initiator) finish(token []byte) (*gssContext, error) {
	id, body, err := openToken(token)
	if err != nil {
		return nil, err
	}
	if id == tokenError {
		var refusal messages.KRBError
		if err := refusal.Unmarshal(body); err != nil {
			return nil, fmt.Errorf("%w: an error that cannot be read", errToken)
		}
		return nil, refusal
	}
	var rep messages.APRep
	if id != tokenAPRep || rep.Unmarshal(body) != nil {
		return nil, fmt.Errorf("%w: no AP-REP", errToken)
	}
	b, err := crypto.DecryptEncPart(rep.EncPart, i.session, keyusage.AP_REP_ENCPART)
	if err != nil {
		return nil, fmt.Errorf("%w: it does not know the key of its principal", errToken)
	}
	var part messages.EncAPRepPart
	if err := part.Unmarshal(b); err != nil {
		return nil, fmt.Errorf("%w: AP-REP that cannot be read", errToken)
	}
	if part.CTime.Unix() != i.auth.CTime.Unix() || part.Cusec != i.auth.Cusec {
		return nil, fmt.Errorf("%w: it answers to another request", errToken)
	}
	c := &gssContext{key: i.auth.SubKey, initiator: true, send: uint64(i.auth.SeqNumber), receive: uint32(part.SequenceNumber)} //nolint:gosec // 30 and 32 bits
	if part.SequenceNumber == 0 {
		c.receive = uint32(i.auth.SeqNumber) //nolint:gosec // 30 bits
	}
	if part.Subkey.KeyType != 0 {
		c.key, c.acceptorKey = part.Subkey, true
	}
	return c, c.check()
}

// frameToken puts OID and token id before a message. Source: RFC 2743 section 3.1.
func frameToken(id uint16, body []byte) []byte {
	b := binary.BigEndian.AppendUint16(bytes.Clone(mechanismOID), id)
	return asn1tools.AddASNAppTag(append(b, body...), 0)
}

// openToken is the reverse of frameToken.
func openToken(b []byte) (id uint16, body []byte, err error) {
	bad := fmt.Errorf("%w: no token of Kerberos", errToken)
	if len(b) < 2 || b[0] != 0x60 {
		return 0, nil, bad
	}
	n, rest := int(b[1]), b[2:]
	if n >= 0x80 {
		size := n & 0x7f
		if size < 1 || size > 3 || len(rest) < size {
			return 0, nil, bad
		}
		n = 0
		for _, x := range rest[:size] {
			n = n<<8 | int(x)
		}
		rest = rest[size:]
	}
	if n != len(rest) || !bytes.HasPrefix(rest, mechanismOID) || len(rest) < len(mechanismOID)+2 {
		return 0, nil, bad
	}
	rest = rest[len(mechanismOID):]
	return binary.BigEndian.Uint16(rest), rest[2:], nil
}
