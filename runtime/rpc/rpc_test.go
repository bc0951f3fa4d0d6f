package rpc_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	iofs "io/fs"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/thalweg/thalweg/runtime/rpc"
	"github.com/thalweg/thalweg/runtime/rpc/pb"
	"github.com/thalweg/thalweg/runtime/rpc/remote"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func hello(n int64) *pb.TaskManagerUp {
	return &pb.TaskManagerUp{Msg: &pb.TaskManagerUp_Heartbeat{Heartbeat: &pb.Heartbeat{TimeMs: n}}}
}

func shutdown(n int) *pb.TaskManagerDown {
	return &pb.TaskManagerDown{Msg: &pb.TaskManagerDown_Shutdown{Shutdown: &pb.Shutdown{Reason: strings.Repeat("x", n)}}}
}

// pair is a link's two ends: over gRPC, over a Unix socket, or in memory.
type pair struct {
	low  rpc.TaskManagerUplink
	high rpc.TaskManagerLink
	stop func()
}

func pairs(t *testing.T) map[string]func() pair {
	return map[string]func() pair{
		"pipe": func() pair {
			low, high := rpc.Pipe[*pb.TaskManagerUp, *pb.TaskManagerDown]()
			return pair{low, high, func() {}}
		},
		"socket": func() pair {
			sock := filepath.Join(t.TempDir(), "s")
			links := make(chan rpc.TaskManagerLink, 1)
			s, err := rpc.ServeSocket(sock, func(l rpc.TaskManagerLink) { links <- l })
			if err != nil {
				t.Fatal(err)
			}
			low, err := rpc.DialSocket[*pb.TaskManagerUp, *pb.TaskManagerDown](context.Background(), sock)
			if err != nil {
				t.Fatal(err)
			}
			return pair{low, <-links, func() {
				low.Close(nil)
				s.Close()
				<-low.Done()
			}}
		},
		"grpc": func() pair {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			links := make(chan rpc.TaskManagerLink, 1)
			s := remote.NewServer(remote.Options{Token: "t"}, remote.Handlers{TaskManager: func(l rpc.TaskManagerLink, _ string) { links <- l }})
			var wg sync.WaitGroup
			wg.Go(func() {
				if err := s.Serve(ln); err != nil {
					t.Error(err)
				}
			})
			c, err := remote.Dial(ln.Addr().String(), remote.Options{Token: "t"})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			low, err := c.ConnectTaskManager(ctx)
			if err != nil {
				t.Fatal(err)
			}
			return pair{low, <-links, func() {
				if err := c.Close(); err != nil {
					t.Error(err)
				}
				s.Close()
				wg.Wait()
			}}
		},
	}
}

func each(t *testing.T, fn func(t *testing.T, p pair)) {
	for name, make := range pairs(t) {
		t.Run(name, func(t *testing.T) {
			p := make()
			defer p.stop()
			fn(t, p)
			p.low.Close(nil)
			p.high.Close(nil)
			<-p.low.Done()
			<-p.high.Done()
		})
	}
}

func TestMessagesArriveInOrderBothWays(t *testing.T) {
	each(t, func(t *testing.T, p pair) {
		const n = 2000
		var wg sync.WaitGroup
		wg.Go(func() {
			for i := range int64(n) {
				if err := p.low.SendWait(context.Background(), hello(i)); err != nil {
					t.Error(err)
				}
			}
		})
		wg.Go(func() {
			for i := range n {
				if err := p.high.SendWait(context.Background(), shutdown(i%7)); err != nil {
					t.Error(err)
				}
			}
		})
		wg.Go(func() {
			for i := range int64(n) {
				m, err := p.high.Recv()
				if err != nil || m.GetHeartbeat().GetTimeMs() != i {
					t.Errorf("message %d: %v, %v", i, m, err)
					return
				}
			}
		})
		for i := range n {
			m, err := p.low.Recv()
			if err != nil || len(m.GetShutdown().GetReason()) != i%7 {
				t.Fatalf("message %d: %v, %v", i, m, err)
			}
		}
		wg.Wait()
	})
}

func TestWhatWasSentBeforeTheCloseArrives(t *testing.T) {
	for _, side := range []string{"low", "high"} {
		t.Run(side, func(t *testing.T) {
			each(t, func(t *testing.T, p pair) {
				const n = 500
				got, err := 0, error(nil)
				if side == "low" {
					for i := range int64(n) {
						if err := p.low.Send(hello(i)); err != nil {
							t.Fatal(err)
						}
					}
					p.low.Close(nil)
					for err == nil {
						if _, err = p.high.Recv(); err == nil {
							got++
						}
					}
				} else {
					for range n {
						if err := p.high.Send(shutdown(1)); err != nil {
							t.Fatal(err)
						}
					}
					p.high.Close(nil)
					for err == nil {
						if _, err = p.low.Recv(); err == nil {
							got++
						}
					}
				}
				if got != n || !errors.Is(err, rpc.ErrPeerClosed) {
					t.Errorf("%d of %d messages, then %v", got, n, err)
				}
			})
		})
	}
}

