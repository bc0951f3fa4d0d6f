package digestmd5

import (
	"crypto/cipher"
	"crypto/des" //nolint:gosec // one of the mechanism's ciphers
	"crypto/hmac"
	"crypto/md5" //nolint:gosec // the mechanism is defined over MD5
	"crypto/rc4" //nolint:gosec // one of the mechanism's ciphers
	"encoding/binary"
	"fmt"
	"hash"
	"math"
)

const (
	macSize     = 10 // of an HMAC-MD5
	trailerSize = 6  // type and sequence number
	// overhead bounds what Wrap adds: MAC, trailer and, with a block cipher, up to 8 bytes of padding. Java leaves 26 as well.
	overhead  = 26
	minMaxBuf = overhead + 1
)

// Layer protects the messages of one connection after the exchange. Wrap and Unwrap may run at the same time in two
// goroutines; each is called by one goroutine only.
//
// A wrapped message; with auth-conf what stands before the type is encrypted, and the state of the cipher goes on from
// message to message:
//
//	size  value
//	n     the message
//	p     padding for a block cipher: 1 to 8 bytes that say how many they are
//	10    HMAC-MD5 over sequence number and message, cut off
//	2     type, 1
//	4     sequence number, from 0
//
// Source: RFC 2831 sections 2.3 and 2.4.
type Layer struct {
	send, recv direction
	limit      int
}

// direction is one way of a Layer.
type direction struct {
	mac    hash.Hash
	sum    [md5.Size]byte
	seq    uint32
	block  int          // block size of the cipher, 1 for none
	crypt  func([]byte) // in place, a whole number of blocks; nil for integrity alone
	failed error
}

// newLayer derives the keys. It returns nil for QOPAuth.
//
// Errors: ErrMalformed for a cipher that does not exist.
func newLayer(key [md5.Size]byte, qop QOP, cipherName string, maxBuf int, client bool) (*Layer, error) {
	if qop == QOPAuth {
		return nil, nil
	}
	l := &Layer{limit: maxBuf - overhead}
	toServer, toClient := &l.send, &l.recv
	if !client {
		toServer, toClient = toClient, toServer
	}
	toServer.setMAC(key, "Digest session key to client-to-server signing key magic constant")
	toClient.setMAC(key, "Digest session key to server-to-client signing key magic constant")
	if qop == QOPInt {
		return l, nil
	}
	n := len(key)
	switch cipherName {
	case "rc4-40":
		n = 5
	case "rc4-56":
		n = 7
	}
	for _, d := range []struct {
		*direction
		magic string
	}{
		{toServer, "Digest H(A1) to client-to-server sealing key magic constant"},
		{toClient, "Digest H(A1) to server-to-client sealing key magic constant"},
	} {
		kc := md5.Sum(append(append([]byte(nil), key[:n]...), d.magic...)) //nolint:gosec // defined so
		if err := d.setCipher(cipherName, kc, d.direction == &l.send); err != nil {
			return nil, err
		}
	}
	return l, nil
}

func (d *direction) setMAC(key [md5.Size]byte, magic string) {
	ki := md5.Sum(append(key[:], magic...)) //nolint:gosec // defined so
	d.mac = hmac.New(md5.New, ki[:])
	d.block = 1
}

func (d *direction) setCipher(name string, kc [md5.Size]byte, encrypt bool) error {
	var (
		b   cipher.Block
		err error
	)
	switch name {
	case "rc4", "rc4-56", "rc4-40":
		c, err := rc4.NewCipher(kc[:]) //nolint:gosec // defined so
		if err != nil {
			return err
		}
		d.crypt = func(p []byte) { c.XORKeyStream(p, p) }
		return nil
	case "des":
		b, err = des.NewCipher(desKey(kc[:7])) //nolint:gosec // defined so
	case "3des": // with two keys
		k1, k2 := desKey(kc[:7]), desKey(kc[7:14])
		b, err = des.NewTripleDESCipher(append(append(append([]byte(nil), k1...), k2...), k1...)) //nolint:gosec // defined so
	default:
		return fmt.Errorf("%w: no cipher %q", ErrMalformed, name)
	}
	if err != nil {
		return err
	}
	mode := cipher.NewCBCDecrypter(b, kc[8:])
	if encrypt {
		mode = cipher.NewCBCEncrypter(b, kc[8:])
	}
	d.block = b.BlockSize()
	d.crypt = func(p []byte) { mode.CryptBlocks(p, p) }
	return nil
}

