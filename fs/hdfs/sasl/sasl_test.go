package sasl

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/thalweg/thalweg/fs/hdfs/hdfspb"
	"github.com/thalweg/thalweg/yarnrpc/ipc"
	"github.com/thalweg/thalweg/yarnrpc/ipc/digestmd5"
	commonpb "github.com/thalweg/thalweg/yarnrpc/proto/common"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var blockToken = &commonpb.TokenProto{
	Identifier: []byte("block 17 of pool BP-1"), Password: []byte{1, 2, 3, 255}, Kind: proto.String("HDFS_BLOCK_TOKEN"), Service: proto.String(""),
}

// pair connects a client with a server that knows the block token.
func pair(t testing.TB, s *server, levels []Level) (client, datanode net.Conn, clientErr, serverErr error) {
	t.Helper()
	a, b := tcp(t)
	c := BlockToken(blockToken)
	if s.user == "" {
		s.user, s.password = c.User, c.Password
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if datanode, serverErr = s.handshake(b); serverErr != nil {
			_ = b.Close()
		}
	})
	if client, clientErr = Client(a, c, levels); clientErr != nil {
		_ = a.Close()
	}
	wg.Wait()
	return client, datanode, clientErr, serverErr
}

// tcp is a connection over the loopback, whose ends are closed with the test.
func tcp(t testing.TB) (a, b net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // end of the function
	if a, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if b, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = a.Close(), b.Close() })
	return a, b
}

func TestTheFirstLevelThatBothHaveIsUsed(t *testing.T) {
	for _, tc := range []struct {
		client, server string
		aes            bool
		kind           any
	}{
		{"authentication", "authentication", false, &net.TCPConn{}},
		{"integrity", "integrity", false, &sealed{}},
		{"privacy", "privacy", false, &sealed{}},
		{"privacy", "privacy", true, &ctr{}},
		{"integrity", "integrity", true, &sealed{}},
		{"authentication", "authentication,integrity,privacy", true, &net.TCPConn{}},
		{"privacy", "authentication,integrity,privacy", true, &ctr{}},
		{"privacy,integrity,authentication", "integrity,authentication", true, &sealed{}},
		{"authentication,privacy", "privacy,integrity", true, &ctr{}},
	} {
		t.Run(fmt.Sprintf("%s-%s-%t", tc.client, tc.server, tc.aes), func(t *testing.T) {
			client, datanode, err, serr := pair(t, &server{offer: levels(t, tc.server), aes: tc.aes}, levels(t, tc.client))
			if err != nil || serr != nil {
				t.Fatal(err, serr)
			}
			if got, want := fmt.Sprintf("%T", client), fmt.Sprintf("%T", tc.kind); got != want {
				t.Errorf("the connection is a %s, want %s", got, want)
			}
			exchange(t, client, datanode)
		})
	}
}

func levels(t testing.TB, list string) []Level {
	t.Helper()
	out, err := ipc.ParseProtections(list)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// exchange sends data both ways at once, written and read in pieces of any size: a read ends in the midst of a message, or takes several.
func exchange(t *testing.T, a, b net.Conn) {
	t.Helper()
	data := make([]byte, 3<<20+17)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	var wg sync.WaitGroup
	for i, nc := range []net.Conn{a, b} {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 3))
			for rest := data; len(rest) > 0; {
				n := min(len(rest), 1+r.IntN(200_000))
				head := r.IntN(n + 1)
				if err := WriteBoth(nc, rest[:head], rest[head:n]); err != nil {
					t.Error(err)
					return
				}
				rest = rest[n:]
				m := min(len(rest), r.IntN(100))
				if _, err := nc.Write(rest[:m]); err != nil {
					t.Error(err)
					return
				}
				rest = rest[m:]
			}
		})
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 4))
			got := make([]byte, 0, len(data))
			for len(got) < len(data) {
				n, err := nc.Read(got[len(got):][:min(len(data)-len(got), 1+r.IntN(150_000))])
				if err != nil {
					t.Errorf("after %d bytes: %v", len(got), err)
					return
				}
				got = got[:len(got)+n]
			}
			if !bytes.Equal(got, data) {
				t.Error("other data arrives than was sent")
			}
		})
	}
	wg.Wait()
}

// spy keeps what is written, and may turn a bit of it.
type spy struct {
	net.Conn
	written bytes.Buffer
	turn    bool
}

func (s *spy) Write(b []byte) (int, error) {
	s.written.Write(b)
	if s.turn {
		b = bytes.Clone(b)
		b[len(b)/2] ^= 1
	}
	return s.Conn.Write(b)
}

func TestPrivacyHidesAndIntegrityNotices(t *testing.T) {
	secret := []byte(strings.Repeat("the content of a record ", 20))
	for _, tc := range []struct {
		level  Level
		aes    bool
		hidden bool
	}{{Integrity, false, false}, {Privacy, false, true}, {Privacy, true, true}} {
		client, datanode, err, serr := pair(t, &server{offer: []Level{tc.level}, aes: tc.aes}, []Level{tc.level})
		if err != nil || serr != nil {
			t.Fatal(err, serr)
		}
		s := &spy{}
		switch c := client.(type) {
		case *sealed:
			s.Conn, c.Conn = c.Conn, s
		case *ctr:
			s.Conn, c.Conn = c.Conn, s
		}
		if err := WriteBoth(client, secret[:10], secret[10:]); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(secret))
		if _, err := io.ReadFull(datanode, got); err != nil || !bytes.Equal(got, secret) {
			t.Fatalf("%q, %v", got, err)
		}
		if hidden := !bytes.Contains(s.written.Bytes(), secret[:24]); hidden != tc.hidden {
			t.Errorf("%s, AES %t: the content is hidden: %t", tc.level, tc.aes, hidden)
		}
		if tc.aes {
			continue // counter mode does not notice, the checksums of the packets do
		}
		s.turn = true
		if err := WriteBoth(client, secret[:10], secret[10:]); err != nil {
			t.Fatal(err)
		}
		for range 2 { // it does not recover
			if _, err := datanode.Read(got); !errors.Is(err, ErrMalformed) {
				t.Errorf("%s: a turned bit: %v", tc.level, err)
			}
		}
	}
}

func TestAClientWithoutACommonLevelSaysBoth(t *testing.T) {
	_, _, err, _ := pair(t, &server{offer: []Level{Authentication, Integrity}}, []Level{Privacy})
	if !errors.Is(err, ErrProtection) || !strings.Contains(err.Error(), "offers authentication,integrity") ||
		!strings.Contains(err.Error(), "accepts privacy") || !strings.Contains(err.Error(), KeyProtection) {
		t.Error(err)
	}
}

func TestRefusals(t *testing.T) {
	status := func(s hdfspb.DataTransferEncryptorMessageProto_DataTransferEncryptorStatus, words string, token bool) *message {
		return &message{Status: s.Enum(), Message: proto.String(words), AccessTokenError: proto.Bool(token)}
	}
	for _, tc := range []struct {
		refuse *message
		want   error
	}{
		{status(hdfspb.DataTransferEncryptorMessageProto_ERROR, "Block token is expired.", true), ErrToken},
		{status(hdfspb.DataTransferEncryptorMessageProto_ERROR, "DIGEST-MD5: IO error acquiring password", false), ErrToken},
		{status(hdfspb.DataTransferEncryptorMessageProto_ERROR_UNKNOWN_KEY, "no key 7", false), ErrUnknownKey},
		{&message{Status: hdfspb.DataTransferEncryptorMessageProto_SUCCESS.Enum(), Payload: []byte("rspauth=0123")}, digestmd5.ErrProof},
	} {
		_, _, err, _ := pair(t, &server{offer: []Level{Privacy}, refuse: tc.refuse}, []Level{Privacy})
		if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.refuse.GetMessage()) {
			t.Errorf("%v: got %v, want %v", tc.refuse, err, tc.want)
		}
	}
	_, _, err, _ := pair(t, &server{offer: []Level{Privacy}, refuse: status(hdfspb.DataTransferEncryptorMessageProto_ERROR, "full\n\tat java", false)}, []Level{Privacy})
	if err == nil || errors.Is(err, ErrToken) || !strings.HasSuffix(err.Error(), ": full") {
		t.Error(err)
	}
	// It does not prove that it knows the password.
	_, _, err, serr := pair(t, &server{offer: []Level{Privacy}, user: BlockToken(blockToken).User, password: []byte("another")}, []Level{Privacy})
	if err == nil || !errors.Is(serr, digestmd5.ErrProof) {
		t.Error(err, serr)
	}
}

