package rest

import (
	"errors"
	iofs "io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/internal/version"
	"github.com/thalweg/thalweg/runtime/jobmaster"
	"github.com/thalweg/thalweg/runtime/resourcemanager"
	"github.com/thalweg/thalweg/runtime/scheduler"
)

func (s *server) clusterRoutes() {
	s.route("GET /overview", s.overview)
	s.route("GET /config", s.dashboardConfig)
	s.route("GET /jobmanager/config", func(*http.Request) (any, error) { return pairs(s.opts.Config), nil })
	s.route("GET /jobmanager/logs", s.logs)
	s.mux.HandleFunc("GET /jobmanager/logs/{name}", func(w http.ResponseWriter, r *http.Request) { s.logFile(w, r, r.PathValue("name")) })
	s.mux.HandleFunc("GET /jobmanager/log", func(w http.ResponseWriter, r *http.Request) { s.logFile(w, r, "jobmanager.log") })
	s.mux.HandleFunc("GET /jobmanager/stdout", func(w http.ResponseWriter, r *http.Request) { s.logFile(w, r, "jobmanager.out") })
	s.route("GET /taskmanagers", s.taskManagers)
	s.route("GET /taskmanagers/{id}", s.taskManager)
	s.route("DELETE /cluster", func(*http.Request) (any, error) {
		if s.opts.Shutdown == nil {
			return nil, &statusError{http.StatusForbidden, "This cluster cannot be shut down over REST."}
		}
		s.opts.Shutdown()
		return object{}, nil
	})
}

func (s *server) overview(r *http.Request) (any, error) {
	jobs, err := s.opts.Dispatcher.Jobs(r.Context())
	if err != nil {
		return nil, err
	}
	tms := s.opts.TaskManagers.TaskManagers()
	total, free := 0, 0
	for _, t := range tms {
		total += t.Slots
		free += t.FreeSlots
	}
	n := map[scheduler.JobState]int{}
	running := 0
	for _, d := range jobs {
		n[d.State]++
		if !d.State.Terminal() {
			running++
		}
	}
	return object{"taskmanagers": len(tms), "taskmanagers-blocked": 0, "slots-total": total, "slots-available": free, "slots-free-and-blocked": 0,
		"jobs-running": running, "jobs-finished": n[scheduler.JobFinished], "jobs-cancelled": n[scheduler.JobCanceled], "jobs-failed": n[scheduler.JobFailed],
		"flink-version": version.Version, "flink-commit": "", "product": "thalweg"}, nil
}

func (s *server) dashboardConfig(*http.Request) (any, error) {
	zone, offset := time.Now().Zone()
	return object{"refresh-interval": config.WebRefreshInterval.Value(s.opts.Config).Milliseconds(), "timezone-name": zone, "timezone-offset": offset * 1000,
		"flink-version": version.Version, "flink-revision": "", "product": "thalweg", "protocol": version.Protocol, "session": s.opts.Session != nil,
		"features": object{"web-submit": false, "web-cancel": true, "web-rescale": true, "web-history": false}}, nil
}

// pairs is a redacted configuration in Flink's form.
func pairs(c config.Configuration) []object {
	red := c.Redacted()
	out := []object{}
	for _, k := range slices.Sorted(maps.Keys(red)) {
		out = append(out, object{"key": k, "value": red[k]})
	}
	return out
}

func (s *server) logs(*http.Request) (any, error) {
	out := []object{}
	if s.opts.LogDir == "" {
		return object{"logs": out}, nil
	}
	entries, err := os.ReadDir(s.opts.LogDir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if i, err := e.Info(); err == nil && i.Mode().IsRegular() {
			out = append(out, object{"name": e.Name(), "size": i.Size(), "mtime": i.ModTime().UnixMilli()})
		}
	}
	return object{"logs": out}, nil
}

// logFile serves one file of the log folder; os.Root keeps names and links inside of it.
func (s *server) logFile(w http.ResponseWriter, r *http.Request, name string) {
	f, err := openLog(s.opts.LogDir, name)
	if err != nil {
		if errors.Is(err, iofs.ErrNotExist) {
			err = notFound("No log file %s.", clip(name))
		}
		s.fail(w, r, err)
		return
	}
	defer func() { _ = f.Close() }() // read only
	w.Header().Set("Content-Type", "text/plain; charset=UTF-8")
	http.ServeContent(w, r, "", time.Time{}, f)
}