// desKey spreads 56 bits over 8 bytes, of which DES ignores the lowest bit.
func desKey(b []byte) []byte {
	var v uint64
	for _, x := range b {
		v = v<<8 | uint64(x)
	}
	out := make([]byte, 8)
	for i := 7; i >= 0; i-- {
		out[i] = byte(v&0x7f) << 1
		v >>= 7
	}
	return out
}

// Limit is the longest message that the peer takes at once, in bytes.
func (l *Layer) Limit() int { return l.limit }

// Wrap protects one message. It does not keep plain.
func (l *Layer) Wrap(plain []byte) ([]byte, error) {
	d := &l.send
	if d.failed != nil {
		return nil, d.failed
	}
	pad := 0
	if d.block > 1 {
		pad = d.block - (len(plain)+macSize)%d.block
	}
	out := make([]byte, 0, len(plain)+pad+macSize+trailerSize)
	out = append(out, plain...)
	for range pad {
		out = append(out, byte(pad)) //nolint:gosec // at most 8
	}
	out = append(out, d.macOf(plain)...)
	if d.crypt != nil {
		d.crypt(out)
	}
	out = append(out, 0, 1)
	out = binary.BigEndian.AppendUint32(out, d.seq)
	d.next()
	return out, nil
}

// Unwrap checks and opens one message. It works in wrapped, of which the result is a part.
//
// Errors: ErrTampered, from then on for every message.
func (l *Layer) Unwrap(wrapped []byte) ([]byte, error) {
	d := &l.recv
	if d.failed != nil {
		return nil, d.failed
	}
	plain, ok := d.open(wrapped)
	if !ok {
		d.failed = ErrTampered
		return nil, d.failed
	}
	d.next()
	return plain, nil
}

func (d *direction) open(wrapped []byte) ([]byte, bool) {
	n := len(wrapped) - trailerSize
	if n < macSize || n%d.block != 0 ||
		binary.BigEndian.Uint16(wrapped[n:]) != 1 || binary.BigEndian.Uint32(wrapped[n+2:]) != d.seq {
		return nil, false
	}
	body := wrapped[:n]
	if d.crypt != nil {
		d.crypt(body)
	}
	plain, mac := body[:n-macSize], body[n-macSize:]
	if d.block > 1 {
		if len(plain) == 0 {
			return nil, false
		}
		pad := int(plain[len(plain)-1])
		if pad < 1 || pad > d.block || pad > len(plain) {
			return nil, false
		}
		for _, b := range plain[len(plain)-pad:] {
			if int(b) != pad {
				return nil, false
			}
		}
		plain = plain[:len(plain)-pad]
	}
	return plain, hmac.Equal(mac, d.macOf(plain))
}

// macOf is the MAC of a message with the current sequence number. It is valid until the next call.
func (d *direction) macOf(plain []byte) []byte {
	var seq [4]byte
	binary.BigEndian.PutUint32(seq[:], d.seq)
	d.mac.Reset()
	_, _ = d.mac.Write(seq[:]) // a hash never fails
	_, _ = d.mac.Write(plain)
	return d.mac.Sum(d.sum[:0])[:macSize]
}

// next counts a message. Numbers are not used twice: a message could be repeated then.
func (d *direction) next() {
	if d.seq == math.MaxUint32 {
		d.failed = fmt.Errorf("digestmd5: connection has no sequence numbers left")
		return
	}
	d.seq++
}
