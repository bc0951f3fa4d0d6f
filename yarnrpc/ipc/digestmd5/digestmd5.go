// Package digestmd5 is SASL DIGEST-MD5 as Hadoop uses it to log in with tokens: both halves, all three qualities of
// protection. It belongs to yarnrpc/ipc (layer L1) and imports nothing of ours.
//
// Flow: the server sends a challenge (NewServer, Challenge), the client answers (Client.Step), the server checks the
// answer and proves that it knows the password too (Server.Verify), the client checks that (Client.Step again). With
// auth-int or auth-conf, Wrapper is then what protects the messages.
//
// Invariants:
//  1. Neither half reveals the password; errors never quote a challenge or an answer.
//  2. A client is not done before it has checked the server's proof (rspauth).
//  3. A client never takes a quality that it was not told to accept, whatever the server offers first.
//  4. A Layer that met one message out of order or changed opens no other.
//
// Source: RFC 2831; Hadoop's SaslRpcClient and SaslRpcServer, which use md5-sess, UTF-8 and the realm "default".
package digestmd5

import (
	"bytes"
	"crypto/hmac"
	"crypto/md5" //nolint:gosec // the mechanism is defined over MD5
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Mechanism is the SASL name.
const Mechanism = "DIGEST-MD5"

// QOP is a quality of protection by its name in RFC 2831.
type QOP string

// The qualities of protection: authentication only, with integrity of messages, with confidentiality as well.
const (
	QOPAuth QOP = "auth"
	QOPInt  QOP = "auth-int"
	QOPConf QOP = "auth-conf"
)

// Ciphers are the names of the ciphers of auth-conf, in the order that Client and Server prefer: by default 3des, as
// Java does. Both 3des and rc4 are broken by today's measure. What is known against 3des needs some 32 GiB sent with one
// key, and a key lasts as long as a connection; rc4 leaks a little of the same plaintext with each connection. rc4 is
// about ten times as fast, so that one who sends bulk may prefer it (Client.Ciphers).
var Ciphers = []string{"3des", "rc4", "des", "rc4-56", "rc4-40"}

// defaultMaxBuf is what RFC 2831 assumes of a side that does not tell, in bytes.
const defaultMaxBuf = 65536

// maxMessage bounds what RFC 2831 allows for a challenge or an answer (2048 and 4096 bytes), with room for Hadoop's
// user names, which are whole token identifiers.
const maxMessage = 64 << 10

var (
	// ErrMalformed is wrapped by errors about a challenge or answer that does not parse.
	ErrMalformed = errors.New("malformed DIGEST-MD5 message")
	// ErrProof says that the peer does not know the password: a client gets it for a wrong rspauth, a server for a wrong response.
	ErrProof = errors.New("digest does not match")
	// ErrTampered says that a protected message was changed, repeated, lost or reordered on its way.
	ErrTampered = errors.New("protected message was changed on its way")
)

// MismatchError says that the two sides have no quality of protection in common.
type MismatchError struct {
	Offered  []QOP // by the server
	Accepted []QOP // by the client
}

// Error names both lists.
func (e *MismatchError) Error() string {
	return fmt.Sprintf("the server offers protection %v, this side accepts %v", e.Offered, e.Accepted)
}

// Challenge is the server's first message.
type Challenge struct {
	Realms  []string
	Nonce   string
	QOP     []QOP // offered, in the server's order; empty in the message means auth
	Ciphers []string
	UTF8    bool
	MaxBuf  int // bytes, 65536 by default
}

// ParseChallenge reads a digest-challenge.
//
// Errors: ErrMalformed.
func ParseChallenge(b []byte) (Challenge, error) {
	c := Challenge{MaxBuf: defaultMaxBuf}
	dirs, err := parse(b)
	if err != nil {
		return c, err
	}
	algorithm := ""
	for _, d := range dirs {
		switch d.key {
		case "realm":
			c.Realms = append(c.Realms, d.value)
		case "nonce":
			if c.Nonce != "" {
				return c, fmt.Errorf("%w: nonce given twice", ErrMalformed)
			}
			c.Nonce = d.value
		case "qop":
			for _, q := range splitList(d.value) {
				c.QOP = append(c.QOP, QOP(q))
			}
		case "cipher":
			c.Ciphers = splitList(d.value)
		case "charset":
			c.UTF8 = strings.EqualFold(d.value, "utf-8")
		case "algorithm":
			algorithm = d.value
		case "maxbuf":
			if c.MaxBuf, err = parseMaxBuf(d.value); err != nil {
				return c, err
			}
		}
	}
	if c.Nonce == "" {
		return c, fmt.Errorf("%w: no nonce", ErrMalformed)
	}
	if algorithm != "md5-sess" {
		return c, fmt.Errorf("%w: algorithm is not md5-sess", ErrMalformed)
	}
	if len(c.QOP) == 0 {
		c.QOP = []QOP{QOPAuth}
	}
	return c, nil
}

// parseMaxBuf reads a maxbuf, bytes. Below minMaxBuf no message fits beside what protects it.
func parseMaxBuf(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < minMaxBuf || n > 1<<24-1 {
		return 0, fmt.Errorf("%w: maxbuf out of range", ErrMalformed)
	}
	return n, nil
}

// Client is the client half of one exchange. Not safe for concurrent use.
type Client struct {
	// Ciphers that auth-conf may use, in order of preference; the package's Ciphers by default. Set it before Step.
	Ciphers []string

	user, uri string
	password  []byte
	accept    []QOP
	cnonce    string
	expect    string // rspauth that the server must send
	layer     *Layer // for after the proof
	done      bool
}

// NewClient prepares an exchange as user with the given password. digestURI is "protocol/serverId" of the server's
// offer. accept are the qualities of protection that will do, in order of preference; auth alone by default.
func NewClient(user string, password []byte, digestURI string, accept ...QOP) *Client {
	if len(accept) == 0 {
		accept = []QOP{QOPAuth}
	}
	return &Client{Ciphers: Ciphers, user: user, password: bytes.Clone(password), uri: digestURI, accept: accept}
}

// Wrapper protects the messages that follow, or is nil for auth. Valid when Step has reported done.
func (c *Client) Wrapper() *Layer {
	if !c.done {
		return nil
	}
	return c.layer
}

// Step takes the server's next message and returns what to send; done is true when the server has proved itself.
//
// Errors: ErrMalformed; *MismatchError; ErrProof when the server does not know the password.
func (c *Client) Step(in []byte) (out []byte, done bool, err error) {
	switch {
	case c.done:
		return nil, true, fmt.Errorf("%w: message after the end", ErrMalformed)
	case c.expect == "":
		out, err = c.answer(in)
		return out, false, err
	}
	dirs, err := parse(in)
	if err != nil {
		return nil, false, err
	}
	for _, d := range dirs {
		if d.key == "rspauth" {
			if !hmac.Equal([]byte(d.value), []byte(c.expect)) {
				return nil, false, fmt.Errorf("server's proof: %w", ErrProof)
			}
			c.done = true
			return nil, true, nil
		}
	}
	return nil, false, fmt.Errorf("%w: no rspauth", ErrMalformed)
}

func (c *Client) answer(in []byte) ([]byte, error) {
	ch, err := ParseChallenge(in)
	if err != nil {
		return nil, err
	}
	qop, cipher, err := c.choose(ch)
	if err != nil {
		return nil, err
	}
	realm := ""
	if len(ch.Realms) > 0 {
		realm = ch.Realms[0]
	}
	if c.cnonce == "" {
		c.cnonce = newNonce()
	}
	r := response{user: c.user, realm: realm, nonce: ch.Nonce, cnonce: c.cnonce, nc: "00000001", qop: qop, uri: c.uri}
	c.expect = r.digest(c.password, "")
	if c.layer, err = newLayer(r.sessionKey(c.password), qop, cipher, ch.MaxBuf, true); err != nil {
		return nil, err
	}
	var b strings.Builder
	b.WriteString("charset=utf-8,username=" + quote(c.user))
	if len(ch.Realms) > 0 {
		b.WriteString(",realm=" + quote(realm))
	}
	b.WriteString(",nonce=" + quote(ch.Nonce) + ",nc=" + r.nc + ",cnonce=" + quote(c.cnonce) +
		",digest-uri=" + quote(c.uri) + ",maxbuf=65536,response=" + r.digest(c.password, "AUTHENTICATE") + ",qop=" + string(qop))
	if cipher != "" {
		b.WriteString(",cipher=" + quote(cipher)) // quoted, as Java writes it
	}
	return []byte(b.String()), nil
}

// choose takes the first quality of ours that the server offers, and the first cipher.
func (c *Client) choose(ch Challenge) (qop QOP, cipher string, err error) {
	for _, q := range c.accept {
		if !slices.Contains(ch.QOP, q) {
			continue
		}
		if q != QOPConf {
			return q, "", nil
		}
		for _, name := range c.Ciphers {
			if slices.Contains(ch.Ciphers, name) {
				return q, name, nil
			}
		}
	}
	return "", "", &MismatchError{Offered: ch.QOP, Accepted: c.accept}
}

// Server is the server half of one exchange. Not safe for concurrent use.
type Server struct {
	realm, nonce, uri string
	offer             []QOP
	layer             *Layer
}

// NewServer prepares an exchange. The digestURI must match the client's. offer are the qualities of protection, auth
// alone by default; the client chooses.
func NewServer(realm, digestURI string, offer ...QOP) *Server {
	if len(offer) == 0 {
		offer = []QOP{QOPAuth}
	}
	return &Server{realm: realm, nonce: newNonce(), uri: digestURI, offer: offer}
}

// Challenge is the first message to the client.
func (s *Server) Challenge() []byte {
	names := make([]string, len(s.offer))
	for i, q := range s.offer {
		names[i] = string(q)
	}
	c := "realm=" + quote(s.realm) + ",nonce=" + quote(s.nonce) + ",qop=" + quote(strings.Join(names, ",")) + ",charset=utf-8,algorithm=md5-sess"
	if slices.Contains(s.offer, QOPConf) {
		c += ",cipher=" + quote(strings.Join(Ciphers, ","))
	}
	return []byte(c)
}

// Wrapper protects the messages that follow, or is nil for auth. Valid after Verify.
func (s *Server) Wrapper() *Layer { return s.layer }

// Verify checks the client's answer with the password that lookup gives for its user name, and returns the user name
// and the proof to send back.
//
// Errors: ErrMalformed, ErrProof, and those of lookup.
func (s *Server) Verify(in []byte, lookup func(user string) (password []byte, err error)) (user string, proof []byte, err error) {
	dirs, err := parse(in)
	if err != nil {
		return "", nil, err
	}
	r := response{qop: QOPAuth}
	got, cipher, maxBuf := "", "", defaultMaxBuf
	for _, d := range dirs {
		switch d.key {
		case "username":
			r.user = d.value
		case "realm":
			r.realm = d.value
		case "nonce":
			r.nonce = d.value
		case "cnonce":
			r.cnonce = d.value
		case "nc":
			r.nc = d.value
		case "qop":
			r.qop = QOP(d.value)
		case "digest-uri":
			r.uri = d.value
		case "response":
			got = d.value
		case "cipher":
			cipher = d.value
		case "maxbuf":
			if maxBuf, err = parseMaxBuf(d.value); err != nil {
				return "", nil, err
			}
		}
	}
	if r.user == "" || r.cnonce == "" || got == "" || !slices.Contains(s.offer, r.qop) || r.nc != "00000001" {
		return "", nil, fmt.Errorf("%w: incomplete answer", ErrMalformed)
	}
	if r.nonce != s.nonce || r.realm != s.realm || r.uri != s.uri {
		return "", nil, fmt.Errorf("%w: answer to another challenge", ErrMalformed)
	}
	password, err := lookup(r.user)
	if err != nil {
		return "", nil, err
	}
	if !hmac.Equal([]byte(got), []byte(r.digest(password, "AUTHENTICATE"))) {
		return "", nil, fmt.Errorf("client's answer: %w", ErrProof)
	}
	if s.layer, err = newLayer(r.sessionKey(password), r.qop, cipher, maxBuf, false); err != nil {
		return "", nil, err
	}
	return r.user, []byte("rspauth=" + r.digest(password, "")), nil
}

type response struct {
	user, realm, nonce, cnonce, nc, uri string
	qop                                 QOP
}

// sessionKey is H(A1) of RFC 2831 section 2.1.2.1, of which all keys are made.
func (r response) sessionKey(password []byte) [md5.Size]byte {
	secret := md5.Sum(slices.Concat([]byte(r.user+":"+r.realm+":"), password)) //nolint:gosec // defined so
	return md5.Sum(slices.Concat(secret[:], []byte(":"+r.nonce+":"+r.cnonce))) //nolint:gosec // defined so
}

// digest is response-value of RFC 2831 section 2.1.2.1 (method AUTHENTICATE) or of 2.1.3 (empty method, the server's proof).
func (r response) digest(password []byte, method string) string {
	a1 := r.sessionKey(password)
	text := method + ":" + r.uri
	if r.qop != QOPAuth {
		text += ":00000000000000000000000000000000"
	}
	a2 := md5.Sum([]byte(text)) //nolint:gosec // defined so
	kd := md5.Sum([]byte(hex.EncodeToString(a1[:]) + ":" + r.nonce + ":" + r.nc + ":" + r.cnonce + ":" + string(r.qop) + ":" +
		hex.EncodeToString(a2[:]))) //nolint:gosec // defined so
	return hex.EncodeToString(kd[:])
}