func openLog(dir, name string) (*os.File, error) {
	if dir == "" || name != filepath.Base(name) || name == "." || name == ".." || strings.ContainsRune(name, 0) {
		return nil, iofs.ErrNotExist
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }() // the file stays open without it
	f, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return nil, errors.Join(iofs.ErrNotExist, f.Close())
	}
	return f, nil
}

// tasksOn counts the tasks of all jobs by TaskManager.
func tasksOn(jobs []*jobmaster.Details) map[string]int {
	n := map[string]int{}
	for _, d := range jobs {
		for _, v := range d.Vertices {
			for _, t := range v.Tasks {
				if t.TaskManager != "" && !t.State.Terminal() {
					n[t.TaskManager]++
				}
			}
		}
	}
	return n
}

func (s *server) taskManagerJSON(t resourcemanager.TaskManagerInfo, tasks int) object {
	resource := func(slots int) object {
		share := 0.0
		if t.Slots > 0 {
			share = float64(slots) / float64(t.Slots)
		}
		return object{"cpuCores": float64(t.Cores) * share, "taskHeapMemory": int64(float64(t.MemoryBytes>>20) * share), "taskOffHeapMemory": 0,
			"managedMemory": int64(float64(t.MemoryBytes>>20) * share * config.ManagedFraction.Value(s.opts.Config)), "networkMemory": 0, "extendedResources": object{}}
	}
	return object{"id": t.ID, "path": t.Remote, "host": t.Host, "dataPort": -1, "jmxPort": -1, "timeSinceLastHeartbeat": t.LastHeartbeat.UnixMilli(), "slotsNumber": t.Slots, "freeSlots": t.FreeSlots,
		"totalResource": resource(t.Slots), "freeResource": resource(t.FreeSlots),
		"hardware":            object{"cpuCores": t.Cores, "physicalMemory": t.MemoryBytes, "freeMemory": max(0, t.MemoryBytes-rss(t)), "managedMemory": int64(float64(t.MemoryBytes) * config.ManagedFraction.Value(s.opts.Config))},
		"memoryConfiguration": object{"totalProcessMemory": t.MemoryBytes}, "blocked": t.Leaves != nil, "assignedTasks": tasks,
		"nodeHttpAddress": t.NodeHTTPAddress, "version": t.Version, "pid": t.PID}
}

// rss is the resident size of the TaskManager and its workers, bytes.
func rss(t resourcemanager.TaskManagerInfo) int64 {
	n := t.RSSBytes
	for _, w := range t.Workers {
		n += w.GetRssBytes()
	}
	return n
}

func (s *server) taskManagers(r *http.Request) (any, error) {
	jobs, err := s.opts.Dispatcher.Jobs(r.Context())
	if err != nil {
		return nil, err
	}
	tasks := tasksOn(jobs)
	out := []object{}
	for _, t := range s.opts.TaskManagers.TaskManagers() {
		out = append(out, s.taskManagerJSON(t, tasks[t.ID]))
	}
	return object{"taskmanagers": out}, nil
}

func (s *server) taskManager(r *http.Request) (any, error) {
	jobs, err := s.opts.Dispatcher.Jobs(r.Context())
	if err != nil {
		return nil, err
	}
	tasks := tasksOn(jobs)
	for _, t := range s.opts.TaskManagers.TaskManagers() {
		if t.ID != r.PathValue("id") {
			continue
		}
		o := s.taskManagerJSON(t, tasks[t.ID])
		slots := []object{}
		for _, i := range slices.Sorted(maps.Keys(t.Jobs)) {
			slots = append(slots, object{"jobId": t.Jobs[i], "index": i})
		}
		o["allocatedSlots"] = slots
		workers := []object{}
		cpu := t.CPUSeconds
		for _, w := range t.Workers {
			cpu += w.GetCpuSeconds()
			workers = append(workers, object{"jobId": w.GetJobId(), "pid": w.GetPid(), "rss": w.GetRssBytes(), "cpuSeconds": w.GetCpuSeconds()})
		}
		o["workers"] = workers
		o["metrics"] = object{"rss": rss(t), "cpuSeconds": cpu}
		return o, nil
	}
	return nil, notFound("TaskManager %s not found.", clip(r.PathValue("id")))
}
