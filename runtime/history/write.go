package history

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/thalweg/thalweg/fs"
)

// document is one answer of the REST interface.
type document struct {
	Path string `json:"path"`
	JSON string `json:"json"`
}

// archive is the content of a file.
type archive struct {
	Archive []document `json:"archive"`
}

// ofJob are the documents of a job, behind /jobs/<job id>.
var ofJob = []string{"", "/status", "/plan", "/config", "/exceptions", "/execution-result", "/accumulators", "/checkpoints", "/checkpoints/config", "/jobmanager/config",
	"/resource-requirements", "/rescales/overview", "/rescales/history", "/rescales/config"}

// Write stores the documents of a job that has ended, as the handler gives them now, in dir of f. What the handler does not have is left out; a job
// that it does not know is an error. The application, unless it is empty, stands in the job's overview, as "application-id".
//
// Errors: of the file system; a job that is unknown.
func Write(ctx context.Context, f fs.FileSystem, dir string, h http.Handler, job, application string) error {
	docs, err := collect(ctx, h, job, application)
	if err != nil {
		return err
	}
	content, err := json.Marshal(archive{docs})
	if err != nil {
		return fmt.Errorf("history: encode job %s: %w", job, err)
	}
	if err := f.Mkdir(ctx, dir, 0o700); err != nil {
		return fmt.Errorf("history: make %s%s: %w", f.URI(), dir, err)
	}
	random := make([]byte, 8)
	_, _ = rand.Read(random) // never fails, by its contract
	tmp := path.Join(dir, "."+job+"-"+hex.EncodeToString(random))
	if err = fs.WriteFile(ctx, f, tmp, content, false); err == nil {
		err = f.Rename(ctx, tmp, path.Join(dir, job))
	}
	if err != nil {
		return fmt.Errorf("history: write job %s to %s%s: %w", job, f.URI(), dir, err)
	}
	return nil
}

func collect(ctx context.Context, h http.Handler, job, application string) ([]document, error) {
	base := "/jobs/" + job
	var docs []document
	add := func(p string) []byte {
		status, body := ask(ctx, h, p)
		if status != http.StatusOK {
			return nil
		}
		body = bytes.TrimSpace(body)
		docs = append(docs, document{p, string(body)})
		return body
	}
	overview, err := overviewOf(ctx, h, job, application)
	if err != nil {
		return nil, err
	}
	docs = append(docs, document{"/jobs/overview", overview})
	var details struct{ Vertices []struct{ ID string } }
	var checkpoints struct {
		History []struct{ ID json.Number }
	}
	for _, p := range ofJob {
		body := add(base + p)
		switch {
		case body == nil:
		case p == "":
			err = json.Unmarshal(body, &details)
		case p == "/checkpoints":
			err = json.Unmarshal(body, &checkpoints)
		}
		if err != nil {
			return nil, fmt.Errorf("history: read %s%s: %w", base, p, err)
		}
	}
	for _, v := range details.Vertices {
		add(base + "/vertices/" + v.ID)
		add(base + "/vertices/" + v.ID + "/backpressure")
	}
	for _, c := range checkpoints.History {
		if add(base+"/checkpoints/details/"+c.ID.String()) == nil {
			continue
		}
		for _, v := range details.Vertices {
			add(base + "/checkpoints/details/" + c.ID.String() + "/subtasks/" + v.ID)
		}
	}
	return docs, nil
}

// overviewOf is /jobs/overview with this job alone.
func overviewOf(ctx context.Context, h http.Handler, job, application string) (string, error) {
	var all struct{ Jobs []map[string]any }
	status, body := ask(ctx, h, "/jobs/overview")
	if err := json.Unmarshal(body, &all); err != nil || status != http.StatusOK {
		return "", fmt.Errorf("history: the overview of jobs cannot be read (status %d): %w", status, err)
	}
	all.Jobs = slices.DeleteFunc(all.Jobs, func(j map[string]any) bool { return j["jid"] != job })
	if len(all.Jobs) == 0 {
		return "", fmt.Errorf("history: the cluster does not know the job %s", job)
	}
	if application != "" {
		all.Jobs[0]["application-id"] = application
	}
	out, err := json.Marshal(map[string]any{"jobs": all.Jobs})
	if err != nil {
		return "", fmt.Errorf("history: encode the overview: %w", err)
	}
	return string(out), nil
}

// recorder is the answer to ask.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) Write(b []byte) (int, error) { return r.body.Write(b) }
func (r *recorder) WriteHeader(status int)      { r.status = status }

// ask is a GET without a network.
func ask(ctx context.Context, h http.Handler, p string) (int, []byte) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p, http.NoBody)
	if err != nil {
		return http.StatusBadRequest, nil
	}
	w := &recorder{header: http.Header{}, status: http.StatusOK}
	h.ServeHTTP(w, r)
	return w.status, w.body.Bytes()
}

// Prune removes all archives of dir but the newest, keep of them, and returns how many.
//
// Errors: of the file system; what was removed before stays removed.
func Prune(ctx context.Context, f fs.FileSystem, dir string, keep int) (removed int, err error) {
	list, err := archives(ctx, f, dir)
	if err != nil {
		return 0, err
	}
	for _, i := range list[min(keep, len(list)):] {
		if err := f.Remove(ctx, i.Path, false); err != nil {
			return removed, fmt.Errorf("history: remove %s%s: %w", f.URI(), i.Path, err)
		}
		removed++
	}
	return removed, nil
}

// archives lists the files of dir that have the name of a job, newest first.
func archives(ctx context.Context, f fs.FileSystem, dir string) ([]fs.Info, error) {
	list, err := f.List(ctx, dir)
	if err != nil {
		return nil, fmt.Errorf("history: list %s%s: %w", f.URI(), dir, err)
	}
	list = slices.DeleteFunc(list, func(i fs.Info) bool { return i.IsDir || !isJob(path.Base(i.Path)) })
	for i := range list {
		list[i].Path = path.Join(dir, path.Base(list[i].Path))
	}
	slices.SortStableFunc(list, func(a, b fs.Info) int { return b.ModTime.Compare(a.ModTime) })
	return list, nil
}

// isJob reports whether a name is the id of a job.
func isJob(name string) bool {
	return len(name) == 32 && strings.Trim(name, "0123456789abcdef") == ""
}
