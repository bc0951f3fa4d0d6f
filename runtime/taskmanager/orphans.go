package taskmanager

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
)

// maxSweeps bounds the passes of killMarked: a process that forks faster than it is found.
const maxSweeps = 20

// killMarked kills every process that inherited name=value in its environment. The value is the path of a job process's control socket,
// which no two processes share, so what is found are descendants of that process, even those that left its group and session or whose
// parents are gone. It passes again until it finds none, since one may fork while it looks.
func killMarked(name, value string) {
	if value == "" {
		return
	}
	mark := []byte(name + "=" + value)
	for range maxSweeps {
		found := false
		for _, pid := range marked(mark) {
			found = syscall.Kill(pid, syscall.SIGKILL) == nil || found
		}
		if !found {
			return
		}
	}
}

// marked lists the processes whose environment has the entry. Those of other users cannot be read; zombies have none.
func marked(entry []byte) (pids []int) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil // not Linux, or hidden
	}
	names, _ := dir.Readdirnames(-1) // what was read before an error is good
	_ = dir.Close()                  // read only
	for _, n := range names {
		pid, err := strconv.Atoi(n)
		if err != nil || pid == os.Getpid() {
			continue
		}
		env, err := os.ReadFile("/proc/" + n + "/environ")
		if err != nil {
			continue
		}
		for e := range bytes.SplitSeq(env, []byte{0}) {
			if bytes.Equal(e, entry) {
				pids = append(pids, pid)
				break
			}
		}
	}
	return pids
}
