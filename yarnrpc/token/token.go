// Package token holds Hadoop's security tokens and credentials files. Layer L1; imports the schemas in
// yarnrpc/proto/common only, so that a program that talks to HDFS alone carries no YARN code.
//
// A Token is what a Hadoop service hands out to be authenticated with later; Credentials is a set of tokens and secrets
// by alias, as YARN gives it to a container in the file that HADOOP_TOKEN_FILE_LOCATION names.
//
// Invariants: passwords and secrets never appear in String, in formatted output, in logs or in errors.
//
// Entry points: ReadFile, Credentials, FromEnvironment.
package token

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"

	"github.com/rs/zerolog"
	"google.golang.org/protobuf/proto"

	commonpb "github.com/thalweg/thalweg/yarnrpc/proto/common"
)

// Kind is the type of a token.
type Kind string

// The kinds that Thalweg meets. Source: the KIND_NAME constants of Hadoop's identifier classes.
const (
	KindAMRM           Kind = "YARN_AM_RM_TOKEN"
	KindNM             Kind = "NMToken"
	KindContainer      Kind = "ContainerToken"
	KindClientToAM     Kind = "YARN_CLIENT_TOKEN"
	KindRMDelegation   Kind = "RM_DELEGATION_TOKEN"
	KindHDFSDelegation Kind = "HDFS_DELEGATION_TOKEN"
)

// Token is one security token. The zero value is an empty token.
type Token struct {
	Identifier []byte // who and what for; its format depends on Kind; not secret
	Password   []byte // secret
	Kind       Kind
	Service    string // "ip:port" or a logical name such as "ha-hdfs:nameservice"; empty where the holder fills it in
}

// FromProto copies a token out of a message. A nil message is the empty token.
func FromProto(p *commonpb.TokenProto) Token {
	return Token{
		Identifier: bytes.Clone(p.GetIdentifier()), Password: bytes.Clone(p.GetPassword()),
		Kind: Kind(p.GetKind()), Service: p.GetService(),
	}
}

// Proto returns the token as a message that shares no memory with it.
func (t Token) Proto() *commonpb.TokenProto {
	return &commonpb.TokenProto{
		Identifier: append([]byte{}, t.Identifier...), Password: append([]byte{}, t.Password...),
		Kind: proto.String(string(t.Kind)), Service: proto.String(t.Service),
	}
}

// IsZero reports whether there is no token.
func (t Token) IsZero() bool { return len(t.Identifier) == 0 && len(t.Password) == 0 && t.Kind == "" }

// Equal reports whether both are the same token.
func (t Token) Equal(o Token) bool {
	return t.Kind == o.Kind && t.Service == o.Service && bytes.Equal(t.Identifier, o.Identifier) && bytes.Equal(t.Password, o.Password)
}

// String names kind and service, never the password.
func (t Token) String() string { return fmt.Sprintf("token{kind=%s service=%q}", t.Kind, t.Service) }

// GoString is String, so that %#v reveals nothing either.
func (t Token) GoString() string { return t.String() }

// Format implements fmt.Formatter for all verbs, so that %x and %v of a struct that holds a token reveal nothing.
func (t Token) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(t.String())) }

// MarshalZerologObject logs kind and service.
func (t Token) MarshalZerologObject(e *zerolog.Event) {
	e.Str("kind", string(t.Kind)).Str("service", t.Service)
}

// MarshalJSON gives kind and service, never the password.
func (t Token) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]string{"kind": string(t.Kind), "service": t.Service})
}

// EncodeURLString is Hadoop's printable form of a token, secret included: URL-safe base64 without padding of its writable bytes.
func (t Token) EncodeURLString() string {
	return base64.RawURLEncoding.EncodeToString(appendToken(nil, t))
}

// DecodeURLString reads the form of EncodeURLString.
//
// Errors: ErrMalformed.
func DecodeURLString(s string) (Token, error) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return Token{}, fmt.Errorf("%w: not URL-safe base64", ErrMalformed)
	}
	d := decoder{b: b}
	t := d.token()
	if d.err == nil && len(d.b) > 0 {
		d.err = fmt.Errorf("%w: bytes after the token", ErrMalformed)
	}
	return t, d.err
}
