// Package digestmd5 is SASL DIGEST-MD5 as Hadoop uses it to log in with tokens: both halves, quality of protection
// "auth". It belongs to yarnrpc/ipc (layer L1) and imports nothing of ours.
//
// Flow: the server sends a challenge (NewServer, Challenge), the client answers (Client.Step), the server checks the
// answer and proves that it knows the password too (Server.Verify), the client checks that (Client.Step again).
//
// Invariants:
//  1. Neither half reveals the password; errors never quote a challenge or an answer.
//  2. A client is not done before it has checked the server's proof (rspauth).
//
// Source: RFC 2831; Hadoop's SaslRpcClient and SaslRpcServer, which use md5-sess, UTF-8 and the realm "default".
package digestmd5

import (
	"bytes"
	"crypto/hmac"
	"crypto/md5" //nolint:gosec // the mechanism is defined over MD5
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Mechanism is the SASL name.
const Mechanism = "DIGEST-MD5"

// QOP is a quality of protection by its SASL name.
type QOP string

// The qualities of protection: authentication only, integrity of messages, confidentiality too.
const (
	QOPAuth QOP = "auth"
	QOPInt  QOP = "auth-int"
	QOPConf QOP = "auth-conf"
)

// maxChallenge bounds what RFC 2831 allows for a challenge or an answer (2048 and 4096 bytes), with room for Hadoop's
// user names, which are whole token identifiers.
const maxMessage = 64 << 10

var (
	// ErrMalformed is wrapped by errors about a challenge or answer that does not parse.
	ErrMalformed = errors.New("malformed DIGEST-MD5 message")
	// ErrProof says that the peer does not know the password: a client gets it for a wrong rspauth, a server for a wrong response.
	ErrProof = errors.New("digest does not match")
)

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
	c := Challenge{MaxBuf: 65536}
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
			n, err := strconv.Atoi(d.value)
			if err != nil || n <= 16 || n > 1<<24-1 {
				return c, fmt.Errorf("%w: maxbuf out of range", ErrMalformed)
			}
			c.MaxBuf = n
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

// Client is the client half of one exchange. Not safe for concurrent use.
type Client struct {
	user, uri string
	password  []byte
	accept    []QOP
	cnonce    string
	expect    string // rspauth that the server must send
	done      bool
	wrapper   *Layer
}

// NewClient prepares an exchange as user with the given password. digestURI is "protocol/serverId" of the server's offer. accept are the
// qualities of protection in order of preference, QOPAuth by default.
func NewClient(user string, password []byte, digestURI string, accept ...QOP) *Client {
	if len(accept) == 0 {
		accept = []QOP{QOPAuth}
	}
	return &Client{user: user, password: bytes.Clone(password), uri: digestURI, accept: accept}
}

// Wrapper is the negotiated protection, nil for authentication only. Valid after done.
func (c *Client) Wrapper() *Layer { return c.wrapper }

// Step takes the server's next message and returns what to send; done is true when the server has proved itself.
//
// Errors: ErrMalformed; ErrProof when the server does not know the password.
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
	at := slices.IndexFunc(c.accept, func(q QOP) bool { return slices.Contains(ch.QOP, q) })
	if at < 0 {
		return nil, fmt.Errorf("server offers protection %v, this client accepts %v: set hadoop.rpc.protection as the server has it", ch.QOP, c.accept)
	}
	qop, cipherName := c.accept[at], ""
	if qop == QOPConf {
		if cipherName, err = strongest(ch.Ciphers); err != nil {
			return nil, err
		}
	}
	realm := ""
	if len(ch.Realms) > 0 {
		realm = ch.Realms[0]
	}
	if c.cnonce == "" {
		c.cnonce = newNonce()
	}
	r := response{user: c.user, realm: realm, nonce: ch.Nonce, cnonce: c.cnonce, nc: "00000001", qop: qop, uri: c.uri}
	if c.wrapper, err = newLayer(r.session(c.password), qop, cipherName, true); err != nil {
		return nil, err
	}
	c.expect = r.digest(c.password, "")
	var b strings.Builder
	b.WriteString("charset=utf-8,username=" + quote(c.user))
	if len(ch.Realms) > 0 {
		b.WriteString(",realm=" + quote(realm))
	}
	b.WriteString(",nonce=" + quote(ch.Nonce) + ",nc=" + r.nc + ",cnonce=" + quote(c.cnonce) +
		",digest-uri=" + quote(c.uri) + ",maxbuf=65536,response=" + r.digest(c.password, "AUTHENTICATE") + ",qop=" + string(qop))
	if cipherName != "" {
		b.WriteString(",cipher=" + quote(cipherName))
	}
	return []byte(b.String()), nil
}

// Server is the server half of one exchange. Not safe for concurrent use.
type Server struct {
	realm, nonce, uri string
	offer             []QOP
	wrapper           *Layer
}

