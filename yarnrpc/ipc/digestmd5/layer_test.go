package digestmd5

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// login runs one exchange; cipher may be empty for the default.
func login(t interface{ Fatal(...any) }, qop QOP, cipher string) (client, server *Layer) {
	c, s := NewClient("user", []byte("secret"), "/default", qop), NewServer("default", "/default", QOPAuth, QOPInt, QOPConf)
	if cipher != "" {
		c.Ciphers = []string{cipher}
	}
	answer, _, err := c.Step(s.Challenge())
	if err != nil {
		t.Fatal(err)
	}
	_, proof, err := s.Verify(answer, func(string) ([]byte, error) { return []byte("secret"), nil })
	if err != nil {
		t.Fatal(err)
	}
	if c.Wrapper() != nil {
		t.Fatal("messages may be wrapped before the server proved itself")
	}
	if _, done, err := c.Step(proof); err != nil || !done {
		t.Fatal(done, err)
	}
	return c.Wrapper(), s.Wrapper()
}

func TestAuthenticationAloneHasNoWrapper(t *testing.T) {
	if c, s := login(t, QOPAuth, ""); c != nil || s != nil {
		t.Error("messages are wrapped")
	}
}

// What one side wraps the other unwraps, in order and both ways; a message that is changed, left out, repeated or sent
// back where it came from is found, and nothing is believed after it.
func TestLayer(t *testing.T) {
	kinds := []string{""}
	kinds = append(kinds, Ciphers...)
	rapid.Check(t, func(t *rapid.T) {
		cipher := rapid.SampledFrom(kinds).Draw(t, "cipher")
		qop := QOPConf
		if cipher == "" {
			qop = QOPInt
		}
		client, server := login(t, qop, cipher)
		message := rapid.SliceOfN(rapid.Byte(), 0, 300)
		for range rapid.IntRange(0, 20).Draw(t, "messages") {
			from, to := client, server
			if rapid.Bool().Draw(t, "answer") {
				from, to = server, client
			}
			m := message.Draw(t, "message")
			w, err := from.Wrap(m)
			if err != nil {
				t.Fatal(err)
			}
			if len(w) > len(m)+overhead {
				t.Fatalf("%d bytes became %d", len(m), len(w))
			}
			if qop == QOPConf && len(m) > 8 && bytes.Contains(w, m) {
				t.Fatal("the message can be read")
			}
			got, err := to.Unwrap(w)
			if err != nil || !bytes.Equal(got, m) {
				t.Fatalf("%x came as %x: %v", m, got, err)
			}
		}
		first, _ := client.Wrap(message.Draw(t, "first"))
		second, _ := client.Wrap(message.Draw(t, "second"))
		var bad []byte
		to := server
		switch harm := rapid.SampledFrom([]string{"flip", "lost", "cut", "sent back"}).Draw(t, "harm"); harm {
		case "flip":
			bad = bytes.Clone(first)
			i := rapid.IntRange(0, len(bad)*8-1).Draw(t, "bit")
			bad[i/8] ^= 1 << (i % 8)
		case "lost":
			bad = second
		case "cut":
			bad = first[:rapid.IntRange(0, len(first)-1).Draw(t, "length")]
		case "sent back":
			bad, to = bytes.Clone(first), client
		}
		if got, err := to.Unwrap(bad); !errors.Is(err, ErrTampered) {
			t.Fatalf("accepted as %x: %v", got, err)
		}
		if _, err := to.Unwrap(first); !errors.Is(err, ErrTampered) {
			t.Fatalf("a message was believed after a wrong one: %v", err)
		}
	})
}

func TestRepeatedMessageIsFound(t *testing.T) {
	for _, cipher := range append([]string{""}, Ciphers...) {
		qop := QOPConf
		if cipher == "" {
			qop = QOPInt
		}
		client, server := login(t, qop, cipher)
		w, err := client.Wrap([]byte("once"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := server.Unwrap(bytes.Clone(w)); err != nil {
			t.Fatal(err)
		}
		if _, err := server.Unwrap(w); !errors.Is(err, ErrTampered) {
			t.Errorf("%s %s: %v", qop, cipher, err)
		}
	}
}

// The peer says how much it takes at once.
func TestLimitIsThePeers(t *testing.T) {
	c := NewClient("u", []byte("p"), "/", QOPInt)
	if _, _, err := c.Step([]byte(`nonce="n",algorithm=md5-sess,qop="auth-int",maxbuf=1000`)); err != nil {
		t.Fatal(err)
	}
	w, err := c.layer.Wrap(make([]byte, c.layer.Limit()))
	if err != nil || len(w) > 1000 || c.layer.Limit() < 900 {
		t.Errorf("limit %d, wrapped %d, %v", c.layer.Limit(), len(w), err)
	}
}

func FuzzUnwrap(f *testing.F) {
	f.Add(0, []byte("0123456789\x00\x01\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, kind int, wrapped []byte) {
		cipher, qop := "", QOPInt
		if kind > 0 && kind <= len(Ciphers) {
			cipher, qop = Ciphers[kind-1], QOPConf
		}
		client, _ := login(t, qop, cipher)
		if _, err := client.Unwrap(wrapped); err == nil {
			t.Fatal("accepted a message that nobody could make")
		}
	})
}

func BenchmarkWrap(b *testing.B) {
	for _, cipher := range append([]string{""}, Ciphers...) {
		b.Run(fmt.Sprint("cipher=", cipher), func(b *testing.B) {
			qop := QOPConf
			if cipher == "" {
				qop = QOPInt
			}
			client, _ := login(b, qop, cipher)
			m := make([]byte, 32<<10)
			b.SetBytes(int64(len(m)))
			for b.Loop() {
				if _, err := client.Wrap(m); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
