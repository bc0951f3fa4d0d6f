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

// QOPAuth is the quality of protection that authenticates only.
const QOPAuth = "auth"

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
	QOP     []string // offered, in the server's order; empty in the message means auth
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
			c.QOP = splitList(d.value)
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
		c.QOP = []string{QOPAuth}
	}
	return c, nil
}

// Client is the client half of one exchange. Not safe for concurrent use.
type Client struct {
	user, uri string
	password  []byte
	cnonce    string
	expect    string // rspauth that the server must send
	done      bool
}

// NewClient prepares an exchange as user with the given password. digestURI is "protocol/serverId" of the server's offer.
func NewClient(user string, password []byte, digestURI string) *Client {
	return &Client{user: user, password: bytes.Clone(password), uri: digestURI}
}

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
	if !slices.Contains(ch.QOP, QOPAuth) {
		return nil, fmt.Errorf("server offers protection %v, only %s is supported: set hadoop.rpc.protection=authentication", ch.QOP, QOPAuth)
	}
	realm := ""
	if len(ch.Realms) > 0 {
		realm = ch.Realms[0]
	}
	if c.cnonce == "" {
		c.cnonce = newNonce()
	}
	r := response{user: c.user, realm: realm, nonce: ch.Nonce, cnonce: c.cnonce, nc: "00000001", qop: QOPAuth, uri: c.uri}
	c.expect = r.digest(c.password, "")
	var b strings.Builder
	b.WriteString("charset=utf-8,username=" + quote(c.user))
	if len(ch.Realms) > 0 {
		b.WriteString(",realm=" + quote(realm))
	}
	b.WriteString(",nonce=" + quote(ch.Nonce) + ",nc=" + r.nc + ",cnonce=" + quote(c.cnonce) +
		",digest-uri=" + quote(c.uri) + ",maxbuf=65536,response=" + r.digest(c.password, "AUTHENTICATE") + ",qop=" + QOPAuth)
	return []byte(b.String()), nil
}

// Server is the server half of one exchange. Not safe for concurrent use.
type Server struct {
	realm, nonce, uri string
}

// NewServer prepares an exchange. The digestURI must match the client's.
func NewServer(realm, digestURI string) *Server {
	return &Server{realm: realm, nonce: newNonce(), uri: digestURI}
}

// Challenge is the first message to the client.
func (s *Server) Challenge() []byte {
	return []byte("realm=" + quote(s.realm) + ",nonce=" + quote(s.nonce) + `,qop="auth",charset=utf-8,algorithm=md5-sess`)
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
	got := ""
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
			r.qop = d.value
		case "digest-uri":
			r.uri = d.value
		case "response":
			got = d.value
		}
	}
	if r.user == "" || r.cnonce == "" || got == "" || r.qop != QOPAuth || r.nc != "00000001" {
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
	return r.user, []byte("rspauth=" + r.digest(password, "")), nil
}

type response struct{ user, realm, nonce, cnonce, nc, qop, uri string }

// digest is response-value of RFC 2831 section 2.1.2.1 (method AUTHENTICATE) or of 2.1.3 (empty method, the server's proof).
func (r response) digest(password []byte, method string) string {
	secret := md5.Sum(slices.Concat([]byte(r.user+":"+r.realm+":"), password)) //nolint:gosec // defined so
	a1 := md5.Sum(slices.Concat(secret[:], []byte(":"+r.nonce+":"+r.cnonce)))  //nolint:gosec // defined so
	a2 := md5.Sum([]byte(method + ":" + r.uri))                                //nolint:gosec // defined so
	kd := md5.Sum([]byte(hex.EncodeToString(a1[:]) + ":" + r.nonce + ":" + r.nc + ":" + r.cnonce + ":" + r.qop + ":" +
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
