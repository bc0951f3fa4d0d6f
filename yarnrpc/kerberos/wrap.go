package kerberos

import (
	"crypto/hmac"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/jcmturner/gokrb5/v8/crypto"
	"github.com/jcmturner/gokrb5/v8/iana/keyusage"
	"github.com/jcmturner/gokrb5/v8/types"
)

const (
	wrapHeader = 16
	wrapID     = 0x0504

	wrapFromAcceptor = 1
	wrapSealed       = 2
	wrapAcceptorKey  = 4

	// wrapOverhead bounds what wrap adds: header, confounder, encrypted header, MAC of at most 24 bytes.
	wrapOverhead = wrapHeader + 16 + wrapHeader + 24
)

// gssContext protects messages by Wrap tokens. wrap and unwrap may run at the same time in two goroutines; each is called by
// one goroutine only.
//
//	offset  size  value
//	0       2     0x0504
//	2       1     flags: 1 sent by the acceptor, 2 sealed, 4 with the acceptor's key
//	3       1     0xff
//	4       2     EC: bytes of the checksum, or of the filler when sealed
//	6       2     RRC: by how much the rest was rotated to the right
//	8       8     sequence number
//	16      -     sealed: cipher(message | filler | header with RRC 0); else message | checksum(message | header with EC and RRC 0)
//
// Source: RFC 4121 section 4.2.
type gssContext struct {
	key         types.EncryptionKey // secret
	initiator   bool
	acceptorKey bool
	send        uint64
	receive     uint32 // Java counts in 32 bits
	failed      error  // of unwrap: from then on nothing is believed
}

// check says when the key is of a type that Wrap tokens of this kind do not exist for.
func (c *gssContext) check() error {
	if !slices.Contains(aes, c.key.KeyType) {
		return fmt.Errorf("%w: session key of type %s, want AES: give the service keys of an AES type", errToken, typeNames([]int32{c.key.KeyType}))
	}
	_, err := crypto.GetEtype(c.key.KeyType)
	return err
}

func usage(fromInitiator bool) uint32 {
	if fromInitiator {
		return keyusage.GSSAPI_INITIATOR_SEAL
	}
	return keyusage.GSSAPI_ACCEPTOR_SEAL
}

func (c *gssContext) wrap(plain []byte, seal bool) ([]byte, error) {
	et, err := crypto.GetEtype(c.key.KeyType)
	if err != nil {
		return nil, err
	}
	head := make([]byte, wrapHeader, wrapOverhead+len(plain))
	binary.BigEndian.PutUint16(head, wrapID)
	if !c.initiator {
		head[2] |= wrapFromAcceptor
	}
	if c.acceptorKey {
		head[2] |= wrapAcceptorKey
	}
	if seal {
		head[2] |= wrapSealed
	}
	head[3] = 0xff
	binary.BigEndian.PutUint64(head[8:], c.send)
	c.send++
	message := slices.Concat(plain, head)
	if seal {
		_, sealed, err := et.EncryptMessage(c.key.KeyValue, message, usage(c.initiator))
		return append(head, sealed...), err
	}
	sum, err := et.GetChecksumHash(c.key.KeyValue, message, usage(c.initiator))
	if err != nil {
		return nil, err
	}
	binary.BigEndian.PutUint16(head[4:], uint16(len(sum))) //nolint:gosec // at most 24
	return append(append(head, plain...), sum...), nil
}

// unwrap checks and opens a token. sealed says that it must have been.
//
// Errors: errToken, from then on for each token.
func (c *gssContext) unwrap(token []byte, sealed bool) ([]byte, error) {
	if c.failed != nil {
		return nil, c.failed
	}
	plain, err := c.open(token, sealed)
	if err != nil {
		c.failed = err
		return nil, err
	}
	c.receive++
	return plain, nil
}

func (c *gssContext) open(token []byte, sealed bool) ([]byte, error) {
	if len(token) < wrapHeader || binary.BigEndian.Uint16(token) != wrapID || token[3] != 0xff {
		return nil, fmt.Errorf("%w: no protected message", errToken)
	}
	fl := token[2]
	switch {
	case (fl&wrapFromAcceptor != 0) != c.initiator:
		return nil, fmt.Errorf("%w: our own message came back", errToken)
	case (fl&wrapAcceptorKey != 0) != c.acceptorKey:
		return nil, fmt.Errorf("%w: message under another key", errToken)
	case sealed && fl&wrapSealed == 0:
		return nil, fmt.Errorf("%w: message in the clear where privacy was agreed", errToken)
	case uint32(binary.BigEndian.Uint64(token[8:])) != c.receive: //nolint:gosec // Java counts in 32 bits
		return nil, fmt.Errorf("%w: a message is missing or came twice", errToken)
	}
	et, err := crypto.GetEtype(c.key.KeyType)
	if err != nil {
		return nil, err
	}
	head := slices.Clone(token[:wrapHeader])
	extra, rotated := int(binary.BigEndian.Uint16(head[4:])), int(binary.BigEndian.Uint16(head[6:]))
	body := token[wrapHeader:]
	if rotated > 0 && len(body) > 0 {
		rotated %= len(body)
		body = slices.Concat(body[rotated:], body[:rotated])
	}
	head[6], head[7] = 0, 0
	changed := fmt.Errorf("%w: a message was changed on its way", errToken)
	if fl&wrapSealed != 0 {
		if len(body) < et.GetConfounderByteSize()+wrapHeader+et.GetHMACBitLength()/8 {
			return nil, changed
		}
		plain, err := et.DecryptMessage(c.key.KeyValue, body, usage(!c.initiator))
		if err != nil || len(plain) < wrapHeader+extra || !hmac.Equal(plain[len(plain)-wrapHeader:], head) {
			return nil, changed
		}
		return plain[:len(plain)-wrapHeader-extra], nil
	}
	if extra > len(body) {
		return nil, changed
	}
	plain, sum := body[:len(body)-extra], body[len(body)-extra:]
	head[4], head[5] = 0, 0
	want, err := et.GetChecksumHash(c.key.KeyValue, slices.Concat(plain, head), usage(!c.initiator))
	if err != nil || !hmac.Equal(sum, want) {
		return nil, changed
	}
	return plain, nil
}
