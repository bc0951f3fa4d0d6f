package taskmanager

import (
	"fmt"
	"os"
	"time"

	"github.com/thalweg/thalweg/config"
)

const (
	// memoryPoll is how often the workers of several jobs are looked at. YARN looks each 3 s (yarn.nodemanager.container-monitor.interval-ms).
	memoryPoll = 100 * time.Millisecond
	// memoryShare is the part of the container above which one of them has to go.
	memoryShare = 0.95
)

// guardMemory keeps the container below its size when several jobs share it: the worker that takes most is killed, before YARN, which knows the
// container only, kills them all. A single job's container is left to YARN.
func (t *TaskManager) guardMemory(stop <-chan struct{}) {
	tick := time.NewTicker(memoryPoll)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			t.checkMemory()
		case <-stop:
			return
		}
	}
}

func (t *TaskManager) checkMemory() {
	t.mu.Lock()
	pids := map[string]int{}
	for job, w := range t.workers {
		if pid := w.pid(); pid > 0 && pid != os.Getpid() {
			pids[job] = pid
		}
	}
	t.mu.Unlock()
	if len(pids) < 2 || t.opts.MemoryBytes <= 0 {
		return
	}
	used := map[string]int64{}
	for job, pid := range pids {
		used[job], _ = usage(pid)
	}
	own, _ := usage(os.Getpid())
	job, total := heaviest(own, used)
	if float64(total) < memoryShare*float64(t.opts.MemoryBytes) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.workers[job]
	if w == nil || w.pid() != pids[job] || w.greedy != "" {
		return
	}
	w.greedy = fmt.Sprintf("it took %s of the %s of the container (%s), which the workers of %d jobs share and had used up: it was killed, and the others go on",
		config.Bytes(used[job]>>20<<20), config.Bytes(t.opts.MemoryBytes), config.TaskManagerMemory.Key, len(pids))
	t.log.Warn().Str("job_id", job).Int("pid", pids[job]).Int64("bytes", used[job]).Int64("total", total).Int64("container", t.opts.MemoryBytes).Msg("the container's memory is used up; the worker that takes most is killed")
	w.proc.Stop(0)
}

// heaviest is the job whose worker has most memory, and the sum of all with the TaskManager's own. In bytes.
func heaviest(own int64, used map[string]int64) (job string, total int64) {
	total = own
	for j, n := range used {
		total += n
		if job == "" || n > used[job] || n == used[job] && j < job {
			job = j
		}
	}
	return job, total
}
