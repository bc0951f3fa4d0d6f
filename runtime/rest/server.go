package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/runtime/dispatcher"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/jobmaster"
	"github.com/thalweg/thalweg/runtime/resourcemanager"
	"github.com/thalweg/thalweg/runtime/scheduler"
	"github.com/thalweg/thalweg/runtime/webui"
)

// Bounds of requests.
const (
	maxBody   = 1 << 20
	maxHeader = 64 << 10
)

// Dispatcher is the part of dispatcher.Dispatcher that is served.
type Dispatcher interface {
	Jobs(ctx context.Context) ([]*jobmaster.Details, error)
	Details(ctx context.Context, id graph.JobID) (*jobmaster.Details, error)
	Cancel(id graph.JobID) error
	Require(ctx context.Context, id graph.JobID, r scheduler.Requirements) error
	StartTrigger(id graph.JobID, trigger string, r jobmaster.TriggerRequest) (string, error)
	Operation(id graph.JobID, trigger string) (dispatcher.Operation, error)
	StartDisposal(trigger, uri string) (string, error)
	Disposal(trigger string) (dispatcher.Operation, error)
}

// TaskManagers is the part of resourcemanager.Manager that is served.
type TaskManagers interface {
	TaskManagers() []resourcemanager.TaskManagerInfo
	Pending() int
}

// Options make the handler.
type Options struct {
	Dispatcher   Dispatcher
	TaskManagers TaskManagers
	Config       config.Configuration // the cluster's
	LogDir       string               // of the JobManager; "" serves no logs
	// Session takes jobs; nil for a cluster of one job.
	Session Session
	// Shutdown ends the cluster (DELETE /cluster); nil refuses it. It must return at once.
	Shutdown func()
	// CheckFolder returns the full URI of the folder for a savepoint that a request names in field, or says why there cannot be one, in words for
	// the caller; nil takes every folder.
	CheckFolder func(ctx context.Context, field, uri string) (string, error)
	// TryFolder says why nothing can be written in a folder, before a savepoint in it is triggered; nil leaves that to the savepoint.
	TryFolder func(ctx context.Context, uri string) error
	// ApplicationID is shown by /jobs/:jobid on YARN.
	ApplicationID string
	Started       time.Time
	Logger        zerolog.Logger
}

type server struct {
	opts Options
	log  zerolog.Logger
	mux  *http.ServeMux
}

// New makes the handler.
func New(opts Options) http.Handler {
	s := &server{opts: opts, log: opts.Logger.With().Str("component", "rest").Logger(), mux: http.NewServeMux()}
	s.routes()
	return http.HandlerFunc(s.serve)
}

// Server is a listening REST server.
type Server struct {
	Addr net.Addr
	h    *http.Server
	wg   sync.WaitGroup
}

// Listen serves a handler on address ("host:port"; port 0 takes a free one).
func Listen(ctx context.Context, address string, h http.Handler, log zerolog.Logger) (*Server, error) {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("rest: listen on %s: %w; choose another port (rest.port, rest.bind-port)", address, err)
	}
	s := &Server{Addr: ln.Addr(), h: &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: maxHeader}}
	s.wg.Go(func() {
		if err := s.h.Serve(ln); err != nil && !errors.Is(err, http.ErrServerClosed) {
			log.Error().Err(err).Msg("REST server ended")
		}
	})
	return s, nil
}

// Close lets requests end, for at most two seconds, and stops.
func (s *Server) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if s.h.Shutdown(ctx) != nil {
		_ = s.h.Close() // what is left is cut
	}
	s.wg.Wait()
}

func (s *server) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-cache")
	r.Body = http.MaxBytesReader(w, r.Body, s.limit(r))
	p := "/" + strings.Trim(r.URL.Path, "/") // Flink's Router ignores slashes at both ends
	if rest, ok := strings.CutPrefix(p, "/v1/"); ok {
		p = "/" + rest
	}
	if p != r.URL.Path {
		r2 := r.Clone(r.Context())
		r2.URL.Path, r2.URL.RawPath = p, ""
		r = r2
	}
	// Another method is not found either, as in Flink. A path that is not clean would be redirected, in HTML.
	if _, pattern := s.mux.Handler(r); pattern == "" || path.Clean(p) != p {
		s.fail(w, r, &statusError{http.StatusNotFound, fmt.Sprintf("Not found: %s %s", r.Method, r.URL.Path)})
		return
	}
	s.mux.ServeHTTP(w, r)
}

