package token_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"pgregory.net/rapid"

	"github.com/thalweg/thalweg/yarnrpc/token"
)

// java-v0.bin, java-v1.bin and java-hdfs-identifier.bin were written by Hadoop 3.4.2's own classes.
func sample() *token.Credentials {
	c := &token.Credentials{}
	c.Put("alias-1", token.Token{Identifier: []byte{1, 2, 200}, Password: []byte{9, 8, 7}, Kind: token.KindHDFSDelegation, Service: "127.0.0.1:8020"})
	c.Put("", token.Token{Identifier: make([]byte, 300), Password: []byte{1}, Kind: token.KindAMRM})
	c.PutSecret("s\u00e9cret", []byte{5, 6})
	return c
}

func equal(a, b *token.Credentials) bool {
	if a.Len() != b.Len() || len(a.SecretAliases()) != len(b.SecretAliases()) {
		return false
	}
	for _, alias := range a.Aliases() {
		x, _ := a.Token(alias)
		if y, ok := b.Token(alias); !ok || !x.Equal(y) {
			return false
		}
	}
	for _, alias := range a.SecretAliases() {
		x, _ := a.Secret(alias)
		if y, ok := b.Secret(alias); !ok || !bytes.Equal(x, y) {
			return false
		}
	}
	return true
}

func TestFilesOfJava(t *testing.T) {
	for _, name := range []string{"java-v0.bin", "java-v1.bin"} {
		c, err := token.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		if !equal(c, sample()) {
			t.Errorf("%s: %v", name, c)
		}
	}
	want, err := os.ReadFile("testdata/java-v0.bin")
	if err != nil {
		t.Fatal(err)
	}
	got, err := sample().Encode(token.Writable)
	if err != nil || len(got) != len(want) { // Java orders tokens by hash
		t.Errorf("%d bytes, want %d, %v", len(got), len(want), err)
	}
}

func TestURLStringOfJava(t *testing.T) {
	const java = "AwECyAMJCAcVSERGU19ERUxFR0FUSU9OX1RPS0VODjEyNy4wLjAuMTo4MDIw"
	want, _ := sample().Token("alias-1")
	got, err := token.DecodeURLString(java)
	if err != nil || !got.Equal(want) || want.EncodeURLString() != java {
		t.Errorf("%v %v", got, err)
	}
}

func TestDelegationIdentifierOfJava(t *testing.T) {
	b, err := os.ReadFile("testdata/java-hdfs-identifier.bin")
	if err != nil {
		t.Fatal(err)
	}
	got, err := token.DecodeDelegationIdentifier(b)
	want := token.DelegationIdentifier{Owner: "alice", Renewer: "yarn", RealUser: "gateway",
		IssueDate: 1700000000000, MaxDate: 1700604800000, SequenceNumber: 42, MasterKeyID: -7}
	if err != nil || got != want {
		t.Errorf("%+v %v", got, err)
	}
}

func TestRoundTrip(t *testing.T) {
	tokens := rapid.Custom(func(t *rapid.T) token.Token {
		return token.Token{
			Identifier: rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "id"), Password: rapid.SliceOf(rapid.Byte()).Draw(t, "password"),
			Kind: token.Kind(rapid.String().Draw(t, "kind")), Service: rapid.String().Draw(t, "service"),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		c := &token.Credentials{}
		for a, tok := range rapid.MapOf(rapid.String(), tokens).Draw(t, "tokens") {
			c.Put(a, tok)
		}
		for a, s := range rapid.MapOf(rapid.String(), rapid.SliceOf(rapid.Byte())).Draw(t, "secrets") {
			c.PutSecret(a, s)
		}
		for _, f := range []token.Format{token.Writable, token.Protobuf} {
			b, err := c.Encode(f)
			if err != nil {
				t.Fatal(err)
			}
			back, err := token.Decode(b)
			if err != nil || !equal(back, c) {
				t.Fatalf("format %d: %v, %v", f, back, err)
			}
			for n := range b { // every truncation is an error
				if _, err := token.Decode(b[:n]); !errors.Is(err, token.ErrMalformed) {
					t.Fatalf("format %d cut to %d of %d bytes: %v", f, n, len(b), err)
				}
			}
		}
	})
}

