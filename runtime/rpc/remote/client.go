package remote

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/thalweg/thalweg/runtime/rpc"
	rpcpb "github.com/thalweg/thalweg/runtime/rpc/pb"
	"github.com/thalweg/thalweg/runtime/rpc/remote/pb"
)

// Client is a connection to a server of the control plane.
type Client struct {
	conn *grpc.ClientConn
	opts Options
	ctx  context.Context // life of the client: ends its links
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu    sync.Mutex
	links map[interface{ Close(error) }]<-chan struct{}
}

// Dial makes a client for target, "host:port". It does not connect yet; ConnectTaskManager does.
func Dial(target string, opts Options) (*Client, error) {
	creds := opts.TLS
	if creds == nil {
		creds = insecure.NewCredentials()
	}
	conn, err := grpc.NewClient("passthrough:///"+target, grpc.WithTransportCredentials(creds), grpc.WithNoProxy(), grpc.WithDisableServiceConfig(),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(newCodec()), grpc.MaxCallRecvMsgSize(rpc.MaxMessageBytes), grpc.MaxCallSendMsgSize(rpc.MaxMessageBytes)),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: 5 * time.Second, Backoff: backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.5, MaxDelay: time.Second}}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: keepaliveTimeout}))
	if err != nil {
		return nil, fmt.Errorf("rpc: dial %s: %w", target, err)
	}
	ctx, stop := context.WithCancel(context.Background())
	return &Client{conn: conn, opts: opts, ctx: ctx, stop: stop, links: map[interface{ Close(error) }]<-chan struct{}{}}, nil
}

// Close ends the client's links in order (see Link.Close), then the connection, and waits for their goroutines.
func (c *Client) Close() error {
	c.mu.Lock()
	ends := make([]<-chan struct{}, 0, len(c.links))
	for l, done := range c.links {
		l.Close(nil)
		ends = append(ends, done)
	}
	c.mu.Unlock()
	for _, done := range ends {
		<-done
	}
	c.stop()
	err := c.conn.Close()
	c.wg.Wait()
	if err != nil {
		return fmt.Errorf("rpc: close connection: %w", err)
	}
	return nil
}

func (c *Client) callContext(parent context.Context) context.Context {
	if c.opts.Token == "" {
		return parent
	}
	return metadata.AppendToOutgoingContext(parent, tokenKey, c.opts.Token)
}

// ConnectTaskManager opens a TaskManager's link. ctx bounds the opening only. A connection that cannot be made shows as the link's error.
func (c *Client) ConnectTaskManager(ctx context.Context) (rpc.TaskManagerUplink, error) {
	life, cut := context.WithCancel(c.callContext(c.ctx))
	unhook := context.AfterFunc(ctx, cut)
	stream, err := pb.NewJobMasterServiceClient(c.conn).ConnectTaskManager(life)
	if !unhook() || err != nil {
		cut()
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, fmt.Errorf("rpc: connect %s: %w", c.conn.Target(), err)
	}
	l := rpc.NewLink(rpc.Transport[*rpcpb.TaskManagerUp, *rpcpb.TaskManagerDown]{Send: stream.Send, Recv: received(stream.Recv), CloseSend: stream.CloseSend, Cut: cut})
	c.mu.Lock()
	c.links[l] = l.Done()
	c.mu.Unlock()
	c.wg.Go(func() {
		<-l.Done()
		c.mu.Lock()
		delete(c.links, l)
		c.mu.Unlock()
	})
	return l, nil
}

// received makes the errors of a stream a link's.
func received[R any](recv func() (R, error)) func() (R, error) {
	return func() (R, error) {
		m, err := recv()
		if err != nil && !errors.Is(err, io.EOF) {
			err = broken(err)
		}
		return m, err
	}
}

// broken says what gRPC's codes mean on a stream that nobody here has cancelled: the transport is gone.
func broken(err error) error {
	switch s := status.Convert(err); s.Code() {
	case codes.Canceled:
		return rpc.ErrBroken
	case codes.Unavailable:
		return fmt.Errorf("%w: %s", rpc.ErrBroken, s.Message())
	default:
		return err
	}
}

// ErrChecksum is returned by FetchBlob when the content does not match its key.
var ErrChecksum = errors.New("content does not match its SHA-256")

// FetchBlob writes the blob with this key (hex SHA-256) to w and verifies it; on an error what was written is void.
func (c *Client) FetchBlob(ctx context.Context, key string, w io.Writer) error {
	ctx, cancel := context.WithCancel(c.callContext(ctx))
	defer cancel()
	s, err := pb.NewJobMasterServiceClient(c.conn).FetchBlob(ctx, &pb.FetchBlobRequest{Key: key})
	if err != nil {
		return fmt.Errorf("rpc: fetch blob %s: %w", key, err)
	}
	h := sha256.New()
	for {
		m, err := s.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("rpc: fetch blob %s: %w", key, err)
		}
		_, _ = h.Write(m.GetData())
		if _, err := w.Write(m.GetData()); err != nil {
			return fmt.Errorf("rpc: fetch blob %s: store: %w", key, err)
		}
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != key {
		return fmt.Errorf("rpc: fetch blob %s: got %s: %w", key, got, ErrChecksum)
	}
	return nil
}
