package history

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/thalweg/thalweg/internal/version"
	"github.com/thalweg/thalweg/runtime/webui"
)

// Handler serves what the store has, under Flink's paths, and the status page at /. It only shows. refresh is what the page is told about how
// often there may be something new.
func Handler(s *Store, refresh time.Duration) http.Handler {
	page := webui.Handler()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-cache")
		p := "/" + strings.Trim(r.URL.Path, "/")
		if rest, ok := strings.CutPrefix(p, "/v1/"); ok {
			p = "/" + rest
		}
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			fail(w, http.StatusMethodNotAllowed, "the history only shows: "+r.Method+" "+p)
			return
		}
		switch p {
		case "/":
			page.ServeHTTP(w, r)
		case "/config":
			name, offset := time.Now().Zone()
			write(w, http.StatusOK, map[string]any{"refresh-interval": refresh.Milliseconds(), "timezone-name": name, "timezone-offset": offset * 1000, "flink-version": version.Version, "flink-revision": "",
				"features": map[string]bool{"web-submit": false, "web-cancel": false, "web-rescale": false, "web-history": true}})
		case "/overview":
			write(w, http.StatusOK, overview(s.Jobs()))
		case "/jobs/overview":
			jobs := []json.RawMessage{}
			for _, e := range s.entries() {
				jobs = append(jobs, e.overview)
			}
			write(w, http.StatusOK, map[string]any{"jobs": jobs})
		case "/jobs":
			jobs := []map[string]string{}
			for _, j := range s.Jobs() {
				jobs = append(jobs, map[string]string{"id": j.ID, "status": j.State})
			}
			write(w, http.StatusOK, map[string]any{"jobs": jobs})
		default:
			serveJob(w, r, s, p)
		}
	})
}

func serveJob(w http.ResponseWriter, r *http.Request, s *Store, p string) {
	rest, ok := strings.CutPrefix(p, "/jobs/")
	job, _, _ := strings.Cut(rest, "/")
	if !ok || !isJob(job) {
		fail(w, http.StatusNotFound, "Not found: "+r.Method+" "+r.URL.Path)
		return
	}
	doc, ok, err := s.Document(r.Context(), job, p)
	switch {
	case err != nil:
		fail(w, http.StatusServiceUnavailable, err.Error())
	case !ok:
		fail(w, http.StatusNotFound, "the history has nothing under "+p)
	default:
		write(w, http.StatusOK, json.RawMessage(doc))
	}
}

func overview(jobs []Job) map[string]any {
	n := map[string]int{}
	for _, j := range jobs {
		n[j.State]++
	}
	return map[string]any{"taskmanagers": 0, "slots-total": 0, "slots-available": 0, "jobs-running": 0, "jobs-finished": n["FINISHED"], "jobs-cancelled": n["CANCELED"], "jobs-failed": n["FAILED"],
		"flink-version": version.Version, "flink-commit": ""}
}

func fail(w http.ResponseWriter, status int, text string) {
	write(w, status, map[string]any{"errors": []string{text}})
}

func write(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // the client is gone
}
