package token

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/rs/zerolog"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	commonpb "github.com/thalweg/thalweg/yarnrpc/proto/common"
)

// EnvFile is the environment variable in which YARN tells a container where its credentials file is.
const EnvFile = "HADOOP_TOKEN_FILE_LOCATION"

// maxFile bounds a credentials file in bytes. Real ones have a few kilobytes.
const maxFile = 16 << 20

// Format is a version of the credentials file.
type Format byte

// The two versions of the format. Source: hadoop-common Credentials.SerializedFormat.
const (
	Writable Format = 0
	Protobuf Format = 1
)

// Credentials is a set of tokens and of secrets, by alias. The zero value is empty and ready. Not safe for concurrent use.
//
// File format, both versions:
//
//	offset  size  value
//	0       4     "HDTS"
//	4       1     version: 0 writable, 1 protobuf
//	5       -     0: vint n, n x (text alias, token), vint m, m x (text alias, vint length, bytes)
//	              1: CredentialsProto after its length as a protobuf varint
//
// Source: hadoop-common Credentials, Hadoop 3.4.
type Credentials struct {
	tokens  map[string]Token
	secrets map[string][]byte
}

// Token returns the token of an alias.
func (c *Credentials) Token(alias string) (Token, bool) {
	t, ok := c.tokens[alias]
	return t, ok
}

// ByKind returns the first token of a kind, by alias order. YARN gives the AMRM token an empty alias and service, so
// that it can only be found like this.
func (c *Credentials) ByKind(k Kind) (Token, bool) {
	for _, a := range c.Aliases() {
		if c.tokens[a].Kind == k {
			return c.tokens[a], true
		}
	}
	return Token{}, false
}

// ByService returns the token of a kind for a service.
func (c *Credentials) ByService(k Kind, service string) (Token, bool) {
	for _, a := range c.Aliases() {
		if t := c.tokens[a]; t.Kind == k && t.Service == service {
			return t, true
		}
	}
	return Token{}, false
}

// Put adds a token or replaces the alias's.
func (c *Credentials) Put(alias string, t Token) {
	if c.tokens == nil {
		c.tokens = make(map[string]Token)
	}
	c.tokens[alias] = t
}

// Remove deletes a token.
func (c *Credentials) Remove(alias string) { delete(c.tokens, alias) }

// Aliases returns the aliases of all tokens, sorted.
func (c *Credentials) Aliases() []string { return slices.Sorted(maps.Keys(c.tokens)) }

// Len is the number of tokens.
func (c *Credentials) Len() int { return len(c.tokens) }

// Secret returns the secret of an alias. The slice belongs to c.
func (c *Credentials) Secret(alias string) ([]byte, bool) {
	s, ok := c.secrets[alias]
	return s, ok
}

// PutSecret adds a secret or replaces the alias's.
func (c *Credentials) PutSecret(alias string, v []byte) {
	if c.secrets == nil {
		c.secrets = make(map[string][]byte)
	}
	c.secrets[alias] = bytes.Clone(v)
}

// SecretAliases returns the aliases of all secrets, sorted.
func (c *Credentials) SecretAliases() []string { return slices.Sorted(maps.Keys(c.secrets)) }

// AddAll puts all of o into c; what has the same alias is replaced.
func (c *Credentials) AddAll(o *Credentials) {
	for a, t := range o.tokens {
		c.Put(a, t)
	}
	for a, s := range o.secrets {
		c.PutSecret(a, s)
	}
}

// Clone returns a copy.
func (c *Credentials) Clone() *Credentials {
	n := &Credentials{}
	n.AddAll(c)
	return n
}

// String lists kinds and services, never passwords or secrets.
func (c *Credentials) String() string {
	var b bytes.Buffer
	b.WriteString("credentials{")
	for i, a := range c.Aliases() {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(c.tokens[a].String())
	}
	fmt.Fprintf(&b, " secrets=%d}", len(c.secrets))
	return b.String()
}

// Format implements fmt.Formatter, so that no verb prints a secret.
func (c *Credentials) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(c.String())) }

// GoString is String.
func (c *Credentials) GoString() string { return c.String() }

// MarshalZerologObject logs the tokens' kinds and services.
func (c *Credentials) MarshalZerologObject(e *zerolog.Event) {
	e.Stringer("tokens", c)
}

