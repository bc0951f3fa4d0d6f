package remote

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/thalweg/thalweg/runtime/rpc"
	"github.com/thalweg/thalweg/runtime/rpc/remote/pb"
)

const (
	tokenKey         = "thalweg-token"
	blobChunk        = 256 << 10
	keepaliveTime    = 5 * time.Second // server side; gRPC's client sends no sooner than every 10 s
	keepaliveTimeout = 5 * time.Second
)

// Options are the same for servers and clients.
type Options struct {
	// Token is the application's shared secret. A server with a token refuses calls that do not carry it (constant-time comparison);
	// empty turns the check off.
	Token string
	// TLS protects the connections; nil means plain text.
	TLS credentials.TransportCredentials
}

// Handlers are called by a server, each on its own goroutine. A handler owns its link and may return before the link ends.
// A nil handler refuses the call.
type Handlers struct {
	TaskManager func(link rpc.TaskManagerLink, remote string)
	// Blob opens a blob by its key (64 hex digits); fs.ErrNotExist and other errors go to the client as text.
	Blob func(ctx context.Context, key string) (io.ReadCloser, error)
}

// Server serves the control plane on one listener.
type Server struct {
	pb.UnimplementedJobMasterServiceServer
	g    *grpc.Server
	h    Handlers
	opts Options

	mu     sync.Mutex
	links  map[interface{ Close(error) }]<-chan struct{}
	closed bool
	wg     sync.WaitGroup
}

// NewServer makes a server; call Serve once.
func NewServer(opts Options, h Handlers) *Server {
	s := &Server{h: h, opts: opts, links: map[interface{ Close(error) }]<-chan struct{}{}}
	options := []grpc.ServerOption{
		grpc.ForceServerCodecV2(newCodec()), grpc.MaxRecvMsgSize(rpc.MaxMessageBytes), grpc.MaxSendMsgSize(rpc.MaxMessageBytes),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: keepaliveTime, Timeout: keepaliveTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: keepaliveTime, PermitWithoutStream: true}),
		grpc.StreamInterceptor(s.authorize), grpc.WaitForHandlers(true),
	}
	if opts.TLS != nil {
		options = append(options, grpc.Creds(opts.TLS))
	}
	s.g = grpc.NewServer(options...)
	pb.RegisterJobMasterServiceServer(s.g, s)
	return s
}

// Serve accepts connections until Close; it returns nil after Close.
func (s *Server) Serve(l net.Listener) error {
	if err := s.g.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("rpc: serve %s: %w", l.Addr(), err)
	}
	return nil
}

// Close ends all links in order, waits for them (at most two seconds each) and stops listening.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	waits := make([]<-chan struct{}, 0, len(s.links))
	for l, done := range s.links {
		l.Close(nil)
		waits = append(waits, done)
	}
	s.mu.Unlock()
	for _, w := range waits {
		<-w
	}
	s.g.Stop()
	s.wg.Wait()
}

func (s *Server) authorize(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if s.opts.Token != "" {
		md, _ := metadata.FromIncomingContext(ss.Context())
		got := md.Get(tokenKey)
		if len(got) != 1 || subtle.ConstantTimeCompare([]byte(got[0]), []byte(s.opts.Token)) != 1 {
			return status.Error(codes.Unauthenticated, "rpc: wrong or missing token: the caller belongs to another application")
		}
	}
	return next(srv, ss)
}

func (s *Server) track(l interface{ Close(error) }, done <-chan struct{}) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.links[l] = done
	return true
}

func (s *Server) untrack(l interface{ Close(error) }) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.links, l)
}

// serveStream runs a link over a server stream. The stream ends when this returns, which is what makes a blocked receive return.
func serveStream[S, R any](s *Server, ss grpc.ServerStream, send func(S) error, recv func() (R, error), handle func(rpc.Link[S, R])) error {
	if handle == nil {
		return status.Error(codes.Unimplemented, "rpc: not served on this address")
	}
	cut := make(chan struct{})
	var once sync.Once
	cutStream := func() { once.Do(func() { close(cut) }) }
	l := rpc.NewLink(rpc.Transport[S, R]{Send: send, Recv: received(recv), CloseSend: func() error { cutStream(); return nil }, Cut: cutStream})
	if !s.track(l, l.Done()) {
		l.Close(errors.New("rpc: server closed"))
	}
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		defer s.untrack(l)
		handle(l)
		<-l.Done()
	}()
	select {
	case <-cut:
	case <-ss.Context().Done(): // the connection broke; the reader sees it too
		<-l.Ended()
	}
	if err := l.Err(); err != nil && !errors.Is(err, rpc.ErrClosed) && !errors.Is(err, rpc.ErrPeerClosed) {
		return status.Error(codes.Aborted, err.Error())
	}
	return nil
}

// ConnectTaskManager implements pb.JobMasterServiceServer.
func (s *Server) ConnectTaskManager(ss pb.JobMasterService_ConnectTaskManagerServer) error {
	var h func(rpc.TaskManagerLink)
	if s.h.TaskManager != nil {
		remote := ""
		if p, ok := peer.FromContext(ss.Context()); ok {
			remote = p.Addr.String()
		}
		h = func(l rpc.TaskManagerLink) { s.h.TaskManager(l, remote) }
	}
	return serveStream(s, ss, ss.Send, ss.Recv, h)
}

var blobKey = regexp.MustCompile(`^[0-9a-f]{64}$`)

// FetchBlob implements pb.JobMasterServiceServer.
func (s *Server) FetchBlob(req *pb.FetchBlobRequest, ss pb.JobMasterService_FetchBlobServer) error {
	if s.h.Blob == nil {
		return status.Error(codes.Unimplemented, "rpc: no blobs on this address")
	}
	if !blobKey.MatchString(req.GetKey()) {
		return status.Error(codes.InvalidArgument, "rpc: blob key: want 64 hex digits")
	}
	r, err := s.h.Blob(ss.Context(), req.GetKey())
	if err != nil {
		return status.Errorf(codes.NotFound, "rpc: open blob %s: %v", req.GetKey(), err)
	}
	defer func() { _ = r.Close() }() // read only
	buf := make([]byte, blobChunk)
	for {
		n, err := io.ReadFull(r, buf)
		if n > 0 {
			if serr := ss.Send(&pb.BlobChunk{Data: buf[:n]}); serr != nil {
				return serr
			}
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			return nil
		default:
			return status.Errorf(codes.Internal, "rpc: read blob %s: %v", req.GetKey(), err)
		}
	}
}