func TestCloseUnblocksRecvAndSends(t *testing.T) {
	each(t, func(t *testing.T, p pair) {
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := p.low.Recv(); !errors.Is(err, rpc.ErrClosed) {
				t.Errorf("Recv after Close: %v", err)
			}
		})
		p.low.Close(nil)
		wg.Wait()
		if err := p.low.Send(hello(1)); !errors.Is(err, rpc.ErrClosed) {
			t.Errorf("Send after Close: %v", err)
		}
		if err := p.low.SendWait(context.Background(), hello(1)); !errors.Is(err, rpc.ErrClosed) {
			t.Errorf("SendWait after Close: %v", err)
		}
	})
}

func TestCutIsSeenByThePeer(t *testing.T) {
	each(t, func(t *testing.T, p pair) {
		p.high.Close(errors.New("epoch is over"))
		var err error
		for err == nil {
			_, err = p.low.Recv()
		}
		<-p.low.Done()
		if p.low.Err() == nil {
			t.Error("no reason")
		}
	})
}

// The reason stands in a job's exception history: it is no detail of the transport.
func TestABrokenConnectionIsCalledSo(t *testing.T) {
	for _, name := range []string{"grpc", "socket"} {
		p := pairs(t)[name]()
		defer p.stop()
		p.low.Close(errors.New("killed"))
		var err error
		for err == nil {
			_, err = p.high.Recv()
		}
		if !errors.Is(err, rpc.ErrBroken) || strings.Contains(err.Error(), "rpc error") || strings.Contains(err.Error(), "context") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPeerThatDoesNotReadBreaksItsLink(t *testing.T) {
	each(t, func(t *testing.T, p pair) {
		// Larger than gRPC's window and a socket's buffer, so that the queue behind them fills.
		big := shutdown(64 << 10)
		var err error
		for range 3 * rpc.MaxQueued {
			if err = p.high.Send(big); err != nil {
				break
			}
		}
		if !errors.Is(err, rpc.ErrSlow) {
			t.Errorf("a full queue gives %v", err)
		}
	})
}

func TestServerEndIsSeenByTheClient(t *testing.T) {
	for _, name := range []string{"grpc", "socket"} {
		p := pairs(t)[name]()
		var wg sync.WaitGroup
		wg.Go(func() {
			for {
				if _, err := p.low.Recv(); err != nil {
					return
				}
			}
		})
		p.stop()
		wg.Wait()
		<-p.high.Done()
	}
}

func serve(t *testing.T, opts remote.Options, h remote.Handlers) (address string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := remote.NewServer(opts, h)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Serve(ln); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { s.Close(); wg.Wait() })
	return ln.Addr().String()
}

func dial(t *testing.T, address, token string) *remote.Client {
	t.Helper()
	c, err := remote.Dial(address, remote.Options{Token: token})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func TestTokenIsChecked(t *testing.T) {
	accepted := make(chan struct{}, 3)
	address := serve(t, remote.Options{Token: "right"}, remote.Handlers{TaskManager: func(l rpc.TaskManagerLink, _ string) {
		accepted <- struct{}{}
		l.Close(nil)
	}})
	for _, c := range []struct {
		token string
		ok    bool
	}{{"right", true}, {"wrong", false}, {"", false}} {
		link, err := dial(t, address, c.token).ConnectTaskManager(context.Background())
		if err == nil {
			_, err = link.Recv()
		}
		if ok := errors.Is(err, rpc.ErrPeerClosed); ok != c.ok {
			t.Errorf("token %q: %v", c.token, err)
		}
	}
	if len(accepted) != 1 {
		t.Errorf("%d callers were let in, want 1", len(accepted))
	}
}

func TestConnectionRefused(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	link, err := dial(t, "127.0.0.1:1", "").ConnectTaskManager(ctx)
	if err == nil {
		_, err = link.Recv()
	}
	if err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("error %v", err)
	}
}

func TestFetchBlob(t *testing.T) {
	content := bytes.Repeat([]byte("blob "), 300_000)
	sum := sha256.Sum256(content)
	key := hex.EncodeToString(sum[:])
	other := strings.Repeat("0", 64)
	address := serve(t, remote.Options{}, remote.Handlers{Blob: func(_ context.Context, k string) (io.ReadCloser, error) {
		if k == key || k == other { // the second one's content is wrong
			return io.NopCloser(bytes.NewReader(content)), nil
		}
		return nil, iofs.ErrNotExist
	}})
	c := dial(t, address, "")
	var b bytes.Buffer
	if err := c.FetchBlob(context.Background(), key, &b); err != nil || !bytes.Equal(b.Bytes(), content) {
		t.Errorf("%d bytes, %v", b.Len(), err)
	}
	if err := c.FetchBlob(context.Background(), other, io.Discard); !errors.Is(err, remote.ErrChecksum) {
		t.Errorf("wrong content: %v", err)
	}
	for _, bad := range []string{strings.Repeat("1", 64), "../../etc/passwd", ""} {
		if err := c.FetchBlob(context.Background(), bad, io.Discard); err == nil {
			t.Errorf("key %q was served", bad)
		}
	}
}
