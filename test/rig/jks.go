package rig

import (
	"bytes"
	"crypto/rand"
	"crypto/sha1" //nolint:gosec // the format's own
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/binary"
	"fmt"
	"time"
	"unicode/utf16"
)

// Java's key store format, which Hadoop and Kafka read, for keys that Go has made: no JVM is run for it.
//
//	4 magic FEEDFEED | 4 version 2 | 4 number of entries | entries | 20 SHA-1 of (password, "Mighty Aphrodite", all before)
//	entry: 4 tag | alias | 8 time, ms | tag 1, private key: 4 length, key, 4 number of certificates, certificates | tag 2: a certificate
//	certificate: type ("X.509") | 4 length | DER      text: 2 length | modified UTF-8      password: UTF-16, big endian
//
// A private key is an EncryptedPrivateKeyInfo whose content is 20 salt | PKCS#8 key XOR key stream | 20 SHA-1 of (password, key); the stream is
// SHA-1(password, salt), then SHA-1(password, the 20 bytes before), and so on.
// **Source:** OpenJDK 17, sun.security.provider.JavaKeyStore and KeyProtector.
const (
	jksMagic      = 0xfeedfeed
	jksPrivateKey = 1
	jksTrusted    = 2
)

type jksEntry struct {
	alias string
	key   []byte   // PKCS#8; nil for a trusted certificate
	certs [][]byte // DER, the leaf first
}

func jks(password string, at time.Time, entries ...jksEntry) ([]byte, error) {
	var b bytes.Buffer
	u32 := func(n int) { _ = binary.Write(&b, binary.BigEndian, uint32(n)) }
	text := func(s string) {
		_ = binary.Write(&b, binary.BigEndian, uint16(len(s)))
		b.WriteString(s)
	}
	blob := func(p []byte) {
		u32(len(p))
		b.Write(p)
	}
	u32(jksMagic)
	u32(2)
	u32(len(entries))
	for _, e := range entries {
		tag := jksTrusted
		if e.key != nil {
			tag = jksPrivateKey
		}
		u32(tag)
		text(e.alias)
		_ = binary.Write(&b, binary.BigEndian, at.UnixMilli())
		if e.key != nil {
			locked, err := jksLock(password, e.key)
			if err != nil {
				return nil, fmt.Errorf("key store entry %s: %w", e.alias, err)
			}
			blob(locked)
			u32(len(e.certs))
		}
		for _, c := range e.certs {
			text("X.509")
			blob(c)
		}
	}
	b.Write(jksSum(password, []byte("Mighty Aphrodite"), b.Bytes()))
	return b.Bytes(), nil
}

func jksLock(password string, key []byte) ([]byte, error) {
	salt := make([]byte, sha1.Size)
	_, _ = rand.Read(salt)
	out := append([]byte{}, salt...)
	stream := salt
	for rest := key; len(rest) > 0; {
		stream = jksSum(password, stream)
		n := min(len(stream), len(rest))
		for i, x := range rest[:n] {
			out = append(out, x^stream[i])
		}
		rest = rest[n:]
	}
	out = append(out, jksSum(password, key)...)
	return asn1.Marshal(struct {
		Algorithm pkix.AlgorithmIdentifier
		Data      []byte
	}{pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 42, 2, 17, 1, 1}, Parameters: asn1.NullRawValue}, out})
}

func jksSum(password string, parts ...[]byte) []byte {
	h := sha1.New() //nolint:gosec // the format's own
	_ = binary.Write(h, binary.BigEndian, utf16.Encode([]rune(password)))
	for _, p := range parts {
		h.Write(p)
	}
	return h.Sum(nil)
}