// NewServer prepares an exchange. The digestURI must match the client's. offer is what the client may choose from, QOPAuth by default.
func NewServer(realm, digestURI string, offer ...QOP) *Server {
	if len(offer) == 0 {
		offer = []QOP{QOPAuth}
	}
	return &Server{realm: realm, nonce: newNonce(), uri: digestURI, offer: offer}
}

// Wrapper is the negotiated protection, nil for authentication only. Valid after Verify.
func (s *Server) Wrapper() *Layer { return s.wrapper }

// Challenge is the first message to the client.
func (s *Server) Challenge() []byte {
	names := make([]string, len(s.offer))
	for i, q := range s.offer {
		names[i] = string(q)
	}
	out := "realm=" + quote(s.realm) + ",nonce=" + quote(s.nonce) + ",qop=" + quote(strings.Join(names, ",")) + ",charset=utf-8,algorithm=md5-sess"
	if slices.Contains(s.offer, QOPConf) {
		out += ",cipher=" + quote(strings.Join(ciphers, ","))
	}
	return []byte(out)
}

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
	got, cipherName := "", ""
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
		case "cipher":
			cipherName = d.value
		case "digest-uri":
			r.uri = d.value
		case "response":
			got = d.value
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
	if s.wrapper, err = newLayer(r.session(password), r.qop, cipherName, false); err != nil {
		return "", nil, err
	}
	return r.user, []byte("rspauth=" + r.digest(password, "")), nil
}

type response struct {
	user, realm, nonce, cnonce, nc, uri string
	qop                                 QOP
}

// session is H(A1) of RFC 2831 section 2.1.2.1, which the keys of protection are made of.
func (r response) session(password []byte) [16]byte {
	secret := md5.Sum(slices.Concat([]byte(r.user+":"+r.realm+":"), password)) //nolint:gosec // defined so
	return md5.Sum(slices.Concat(secret[:], []byte(":"+r.nonce+":"+r.cnonce))) //nolint:gosec // defined so
}

// digest is response-value of RFC 2831 section 2.1.2.1 (method AUTHENTICATE) or of 2.1.3 (empty method, the server's proof).
func (r response) digest(password []byte, method string) string {
	a1 := r.session(password)
	entity := ""
	if r.qop != QOPAuth {
		entity = ":" + strings.Repeat("0", 32)
	}
	a2 := md5.Sum([]byte(method + ":" + r.uri + entity)) //nolint:gosec // defined so
	kd := md5.Sum([]byte(hex.EncodeToString(a1[:]) + ":" + r.nonce + ":" + r.nc + ":" + r.cnonce + ":" + string(r.qop) + ":" +
		hex.EncodeToString(a2[:]))) //nolint:gosec // defined so
	return hex.EncodeToString(kd[:])
}

func newNonce() string {
	var b [24]byte
	_, _ = rand.Read(b[:]) // never fails, by its contract
	return base64.StdEncoding.EncodeToString(b[:])
}

func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

func splitList(s string) []string {
	var out []string
	for p := range strings.SplitSeq(s, ",") {
		if p = strings.TrimSpace(p); p != "" {
			out = append(out, p)
		}
	}
	return out
}

type directive struct{ key, value string }

// parse splits a message into its directives: key=token or key="quoted string", separated by commas, with white space
// and empty elements allowed between them.
func parse(b []byte) ([]directive, error) {
	if len(b) > maxMessage {
		return nil, fmt.Errorf("%w: %d bytes", ErrMalformed, len(b))
	}
	var out []directive
	i := 0
	for {
		for i < len(b) && (b[i] == ',' || isSpace(b[i])) {
			i++
		}
		if i == len(b) {
			return out, nil
		}
		start := i
		for i < len(b) && b[i] != '=' && b[i] != ',' && !isSpace(b[i]) {
			i++
		}
		key := strings.ToLower(string(b[start:i]))
		for i < len(b) && isSpace(b[i]) {
			i++
		}
		if key == "" || i == len(b) || b[i] != '=' {
			return nil, fmt.Errorf("%w: directive without value", ErrMalformed)
		}
		i++
		for i < len(b) && isSpace(b[i]) {
			i++
		}
		var value []byte
		if i < len(b) && b[i] == '"' {
			i++
			closed := false
			for i < len(b) && !closed {
				switch {
				case b[i] == '"':
					closed = true
				case b[i] == '\\' && i+1 < len(b):
					i++
					value = append(value, b[i])
				default:
					value = append(value, b[i])
				}
				i++
			}
			if !closed {
				return nil, fmt.Errorf("%w: open quote", ErrMalformed)
			}
		} else {
			start = i
			for i < len(b) && b[i] != ',' && !isSpace(b[i]) {
				i++
			}
			value = b[start:i]
		}
		out = append(out, directive{key, string(value)})
		for i < len(b) && isSpace(b[i]) {
			i++
		}
		if i < len(b) && b[i] != ',' {
			return nil, fmt.Errorf("%w: no comma between directives", ErrMalformed)
		}
	}
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }
