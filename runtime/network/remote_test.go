package network

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

func listen(t testing.TB, e *Environment) string {
	t.Helper()
	addr, err := e.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

func newPartition(t testing.TB, e *Environment, id PartitionID, n int) *Partition {
	t.Helper()
	p, err := e.NewPartition(t.Context(), id, n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// writeNumbers writes 0..n-1 on channel i, then the end.
func writeNumbers(p *Partition, i, n int) error {
	c := p.Channel(i)
	for k := range n {
		if err := c.Put(fmt.Appendf(c.Buf(), "%d,", k)); err != nil {
			return err
		}
	}
	return p.Finish()
}

func numbers(n int) string {
	var b strings.Builder
	for k := range n {
		fmt.Fprintf(&b, "%d,", k)
	}
	return b.String()
}

func wantKind(t *testing.T, err error, kind FailureKind) *ConnectionError {
	t.Helper()
	var ce *ConnectionError
	if !errors.As(err, &ce) || ce.Kind != kind {
		t.Fatalf("got error %v, want a *ConnectionError of kind %q", err, kind)
	}
	return ce
}

func TestRemoteChannels(t *testing.T) {
	e1, e2 := newEnv(t, Config{BufferSize: 128, Token: []byte("secret")}), newEnv(t, Config{BufferSize: 128, Token: []byte("secret")})
	addr := listen(t, e1)
	const n, producers = 5000, 3
	var sources []Source
	errs := make(chan error, producers)
	for i := range producers {
		sources = append(sources, Source{Partition: testPartition(i), Address: addr})
	}
	g := newConsumer(t, t.Context(), e2, sources...) // before the partitions exist
	for i := range producers {
		p := newPartition(t, e1, testPartition(i), 1)
		go func() { errs <- writeNumbers(p, 0, n) }()
	}
	got, err := g.collect()
	if err != nil {
		t.Fatal(err)
	}
	for i, b := range got {
		if string(b) != numbers(n) {
			t.Errorf("channel %d: got %d bytes, want %d", i, len(b), len(numbers(n)))
		}
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

func TestWrongTokenIsRefused(t *testing.T) {
	e1, e2 := newEnv(t, Config{Token: []byte("secret")}), newEnv(t, Config{Token: []byte("other")})
	g := newConsumer(t, t.Context(), e2, Source{Partition: testPartition(1), Address: listen(t, e1)})
	_, err := g.next()
	ce := wantKind(t, err, ConnectFailed)
	if !strings.Contains(ce.Error(), "secret") {
		t.Errorf("the error does not name the secret: %v", ce)
	}
}

// TestConsumerWithoutTokenIsRefused is a peer that takes any answer of the producer for good.
func TestConsumerWithoutTokenIsRefused(t *testing.T) {
	e1 := newEnv(t, Config{Token: []byte("secret")})
	conn, err := net.Dial("tcp", listen(t, e1))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	hello := appendHeader(nil, header{length: helloSize, kind: frameHello})
	hello = append(hello, 'T', 'H', 'W', 'G', 0, wireVersion)
	if _, err := conn.Write(append(hello, make([]byte, nonceSize)...)); err != nil {
		t.Fatal(err)
	}
	if _, err := expectFrame(conn, frameChallenge, 0); err != nil {
		t.Fatal(err)
	}
	proof := appendHeader(nil, header{length: macSize, kind: frameProof})
	if _, err := conn.Write(append(proof, make([]byte, macSize)...)); err != nil {
		t.Fatal(err)
	}
	if _, err := expectFrame(conn, frameChallenge, 0); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("got %v, want a refusal", err)
	}
}

func TestMissingPartitionIsNamed(t *testing.T) {
	for _, remote := range []bool{false, true} {
		t.Run(fmt.Sprintf("remote=%t", remote), func(t *testing.T) {
			cfg := Config{PartitionTimeout: 50 * time.Millisecond}
			e1, e2 := newEnv(t, cfg), newEnv(t, cfg)
			src := Source{Partition: testPartition(4)}
			e := e1
			if remote {
				src.Address, e = listen(t, e1), e2
			}
			_, err := newConsumer(t, t.Context(), e, src).next()
			ce := wantKind(t, err, PartitionNotFound)
			if ce.Partition != src.Partition || !strings.Contains(err.Error(), src.Partition.String()) {
				t.Errorf("the error does not name the partition: %v", err)
			}
		})
	}
}

func TestUnreachableProducer(t *testing.T) {
	const addr = "127.0.0.1:1" // nobody listens there; a port that was free a moment ago may be another test's now
	e := newEnv(t, Config{})
	_, err := newConsumer(t, t.Context(), e, Source{Partition: testPartition(1), Address: addr}).next()
	if ce := wantKind(t, err, ConnectFailed); ce.Peer != addr {
		t.Errorf("peer %q, want %q", ce.Peer, addr)
	}
}

// A consumer that takes nothing any more, as one that is cut off, is noticed: the kernel alone would try for a quarter of an hour.
func TestSilentPeerIsNoticed(t *testing.T) {
	e1, e2 := newEnv(t, Config{PeerTimeout: 300 * time.Millisecond}), newEnv(t, Config{})
	conn, err := net.Dial("tcp", listen(t, e1))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := e2.greet(conn, conn); err != nil {
		t.Fatal(err)
	}
	p := newPartition(t, e1, testPartition(1), 1)
	if _, err := conn.Write(appendRequest(nil, 1, request{id: testPartition(1), credit: 1 << 16})); err != nil {
		t.Fatal(err)
	}
	c := p.Channel(0)
	for record := make([]byte, 16<<10); err == nil; { // until the kernel's buffers are full, and longer
		err = c.Put(append(c.Buf(), record...))
	}
	wantKind(t, err, ConnectionLost)
}
