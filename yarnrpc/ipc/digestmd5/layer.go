package digestmd5

import (
	"bytes"
	"crypto/cipher"
	"crypto/des" //nolint:gosec // the mechanism has nothing better
	"crypto/hmac"
	"crypto/md5" //nolint:gosec // the mechanism is defined over MD5
	"crypto/rc4" //nolint:gosec // the mechanism has nothing better
	"encoding/binary"
	"fmt"
	"hash"
	"slices"
)

const (
	macSize     = 10
	trailerSize = 6 // uint16 message type, 1 | uint32 sequence number
)

// ciphers in order of strength.
var ciphers = []string{"3des", "rc4"}

func strongest(offered []string) (string, error) {
	for _, c := range ciphers {
		if slices.Contains(offered, c) {
			return c, nil
		}
	}
	return "", fmt.Errorf("server offers ciphers %v, want one of %v", offered, ciphers)
}

// Layer protects messages. Wrap and Unwrap may run at the same time, each in one goroutine.
//
//	integrity: message | HMAC-MD5(key, uint32 sequence | message)[0:10] | uint16 1 | uint32 sequence
//	privacy:   cipher(message | padding | HMAC...[0:10]) | uint16 1 | uint32 sequence
//
// Source: RFC 2831 sections 2.3 and 2.4.
type Layer struct {
	out, in half
}

type half struct {
	mac   hash.Hash
	seq   uint32
	crypt func(dst, src []byte) // nil at integrity
	block int                   // of the cipher, 1 for a stream
}

func newLayer(session [16]byte, qop QOP, cipherName string, client bool) (*Layer, error) {
	if qop == QOPAuth {
		return nil, nil
	}
	const (
		signUp = "Digest session key to client-to-server signing key magic constant"
		signDn = "Digest session key to server-to-client signing key magic constant"
		sealUp = "Digest H(A1) to client-to-server sealing key magic constant"
		sealDn = "Digest H(A1) to server-to-client sealing key magic constant"
	)
	key := func(magic string) []byte {
		k := md5.Sum(slices.Concat(session[:], []byte(magic))) //nolint:gosec // defined so
		return k[:]
	}
	up, down := half{mac: hmac.New(md5.New, key(signUp))}, half{mac: hmac.New(md5.New, key(signDn))}
	if qop == QOPConf {
		if err := up.seal(cipherName, key(sealUp), client); err != nil {
			return nil, err
		}
		if err := down.seal(cipherName, key(sealDn), !client); err != nil {
			return nil, err
		}
	}
	if client {
		return &Layer{out: up, in: down}, nil
	}
	return &Layer{out: down, in: up}, nil
}

// seal makes the cipher of one direction.
func (h *half) seal(name string, key []byte, encrypt bool) error {
	switch name {
	case "rc4":
		c, err := rc4.NewCipher(key) //nolint:gosec // as above
		if err != nil {
			return err
		}
		h.crypt, h.block = c.XORKeyStream, 1
	case "3des":
		a, b := desKey(key[:7]), desKey(key[7:14])
		c, err := des.NewTripleDESCipher(slices.Concat(a, b, a)) //nolint:gosec // as above
		if err != nil {
			return err
		}
		mode := cipher.NewCBCDecrypter(c, key[8:])
		if encrypt {
			mode = cipher.NewCBCEncrypter(c, key[8:])
		}
		h.crypt, h.block = mode.CryptBlocks, des.BlockSize
	default:
		return fmt.Errorf("%w: cipher %q", ErrMalformed, name)
	}
	return nil
}

// desKey spreads 56 bits over 8 bytes, whose lowest bits DES ignores.
func desKey(k []byte) []byte {
	var v uint64
	for _, b := range k {
		v = v<<8 | uint64(b)
	}
	out := make([]byte, 8)
	for i := range out {
		out[i] = byte(v>>(49-7*i)) << 1 //nolint:gosec // seven bits
	}
	return out
}

func (h *half) sum(msg []byte) []byte {
	h.mac.Reset()
	_, _ = h.mac.Write(binary.BigEndian.AppendUint32(nil, h.seq))
	_, _ = h.mac.Write(msg)
	return h.mac.Sum(nil)[:macSize]
}

// Wrap returns the protected form of a message.
func (w *Layer) Wrap(plain []byte) ([]byte, error) {
	h := &w.out
	out := make([]byte, 0, len(plain)+macSize+trailerSize+8)
	out = append(out, plain...)
	if h.block > 1 {
		n := h.block - (len(plain)+macSize)%h.block
		out = append(out, bytes.Repeat([]byte{byte(n)}, n)...)
	}
	out = append(out, h.sum(plain)...)
	if h.crypt != nil {
		h.crypt(out, out)
	}
	out = binary.BigEndian.AppendUint16(out, 1)
	out = binary.BigEndian.AppendUint32(out, h.seq)
	h.seq++
	return out, nil
}

// Unwrap returns the message of a protected form, which is overwritten.
//
// Errors: ErrMalformed, ErrProof.
func (w *Layer) Unwrap(in []byte) ([]byte, error) {
	h := &w.in
	if len(in) < macSize+trailerSize {
		return nil, fmt.Errorf("%w: a protected message of %d bytes", ErrMalformed, len(in))
	}
	body, trailer := in[:len(in)-trailerSize], in[len(in)-trailerSize:]
	if binary.BigEndian.Uint16(trailer) != 1 || binary.BigEndian.Uint32(trailer[2:]) != h.seq {
		return nil, fmt.Errorf("%w: protected messages out of order", ErrMalformed)
	}
	if h.crypt != nil {
		if len(body)%h.block != 0 {
			return nil, fmt.Errorf("%w: no whole blocks of the cipher", ErrMalformed)
		}
		h.crypt(body, body)
	}
	msg, mac := body[:len(body)-macSize], body[len(body)-macSize:]
	if h.block > 1 {
		if len(msg) == 0 || int(msg[len(msg)-1]) > min(h.block, len(msg)) {
			return nil, fmt.Errorf("%w: padding", ErrMalformed)
		}
		msg = msg[:len(msg)-int(msg[len(msg)-1])]
	}
	if !hmac.Equal(mac, h.sum(msg)) {
		return nil, fmt.Errorf("protected message: %w", ErrProof)
	}
	h.seq++
	return msg, nil
}