func TestADataNodeThatExpectsNoHandshakeIsNamed(t *testing.T) {
	a, b := tcp(t)
	go func() { // it reads another version of its protocol, and leaves
		_, _ = io.ReadFull(b, make([]byte, 8))
		_ = b.Close()
	}()
	_, err := Client(a, BlockToken(blockToken), []Level{Integrity})
	if !errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(err.Error(), KeyProtection) {
		t.Error(err)
	}
}

// The names of both kinds of credential are fixed by SaslDataTransferClient.
func TestCredentials(t *testing.T) {
	c := EncryptionKey(&hdfspb.DataEncryptionKeyProto{
		KeyId: proto.Uint32(4294967295), BlockPoolId: proto.String("BP-1-127.0.0.1-2"), Nonce: []byte{0, 1, 2}, EncryptionKey: []byte{3, 4}, ExpiryDate: proto.Uint64(0),
	})
	if c.User != "-1 BP-1-127.0.0.1-2 AAEC" || string(c.Password) != "AwQ=" {
		t.Errorf("%q, %q", c.User, c.Password)
	}
	if c := BlockToken(blockToken); c.User != "YmxvY2sgMTcgb2YgcG9vbCBCUC0x" || string(c.Password) != "AQID/w==" {
		t.Errorf("%q, %q", c.User, c.Password)
	}
}

// FuzzClient feeds what may come from anybody on the port of a DataNode.
func FuzzClient(f *testing.F) {
	s := &server{offer: []Level{Authentication, Integrity, Privacy}}
	challenge, err := appendMessage(nil, &message{Payload: digestmd5.NewServer("0", digestURI, s.offer[2].QOP()).Challenge()})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(challenge)
	f.Add(append(bytes.Clone(challenge), delimited(&message{Status: hdfspb.DataTransferEncryptorMessageProto_SUCCESS.Enum(), Payload: []byte("rspauth=0")})...))
	f.Add(delimited(&message{Status: hdfspb.DataTransferEncryptorMessageProto_ERROR.Enum(), Message: proto.String("no")}))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		nc, err := Client(&scripted{r: bytes.NewReader(b)}, BlockToken(blockToken), s.offer)
		if err == nil {
			t.Fatalf("a server without the password was believed: %T", nc)
		}
	})
}

// FuzzSealed feeds a protected stream.
func FuzzSealed(f *testing.F) {
	f.Add([]byte{0, 0, 0, 2, 1, 2})
	f.Add([]byte{255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, b []byte) {
		c := newSealed(&scripted{r: bytes.NewReader(b)}, plain{})
		got, err := io.ReadAll(c)
		if len(got) > len(b) || err == nil && len(b)-len(got) < 4 && len(b) > 0 {
			t.Fatalf("%d bytes of %d, %v", len(got), len(b), err)
		}
	})
}

type scripted struct {
	net.Conn
	r *bytes.Reader
}

func (s *scripted) Read(b []byte) (int, error)  { return s.r.Read(b) }
func (s *scripted) Write(b []byte) (int, error) { return len(b), nil }

type plain struct{}

func (plain) Limit() int                      { return 1 << 16 }
func (plain) Wrap(b []byte) ([]byte, error)   { return b, nil }
func (plain) Unwrap(b []byte) ([]byte, error) { return b, nil }

// BenchmarkStream is the cost of a block's packets at each level, over the loopback.
func BenchmarkStream(b *testing.B) {
	for _, tc := range []struct {
		name  string
		level Level
		aes   bool
	}{{"authentication", Authentication, false}, {"integrity", Integrity, false}, {"privacy", Privacy, false}, {"privacy-aes", Privacy, true}} {
		b.Run(tc.name, func(b *testing.B) {
			client, datanode, err, serr := pair(b, &server{offer: []Level{tc.level}, aes: tc.aes}, []Level{tc.level})
			if err != nil || serr != nil {
				b.Fatal(err, serr)
			}
			head, data := make([]byte, 540), make([]byte, 64<<10)
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			var wg sync.WaitGroup
			wg.Go(func() { _, _ = io.Copy(io.Discard, datanode) })
			for b.Loop() {
				if err := WriteBoth(client, head, data); err != nil {
					b.Fatal(err)
				}
			}
			_ = client.Close()
			wg.Wait()
		})
	}
}
