package rest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/thalweg/thalweg/internal/version"
)

// Bounds of what a session is sent.
const (
	// MaxPart bounds one part of a program's upload, in bytes; a program is sent in as many as it takes.
	MaxPart = 8 << 20
	// MaxProgram bounds a program, in bytes.
	MaxProgram = 4 << 30
)

// UploadOffset is the header that says how many bytes of a program are there, and where a part belongs.
const UploadOffset = "Upload-Offset"

// Program is a job's binary, by its content.
type Program struct {
	SHA256 string `json:"sha256"` // 64 hex digits
	Size   int64  `json:"size"`
	Name   string `json:"name"` // of the file
}

// JobRequest is a job for a session.
type JobRequest struct {
	// JobID is drawn by whoever asks, so that a request whose answer was lost can be repeated; "" draws one.
	JobID   string            `json:"jobId,omitempty"`
	Program Program           `json:"program"`
	Args    []string          `json:"args,omitempty"`
	Config  map[string]string `json:"config,omitempty"` // of the job's execution; the session's stands below it
}

// JobAccepted is a job that a session has taken.
type JobAccepted struct {
	JobID    string   `json:"jobid"` // Flink's spelling
	Name     string   `json:"name"`
	Warnings []string `json:"warnings,omitempty"`
}

// Session takes jobs. Its methods return a *Refusal for what the caller has to mend.
type Session interface {
	// Uploaded tells how many bytes of a program are here, and whether it is complete: checked and stored.
	Uploaded(ctx context.Context, p Program) (have int64, complete bool, err error)
	// Append adds a part that begins at offset, and returns what is here then. The part that is the last makes it complete.
	Append(ctx context.Context, p Program, offset int64, part io.Reader) (have int64, complete bool, err error)
	// Submit plans the job and starts it.
	Submit(ctx context.Context, r JobRequest) (JobAccepted, error)
}

// Refusal is an error with its HTTP status, in words for the caller.
type Refusal struct {
	Status int
	Text   string
}

func (e *Refusal) Error() string { return e.Text }

var hex64 = regexp.MustCompile(`^[0-9a-f]{64}$`)

// Check refuses a program that cannot be one.
func (p Program) Check() error {
	switch {
	case !hex64.MatchString(p.SHA256):
		return bad("The program's sha256 %q: want 64 hex digits in lower case.", clip(p.SHA256))
	case p.Size < 1 || p.Size > MaxProgram:
		return bad("The program's size %d: want 1 to %d bytes.", p.Size, int64(MaxProgram))
	case len(p.Name) > 255 || strings.ContainsFunc(p.Name, func(r rune) bool { return r < 32 || r == 127 || r == '/' }):
		return bad("The program's name %q: want that of a file.", clip(p.Name))
	}
	return nil
}

func (s *server) sessionRoutes() {
	if s.opts.Session == nil {
		for _, p := range []string{"POST /jobs", "PATCH /programs/{sha256}"} {
			s.route(p, func(*http.Request) (any, error) {
				return nil, &statusError{http.StatusForbidden, "This application has one job, and takes no others; thalweg session start starts one that does."}
			})
		}
		return
	}
	s.mux.HandleFunc("GET /programs/{sha256}", s.uploaded) // HEAD too
	s.mux.HandleFunc("PATCH /programs/{sha256}", s.upload)
	s.route("POST /jobs", s.submit)
}

func program(r *http.Request) (Program, error) {
	q := r.URL.Query()
	p := Program{SHA256: r.PathValue("sha256"), Name: q.Get("name")}
	var err error
	if p.Size, err = strconv.ParseInt(q.Get("size"), 10, 64); err != nil {
		return p, bad("Query parameter size = %q: want the program's size in bytes.", clip(q.Get("size")))
	}
	return p, p.Check()
}

// uploaded answers 200 for a program that is complete, 202 for one of which the header says how much is there, 0 included.
func (s *server) uploaded(w http.ResponseWriter, r *http.Request) {
	p, err := program(r)
	if err == nil {
		var have int64
		var complete bool
		if have, complete, err = s.opts.Session.Uploaded(r.Context(), p); err == nil {
			s.offset(w, have, complete)
			return
		}
	}
	s.fail(w, r, err)
}

func (s *server) offset(w http.ResponseWriter, have int64, complete bool) {
	w.Header().Set(UploadOffset, strconv.FormatInt(have, 10))
	status := http.StatusAccepted
	if complete {
		status = http.StatusOK
	}
	s.write(w, status, object{"offset": have, "complete": complete, "version": version.Version, "protocol": version.Protocol})
}

// upload takes a part. A part that does not begin where the last one ended is answered with 409 and the place.
func (s *server) upload(w http.ResponseWriter, r *http.Request) {
	p, err := program(r)
	at, perr := strconv.ParseInt(r.Header.Get(UploadOffset), 10, 64)
	if err == nil && (perr != nil || at < 0) {
		err = bad("Header %s = %q: want the place of this part in the program, in bytes.", UploadOffset, clip(r.Header.Get(UploadOffset)))
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	have, complete, err := s.opts.Session.Append(r.Context(), p, at, r.Body)
	if err != nil {
		w.Header().Set(UploadOffset, strconv.FormatInt(have, 10))
		s.fail(w, r, err)
		return
	}
	s.offset(w, have, complete)
}

func (s *server) submit(r *http.Request) (any, error) {
	// A page of another site can make a browser post, but not this type without being asked for leave.
	if t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || t != "application/json" {
		return nil, &statusError{http.StatusUnsupportedMediaType, fmt.Sprintf("Content-Type %q: a job is submitted as application/json.", clip(r.Header.Get("Content-Type")))}
	}
	var q JobRequest
	if err := body(r, &q); err != nil {
		return nil, err
	}
	if err := q.Program.Check(); err != nil {
		return nil, err
	}
	return s.opts.Session.Submit(r.Context(), q)
}

// limit is the bound of a request's body.
func (s *server) limit(r *http.Request) int64 {
	if r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "/programs/") {
		return MaxPart
	}
	return maxBody
}

func refusalStatus(err error) (int, bool) {
	var x *Refusal
	if errors.As(err, &x) {
		return x.Status, true
	}
	return 0, false
}
