package control

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/thalweg/thalweg/am/container"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/internal/version"
	"github.com/thalweg/thalweg/runtime/rest"
	"github.com/thalweg/thalweg/yarnrpc/client"
	"github.com/thalweg/thalweg/yarnrpc/ipc"
	"github.com/thalweg/thalweg/yarnrpc/yarn"
)

// Sessions lists the sessions that have not ended, oldest first; with all, also those that have. c may name one (yarn.application.name), users are
// whose, all when there are none.
func Sessions(ctx context.Context, y YARN, c config.Configuration, all bool, users ...string) ([]Application, error) {
	f := client.Filter{Tags: []string{container.SessionTag}, Name: config.YarnName.Value(c), Users: users}
	if !all {
		f.States = live
	}
	return list(ctx, y, f)
}

// FindSession returns the session to act on: the one that c names, by id or name, else the only one of user's that runs. No file remembers the
// last one, which could have ended.
//
// Errors: *SelectionError for none, several, one that has ended, and an application that is no session; those of Find.
func FindSession(ctx context.Context, y YARN, c config.Configuration, user string) (Application, error) {
	if config.YarnID.Value(c) != "" {
		a, err := Find(ctx, y, c)
		switch {
		case errors.Is(err, ErrNotFound):
			return a, selection("there is no session %s: the ResourceManager does not know it; thalweg session list shows those that run, thalweg session start -d starts one", config.YarnID.Value(c))
		case err != nil:
			return a, err
		case !a.Session:
			return a, selection("%s (%s) is no session but the application of one job; thalweg session list shows the sessions", a.ID, a.Name)
		case a.Ended():
			return a, selection("session %s has ended: %s%s; thalweg session list shows those that run, thalweg session start -d starts one", a.ID, a.Final, in(a.Why()))
		}
		return a, nil
	}
	mine, err := Sessions(ctx, y, c, false, user)
	if err != nil {
		return Application{}, err
	}
	what := ""
	if name := config.YarnName.Value(c); name != "" {
		what = fmt.Sprintf(" named %q", name)
	}
	switch len(mine) {
	case 0:
		return Application{}, selection("no session%s of user %s runs: thalweg session start -d starts one", what, user)
	case 1:
		return mine[0], nil
	}
	ids := make([]string, 0, len(mine))
	for _, a := range mine {
		ids = append(ids, fmt.Sprintf("%s (%s)", a.ID, a.Name))
	}
	return Application{}, selection("%d sessions%s of user %s run: give -D%s= one of %s", len(mine), what, user, config.YarnID.Key, strings.Join(ids, ", "))
}

func in(why string) string {
	if why == "" {
		return ""
	}
	return " (" + why + ")"
}

// AwaitSession waits, for limit at most, until the session's master answers and takes jobs.
func AwaitSession(ctx context.Context, y YARN, id yarn.ApplicationID, limit time.Duration) (Application, *REST, error) {
	deadline := time.Now().Add(limit)
	for {
		a, err := Get(ctx, y, id)
		if err != nil {
			return a, nil, err
		}
		if a.Ended() {
			return a, nil, fmt.Errorf("control: session %s has ended: %s%s", id, a.Final, in(a.Why()))
		}
		if a.REST != "" {
			r := NewREST(a.REST, limit)
			if _, err = r.Overview(ctx); err == nil {
				return a, r, nil
			}
			r.Close()
		}
		if time.Now().After(deadline) {
			if err == nil {
				err = fmt.Errorf("it is %s%s", a.State, in(strings.Join(strings.Fields(a.Diagnostics), " ")))
			}
			return a, nil, fmt.Errorf("control: the master of session %s does not answer within %s (client.connection-timeout): %w", id, limit, err)
		}
		if err := ipc.Sleep(ctx, 50*time.Millisecond); err != nil {
			return a, nil, err
		}
	}
}

// Protocol is what the master says about itself.
type Protocol struct {
	Version  string `json:"flink-version"`
	Protocol int    `json:"protocol"`
	Session  bool   `json:"session"`
}

// CheckProtocol refuses a master of another protocol: the client has looked at the program for its own.
func (r *REST) CheckProtocol(ctx context.Context) error {
	var p Protocol
	if err := r.do(ctx, http.MethodGet, "/config", nil, &p); err != nil {
		return err
	}
	if p.Protocol != version.Protocol {
		return selection("the session is of version %s with protocol %d, this client and the program are of version %s with protocol %d: use the client and the SDK of the session's release, or start a session with this client (thalweg session start)",
			p.Version, p.Protocol, version.Version, version.Protocol)
	}
	return nil
}

