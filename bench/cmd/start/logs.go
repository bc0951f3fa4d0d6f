package main

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// peak is a client's largest resident memory in MiB.
func peak(s *os.ProcessState) float64 {
	if u, ok := s.SysUsage().(*syscall.Rusage); ok {
		return float64(u.Maxrss) / 1024
	}
	return 0
}

// mark is a line of a log that stands for a moment: the first one that contains the text; an empty text is the first line.
type mark struct{ file, text, name string }

var ours = []mark{
	{"jobmanager.log", "application master starts", "AM: first line"},
	{"jobmanager.log", "acquired epoch", "AM: epoch acquired"},
	{"jobmanager.log", `"phase":"registered"`, "AM: registered, TaskManager asked for"},
	{"jobmanager.log", `"phase":"fetched"`, "AM: job's binary fetched"},
	{"jobmanager.log", `"phase":"planned"`, "AM: graph planned"},
	{"jobmanager.log", `"phase":"submitted"`, "AM: job submitted to the dispatcher"},
	{"jobmanager.log", `"message":"container started"`, "AM: container granted and started"},
	{"taskmanager.log", `"message":"TaskManager starts"`, "TaskManager: first line"},
	{"jobmanager.log", `"message":"TaskManager registered"`, "AM: TaskManager registered"},
	{"taskmanager.log", `"message":"worker started"`, "TaskManager: worker forked"},
	{"jobmanager.log", `"message":"tasks deployed"`, "AM: tasks deployed"},
	{"jobmanager.log", `"message":"all tasks run"`, "AM: all tasks run"},
}

var theirs = []mark{
	{"jobmanager.log", "", "AM: first line"},
	{"jobmanager.log", "switched from state CREATED to RUNNING", "AM: job RUNNING"},
	{"jobmanager.log", "Requesting new worker with resource spec", "AM: TaskManager asked for"},
	{"jobmanager.log", "Received 1 containers", "AM: container granted"},
	{"taskmanager.log", "", "TaskManager: first line"},
	{"jobmanager.log", "Registering TaskManager", "AM: TaskManager registered"},
	{"jobmanager.log", "to INITIALIZING", "AM: tasks INITIALIZING"},
	{"jobmanager.log", "INITIALIZING to RUNNING", "AM: a task runs"},
}

// moments finds the marks in an application's logs; times are milliseconds since the Unix epoch.
func moments(roots []string, app, side string) []phase {
	marks := theirs
	if side == thalweg {
		marks = ours
	}
	var all []phase
	for _, m := range marks {
		for _, root := range roots {
			files, err := filepath.Glob(filepath.Join(root, app, "*", m.file))
			if err != nil {
				continue
			}
			for _, f := range files {
				if at, ok := find(f, m.text); ok {
					all = append(all, phase{m.name, float64(at)})
				}
			}
		}
	}
	return all
}

func find(file, text string) (int64, bool) {
	f, err := os.Open(file)
	if err != nil {
		return 0, false
	}
	defer f.Close() //nolint:errcheck // only read
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		if strings.Contains(sc.Text(), text) {
			if at, ok := stamp(sc.Text()); ok {
				return at, true
			}
		}
	}
	return 0, false
}

// stamp reads a line's time: ours are JSON, Flink's begin with it.
func stamp(line string) (int64, bool) {
	if strings.HasPrefix(line, "{") {
		var l struct {
			Time time.Time `json:"time"`
		}
		if json.Unmarshal([]byte(line), &l) != nil {
			return 0, false
		}
		return l.Time.UnixMilli(), true
	}
	first, _, _ := strings.Cut(line, " ")
	n, err := strconv.ParseInt(first, 10, 64)
	return n, err == nil
}