// No way of printing reveals a password, identifier or secret.
func TestNothingPrintsSecrets(t *testing.T) {
	const password, secret = "hunter2-password", "shared-secret"
	tok := token.Token{Identifier: []byte("id"), Password: []byte(password), Kind: token.KindNM, Service: "h:1"}
	creds := &token.Credentials{}
	creds.Put("a", tok)
	creds.PutSecret("s", []byte(secret))
	holder := struct {
		T token.Token
		P *token.Token
		C *token.Credentials
	}{tok, &tok, creds}
	var out bytes.Buffer
	for _, v := range []any{tok, &tok, creds, holder, &holder, []token.Token{tok}, map[string]token.Token{"x": tok}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
			_, _ = fmt.Fprintf(&out, verb+"\n", v)
		}
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		out.Write(b)
	}
	log := zerolog.New(&out)
	log.Info().Object("token", tok).Object("creds", creds).Interface("any", holder).Any("t", tok).Stringer("s", tok).Msg("x")
	for _, word := range []string{password, secret} {
		for _, form := range []string{word, fmt.Sprintf("%x", word), fmt.Sprintf("%X", word), strings.Trim(fmt.Sprint([]byte(word)), "[]")} {
			if strings.Contains(out.String(), form) {
				t.Errorf("%q is in the output", form)
			}
		}
	}
	if !strings.Contains(out.String(), "NMToken") {
		t.Error("kind is not printed")
	}
}

func TestWriteFileIsPrivate(t *testing.T) {
	name := filepath.Join(t.TempDir(), "creds")
	if err := token.WriteFile(name, sample(), token.Writable); err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(name)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	t.Setenv(token.EnvFile, name)
	c, err := token.FromEnvironment()
	if err != nil || !equal(c, sample()) {
		t.Errorf("%v %v", c, err)
	}
	t.Setenv(token.EnvFile, name+"-missing")
	if _, err := token.FromEnvironment(); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), token.EnvFile) {
		t.Errorf("missing file: %v", err)
	}
}

func TestLookups(t *testing.T) {
	c := sample()
	if tok, ok := c.ByKind(token.KindAMRM); !ok || tok.Service != "" {
		t.Errorf("%v %v", tok, ok)
	}
	if _, ok := c.ByService(token.KindHDFSDelegation, "127.0.0.1:8020"); !ok {
		t.Error("by service")
	}
	d := c.Clone()
	d.Remove("alias-1")
	if _, ok := c.Token("alias-1"); !ok || d.Len() != 1 {
		t.Error("clone shares the map")
	}
}

func FuzzDecode(f *testing.F) {
	for _, name := range []string{"java-v0.bin", "java-v1.bin"} {
		b, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte("HDTS\x00\x8c\x7f\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := token.Decode(b)
		if err != nil {
			return
		}
		again, err := c.Encode(token.Writable)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := token.Decode(again); err != nil || !equal(back, c) {
			t.Fatalf("%v: %v", back, err)
		}
	})
}

func FuzzDecodeURLString(f *testing.F) {
	f.Add("AwECyAMJCAcVSERGU19ERUxFR0FUSU9OX1RPS0VODjEyNy4wLjAuMTo4MDIw")
	f.Fuzz(func(_ *testing.T, s string) { _, _ = token.DecodeURLString(s) })
}

func FuzzDelegationIdentifier(f *testing.F) {
	b, err := os.ReadFile("testdata/java-hdfs-identifier.bin")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(_ *testing.T, b []byte) { _, _ = token.DecodeDelegationIdentifier(b) })
}