// Encode returns the file's bytes. They are what ContainerLaunchContextProto.tokens holds too.
func (c *Credentials) Encode(f Format) ([]byte, error) {
	b := append([]byte("HDTS"), byte(f))
	switch f {
	case Writable:
		b = appendVLong(b, int64(len(c.tokens)))
		for _, a := range c.Aliases() {
			b = appendToken(appendText(b, a), c.tokens[a])
		}
		b = appendVLong(b, int64(len(c.secrets)))
		for _, a := range c.SecretAliases() {
			b = appendBytes(appendText(b, a), c.secrets[a])
		}
		return b, nil
	case Protobuf:
		m := &commonpb.CredentialsProto{}
		for _, a := range c.Aliases() {
			m.Tokens = append(m.Tokens, &commonpb.CredentialsKVProto{Alias: proto.String(a), Token: c.tokens[a].Proto()})
		}
		for _, a := range c.SecretAliases() {
			m.Secrets = append(m.Secrets, &commonpb.CredentialsKVProto{Alias: proto.String(a), Secret: c.secrets[a]})
		}
		raw, err := proto.Marshal(m)
		if err != nil {
			return nil, fmt.Errorf("token: encode credentials: %w", err)
		}
		return protowire.AppendBytes(b, raw), nil
	default:
		return nil, fmt.Errorf("token: encode credentials: unknown format %d", f)
	}
}

// Decode reads the bytes of a credentials file of either version.
//
// Errors: ErrMalformed.
func Decode(b []byte) (*Credentials, error) {
	if len(b) < 5 || string(b[:4]) != "HDTS" {
		return nil, fmt.Errorf("token: %w: not a Hadoop credentials file", ErrMalformed)
	}
	c := &Credentials{}
	switch Format(b[4]) {
	case Writable:
		d := decoder{b: b[5:]}
		for n := d.vlong(); n > 0 && d.err == nil; n-- {
			alias := d.text()
			if t := d.token(); d.err == nil {
				c.Put(alias, t)
			}
		}
		for n := d.vlong(); n > 0 && d.err == nil; n-- {
			alias := d.text()
			if s := d.bytes(); d.err == nil {
				c.PutSecret(alias, s)
			}
		}
		if d.err != nil {
			return nil, fmt.Errorf("token: credentials file: %w", d.err)
		}
	case Protobuf:
		raw, n := protowire.ConsumeBytes(b[5:])
		if n < 0 {
			return nil, fmt.Errorf("token: credentials file: %w: truncated", ErrMalformed)
		}
		m := &commonpb.CredentialsProto{}
		if err := proto.Unmarshal(raw, m); err != nil {
			return nil, fmt.Errorf("token: credentials file: %w: not a CredentialsProto", ErrMalformed)
		}
		for _, kv := range m.GetTokens() {
			c.Put(kv.GetAlias(), FromProto(kv.GetToken()))
		}
		for _, kv := range m.GetSecrets() {
			c.PutSecret(kv.GetAlias(), kv.GetSecret())
		}
	default:
		return nil, fmt.Errorf("token: %w: credentials file of unknown version %d", ErrMalformed, b[4])
	}
	return c, nil
}

// ReadFile reads a credentials file.
//
// Errors: fs.ErrNotExist, ErrMalformed, both with the file's name.
func ReadFile(name string) (*Credentials, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("token: read credentials: %w", err)
	}
	defer f.Close() //nolint:errcheck // only read
	var b bytes.Buffer
	if n, err := b.ReadFrom(&limited{f, maxFile}); err != nil {
		return nil, fmt.Errorf("token: read credentials %s after %d bytes: %w", name, n, err)
	}
	c, err := Decode(b.Bytes())
	if err != nil {
		return nil, fmt.Errorf("token: read %s: %w", name, err)
	}
	return c, nil
}

// WriteFile writes a credentials file that only the owner can read, by writing a new file and renaming it.
func WriteFile(name string, c *Credentials, f Format) error {
	b, err := c.Encode(f)
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(name), ".credentials-*") // created with mode 0600
	if err != nil {
		return fmt.Errorf("token: write credentials: %w", err)
	}
	_, err = tmp.Write(b)
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(tmp.Name(), name)
	}
	if err != nil {
		_ = os.Remove(tmp.Name())
		return fmt.Errorf("token: write credentials %s: %w", name, err)
	}
	return nil
}

// FromEnvironment reads the file that HADOOP_TOKEN_FILE_LOCATION names. Without the variable the result is empty.
func FromEnvironment() (*Credentials, error) {
	name := os.Getenv(EnvFile)
	if name == "" {
		return &Credentials{}, nil
	}
	c, err := ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s points there", err, EnvFile)
	}
	return c, err
}

// limited fails when more than n bytes are read.
type limited struct {
	f *os.File
	n int
}

func (l *limited) Read(p []byte) (int, error) {
	n, err := l.f.Read(p)
	if l.n -= n; l.n < 0 {
		return 0, fmt.Errorf("%w: larger than %d bytes", ErrMalformed, maxFile)
	}
	return n, err
}