// ProgramOf describes a local file to a session.
func ProgramOf(file string) (rest.Program, error) {
	p := rest.Program{Name: filepath.Base(file)}
	f, err := os.Open(file)
	if err != nil {
		return p, fmt.Errorf("control: %w", err)
	}
	defer f.Close() //nolint:errcheck // only read
	h := sha256.New()
	if p.Size, err = io.CopyBuffer(h, f, make([]byte, 256<<10)); err != nil {
		return p, fmt.Errorf("control: read %s: %w", file, err)
	}
	p.SHA256 = hex.EncodeToString(h.Sum(nil))
	return p, nil
}

// uploadTries is how often a part is sent again after the connection was lost.
const uploadTries = 5

// Upload sends the program to the session, what it does not have of it, and returns how many bytes went. A connection that is lost is taken up again
// where it broke. progress is told of the bytes that are there, and may be nil.
//
// Errors: *StatusError, *UnreachableError.
func (r *REST) Upload(ctx context.Context, file string, p rest.Program, progress func(there, total int64)) (sent int64, err error) {
	f, err := os.Open(file)
	if err != nil {
		return 0, fmt.Errorf("control: %w", err)
	}
	defer f.Close() //nolint:errcheck // only read
	path := "/programs/" + p.SHA256 + "?" + url.Values{"size": {strconv.FormatInt(p.Size, 10)}, "name": {p.Name}}.Encode()
	at, complete, err := r.part(ctx, http.MethodGet, path, 0, nil, 0)
	for tries := 0; ; {
		var lost *UnreachableError
		var status *StatusError
		switch {
		case err == nil && complete:
			return sent, nil
		case err == nil:
			tries = 0
		case errors.As(err, &lost) && tries < uploadTries && ctx.Err() == nil,
			errors.As(err, &status) && (status.Code == http.StatusConflict || status.Code == http.StatusServiceUnavailable) && tries < uploadTries:
			tries++
			if err := ipc.Sleep(ctx, time.Duration(tries)*100*time.Millisecond); err != nil {
				return sent, err
			}
			if at, complete, err = r.part(ctx, http.MethodGet, path, 0, nil, 0); err != nil || complete {
				continue
			}
		default:
			return sent, err
		}
		if progress != nil {
			progress(at, p.Size)
		}
		n := min(p.Size-at, rest.MaxPart)
		var there int64
		if there, complete, err = r.part(ctx, http.MethodPatch, path, at, io.NewSectionReader(f, at, n), n); err == nil {
			sent, at = sent+there-at, there
		}
	}
}

// part asks for the state of an upload, or adds to it.
func (r *REST) part(ctx context.Context, method, path string, at int64, body io.Reader, size int64) (there int64, complete bool, err error) {
	if body == nil {
		body = http.NoBody
	}
	req, err := http.NewRequestWithContext(ctx, method, r.base+path, body)
	if err != nil {
		return 0, false, fmt.Errorf("control: %s %s: %w", method, path, err)
	}
	req.ContentLength = size
	req.Header.Set("Content-Type", "application/octet-stream")
	req.Header.Set(rest.UploadOffset, strconv.FormatInt(at, 10))
	var o struct {
		Offset   int64 `json:"offset"`
		Complete bool  `json:"complete"`
	}
	return o.Offset, o.Complete, r.send(req, r.http, &o)
}

// SubmitJob gives a job to the session, whose program is there, and returns what it says. A request whose answer was lost is sent again: it is the
// same job by its id. The wait for the program's graph is bounded by ctx alone.
//
// Errors: *StatusError, *UnreachableError.
func (r *REST) SubmitJob(ctx context.Context, q rest.JobRequest) (a rest.JobAccepted, err error) {
	patient := *r
	waits := *r.http
	waits.Timeout = 0
	patient.http = &waits
	return a, patient.repeat(ctx, "/jobs", q, &a)
}

// ShutDown ends the session with its jobs. It returns at once.
func (r *REST) ShutDown(ctx context.Context) error {
	return r.do(ctx, http.MethodDelete, "/cluster", nil, nil)
}

// CheckUser refuses a session of somebody else: its jobs run as the one who started it.
func CheckUser(a Application, user string) error {
	if a.User == user {
		return nil
	}
	return selection("session %s (%s) is of user %s, you are %s: its jobs would run as %s; start a session of your own (thalweg session start -d)", a.ID, a.Name, a.User, user, a.User)
}

// sessionTagged reports whether the tags are those of a session.
func sessionTagged(tags []string) bool { return slices.Contains(tags, container.SessionTag) }