// statusError is an error with its HTTP status.
type statusError struct {
	status int
	text   string
}

func (e *statusError) Error() string { return e.text }

func bad(format string, args ...any) error {
	return &statusError{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}

func notFound(format string, args ...any) error {
	return &statusError{http.StatusNotFound, fmt.Sprintf(format, args...)}
}

func (s *server) fail(w http.ResponseWriter, r *http.Request, err error) {
	status := http.StatusInternalServerError
	var st *statusError
	var big *http.MaxBytesError
	refused, isRefusal := refusalStatus(err)
	switch {
	case errors.As(err, &st):
		status = st.status
	case isRefusal:
		status = refused
	case errors.As(err, &big):
		status = http.StatusRequestEntityTooLarge
	case errors.Is(err, dispatcher.ErrUnknownJob), errors.Is(err, dispatcher.ErrUnknownTrigger):
		status = http.StatusNotFound
	case errors.Is(err, jobmaster.ErrRequirements):
		status = http.StatusBadRequest
	case errors.Is(err, jobmaster.ErrEnded):
		status = http.StatusConflict
	case errors.Is(err, dispatcher.ErrClosed), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		status = http.StatusServiceUnavailable
	}
	if status >= 500 {
		s.log.Warn().Err(err).Str("path", r.URL.Path).Msg("request failed")
	}
	s.write(w, status, object{"errors": []string{s.opts.Config.Redact(err.Error())}})
}

// object is a JSON object.
type object = map[string]any

func (s *server) write(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		s.log.Debug().Err(err).Msg("answer not written") // the client is gone
	}
}

// answer is what a route returns: a JSON value with status 200, or accepted.
type accepted struct{ body any }

func (s *server) route(pattern string, fn func(r *http.Request) (any, error)) {
	s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		v, err := fn(r)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		if a, ok := v.(accepted); ok {
			s.write(w, http.StatusAccepted, a.body)
			return
		}
		s.write(w, http.StatusOK, v)
	})
}

func (s *server) job(pattern string, fn func(r *http.Request, d *jobmaster.Details) (any, error)) {
	s.route(pattern, func(r *http.Request) (any, error) {
		id, err := jobID(r)
		if err != nil {
			return nil, err
		}
		d, err := s.opts.Dispatcher.Details(r.Context(), id)
		if err != nil {
			return nil, err
		}
		return fn(r, d)
	})
}

func jobID(r *http.Request) (graph.JobID, error) {
	id, err := graph.ParseID(r.PathValue("jobid"))
	if err != nil {
		return graph.JobID{}, bad("Cannot resolve path parameter (jobid) from value %q: want 32 hex digits.", clip(r.PathValue("jobid")))
	}
	return graph.JobID{ID: id}, nil
}

// clip keeps what is echoed short.
func clip(s string) string {
	if len(s) > 64 {
		return s[:64] + "..."
	}
	return s
}

// body decodes a JSON body; an empty one leaves v as it is.
func body(r *http.Request, v any) error {
	b, err := io.ReadAll(r.Body)
	var big *http.MaxBytesError
	if err != nil && !errors.As(err, &big) {
		return bad("Bad request, could not read the body: %v", err)
	}
	if err != nil {
		return err
	}
	if len(strings.TrimSpace(string(b))) == 0 {
		return nil
	}
	if err := json.Unmarshal(b, v); err != nil {
		return bad("Bad request, could not parse the JSON body: %v", err)
	}
	return nil
}

func (s *server) routes() {
	s.clusterRoutes()
	s.jobRoutes()
	s.checkpointRoutes()
	s.rescaleRoutes()
	s.sessionRoutes()
	s.mux.HandleFunc("GET /metrics", s.prometheus)
	s.mux.Handle("GET /{$}", webui.Handler())
}
