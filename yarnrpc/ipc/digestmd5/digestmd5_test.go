package digestmd5

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// The example of RFC 2831 section 4.
func TestRFC2831Example(t *testing.T) {
	c := NewClient("chris", []byte("secret"), "imap/elwood.innosoft.com")
	c.cnonce = "OA6MHXh6VqTrRk"
	out, done, err := c.Step([]byte(`realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",qop="auth",algorithm=md5-sess,charset=utf-8`))
	if err != nil || done {
		t.Fatal(done, err)
	}
	if !strings.Contains(string(out), "response=d388dad90d4bbd760a152321f2143af7") {
		t.Errorf("answer %s", out)
	}
	if _, done, err = c.Step([]byte("rspauth=ea40f60335c427b5527b84dbabcdfffd")); err != nil || !done {
		t.Errorf("server's proof of the RFC refused: %v %v", done, err)
	}
}

func TestServerMustProveItself(t *testing.T) {
	c := NewClient("u", []byte("p"), "/default")
	s := NewServer("default", "/default")
	if _, _, err := c.Step(s.Challenge()); err != nil {
		t.Fatal(err)
	}
	if _, done, err := c.Step([]byte("rspauth=00000000000000000000000000000000")); done || !errors.Is(err, ErrProof) {
		t.Errorf("wrong proof: done %v, %v", done, err)
	}
	if _, done, err := c.Step([]byte("stale=true")); done || !errors.Is(err, ErrMalformed) {
		t.Errorf("no proof: done %v, %v", done, err)
	}
}

// Both halves agree for any user name and password, and only then.
func TestHalvesAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		user := rapid.StringN(1, 60, 200).Draw(t, "user")
		password := rapid.SliceOf(rapid.Byte()).Draw(t, "password")
		stored := rapid.OneOf(rapid.Just(password), rapid.SliceOf(rapid.Byte())).Draw(t, "stored")
		c, s := NewClient(user, password, "/default"), NewServer("default", "/default")
		out, _, err := c.Step(s.Challenge())
		if err != nil {
			t.Fatal(err)
		}
		got, proof, err := s.Verify(out, func(u string) ([]byte, error) { return stored, nil })
		if string(stored) != string(password) {
			if !errors.Is(err, ErrProof) {
				t.Fatalf("wrong password accepted: %v", err)
			}
			return
		}
		if err != nil || got != user {
			t.Fatalf("user %q: %v", got, err)
		}
		if _, done, err := c.Step(proof); err != nil || !done {
			t.Fatalf("proof: %v %v", done, err)
		}
	})
}

func TestParseChallenge(t *testing.T) {
	for _, tc := range []struct{ in, err string }{
		{`nonce="n",algorithm=md5-sess`, ""},
		{` nonce = "a\"b" , , algorithm=md5-sess , qop="auth-conf, auth" `, ""},
		{`realm="r",algorithm=md5-sess`, "no nonce"},
		{`nonce="n"`, "algorithm"},
		{`nonce="n",nonce="m",algorithm=md5-sess`, "twice"},
		{`nonce="n,algorithm=md5-sess`, "open quote"},
		{`nonce`, "without value"},
		{`nonce="n" algorithm=md5-sess`, "no comma"},
		{`nonce="n",algorithm=md5-sess,maxbuf=99999999999`, "maxbuf"},
	} {
		_, err := ParseChallenge([]byte(tc.in))
		if (err == nil) != (tc.err == "") || (err != nil && (!errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), tc.err))) {
			t.Errorf("%s: %v, want %q", tc.in, err, tc.err)
		}
	}
	c, err := ParseChallenge([]byte(`nonce="a\"b",algorithm=md5-sess,qop="auth-conf, auth",realm="x",realm="y"`))
	if err != nil || c.Nonce != `a"b` || len(c.QOP) != 2 || len(c.Realms) != 2 {
		t.Errorf("%+v %v", c, err)
	}
}

func TestQualityIsTheClientsChoice(t *testing.T) {
	for _, tc := range []struct {
		offered string
		accept  []QOP
		want    QOP // empty for a refusal
	}{
		{`qop="auth,auth-int,auth-conf",cipher="rc4,3des"`, nil, QOPAuth},
		{`qop="auth,auth-int,auth-conf",cipher="rc4,3des"`, []QOP{QOPConf, QOPAuth}, QOPConf},
		{`qop="auth-conf,auth-int",cipher="rc4"`, []QOP{QOPAuth, QOPInt, QOPConf}, QOPInt},
		{`qop="auth-conf,auth-int",cipher="aes"`, []QOP{QOPConf, QOPInt}, QOPInt}, // no cipher in common
		{`qop="auth-int"`, nil, ""},
		{`qop="auth"`, []QOP{QOPInt, QOPConf}, ""},
		{`charset=utf-8`, []QOP{QOPConf}, ""}, // offers auth by saying nothing
	} {
		out, _, err := NewClient("u", []byte("p"), "/", tc.accept...).Step([]byte(`nonce="n",algorithm=md5-sess,` + tc.offered))
		var mismatch *MismatchError
		if tc.want == "" {
			if !errors.As(err, &mismatch) || len(out) > 0 {
				t.Errorf("%s, accept %v: %q %v", tc.offered, tc.accept, out, err)
			}
		} else if err != nil || !strings.Contains(string(out), ",qop="+string(tc.want)) {
			t.Errorf("%s, accept %v: %q %v", tc.offered, tc.accept, out, err)
		}
	}
}

func FuzzStep(f *testing.F) {
	f.Add([]byte(`realm="default",nonce="n",qop="auth",charset=utf-8,algorithm=md5-sess`), []byte("rspauth=ab"))
	f.Add([]byte(`nonce="\`), []byte(``))
	f.Fuzz(func(t *testing.T, challenge, proof []byte) {
		c := NewClient("user", []byte("password"), "/default")
		if _, done, err := c.Step(challenge); err != nil || done {
			if done {
				t.Fatal("done before the server proved itself")
			}
			return
		}
		if _, done, _ := c.Step(proof); done {
			t.Fatal("accepted a proof that nobody could make")
		}
	})
}

func FuzzVerify(f *testing.F) {
	f.Add([]byte(`username="u",realm="default",nonce="n",nc=00000001,cnonce="c",digest-uri="/default",response=ab,qop=auth`))
	f.Fuzz(func(t *testing.T, answer []byte) {
		s := NewServer("default", "/default")
		if _, _, err := s.Verify(answer, func(string) ([]byte, error) { return []byte("p"), nil }); err == nil {
			t.Fatal("accepted an answer that nobody could make")
		}
	})
}
