package am

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/thalweg/thalweg/config"
)

const (
	// jobRoom is what a job takes in the application master's container: the coordinator process.
	jobRoom = 32 << 20
	// roomShare is the part of the container that jobs may fill. YARN kills it at the whole, and the next attempt with all the jobs again.
	roomShare = 0.9
)

// room says why the container has no room for the coordinator process of another job, nil when it has.
func (m *master) room(jobs int) error {
	return roomFor(jobs, treeRSS(os.Getpid()), config.JobManagerMemory.Value(m.app.Config))
}

// roomFor is room with what the processes take now and the container's size.
func roomFor(jobs int, used int64, container config.Bytes) error {
	if float64(used+jobRoom) < roomShare*float64(container) {
		return nil
	}
	return fmt.Errorf("the session's application master has no room for another job: with %d jobs it takes %s of its container of %s (%s, -jm): start a session with a larger one, or end jobs",
		jobs, config.Bytes(used>>20<<20), container, config.JobManagerMemory.Key)
}

// treeRSS is the resident memory of a process and its children, in bytes; what cannot be read is left out.
func treeRSS(pid int) (n int64) {
	dir := fmt.Sprintf("/proc/%d", pid)
	if b, err := os.ReadFile(filepath.Join(dir, "statm")); err == nil {
		if f := strings.Fields(string(b)); len(f) > 1 {
			pages, _ := strconv.ParseInt(f[1], 10, 64)
			n = pages * int64(os.Getpagesize())
		}
	}
	lists, _ := filepath.Glob(filepath.Join(dir, "task", "*", "children")) // children are listed by the thread that made them
	for _, list := range lists {
		b, err := os.ReadFile(list)
		if err != nil {
			continue
		}
		for _, child := range strings.Fields(string(b)) {
			if p, err := strconv.Atoi(child); err == nil {
				n += treeRSS(p)
			}
		}
	}
	return n
}
