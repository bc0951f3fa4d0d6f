package proc

import (
	"bytes"
	"sync"
	"time"
)

const (
	every = 100 * time.Millisecond
	// settle is how long a process may take from its birth to its program: until then it has its parent's environment.
	settle = 2 * time.Second
)

// Usage is what the tracked processes cost so far.
type Usage struct {
	CPU  time.Duration
	Peak int64 // bytes: the largest sum, over the samples, of the peaks of the processes that lived then
	Live int   // processes
}

// Tracker follows a set of processes. Stop it.
type Tracker struct {
	match func(pid int) bool

	mu      sync.Mutex
	known   map[int]*process
	foreign map[int]foreign
	ended   []*process
	peak    int64

	stop chan struct{}
	wg   sync.WaitGroup
}

type foreign struct {
	start int64
	seen  time.Time
}

type process struct {
	Stat
	peak     int64
	children time.Duration // of tracked children that this process waited for
}

// Container matches the processes of a YARN application, given its id as in "application_1_0001".
func Container(application string) func(int) bool {
	want := []byte("CONTAINER_ID=container_")
	id := []byte(application[len("application"):] + "_")
	return func(pid int) bool {
		env := Environment(pid)
		i := bytes.Index(env, want)
		if i < 0 {
			return false
		}
		name := env[i:]
		if j := bytes.IndexByte(name, 0); j >= 0 {
			name = name[:j]
		}
		return bytes.Contains(name, id)
	}
}

// Track starts to follow the processes that match names.
func Track(match func(pid int) bool) *Tracker {
	t := &Tracker{match: match, known: map[int]*process{}, foreign: map[int]foreign{}, stop: make(chan struct{})}
	t.wg.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			t.sample()
			select {
			case <-tick.C:
			case <-t.stop:
				return
			}
		}
	})
	return t
}

// Usage takes a sample and returns what was used until now.
func (t *Tracker) Usage() Usage {
	t.sample()
	t.mu.Lock()
	defer t.mu.Unlock()
	u := Usage{Peak: t.peak, Live: len(t.known)}
	for _, p := range t.known {
		u.CPU += p.total()
	}
	for _, p := range t.ended {
		u.CPU += p.total()
	}
	return u
}

// Stop ends the sampling and returns the sum.
func (t *Tracker) Stop() Usage {
	close(t.stop)
	t.wg.Wait()
	return t.Usage()
}

// Process is a live tracked process.
type Process struct {
	PID     int
	Command []string
	RSS     int64
}

// Live lists the tracked processes that live, with their memory of this moment.
func (t *Tracker) Live() []Process {
	t.sample()
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []Process
	for _, p := range t.known {
		now, _ := Memory(p.PID)
		all = append(all, Process{PID: p.PID, Command: Command(p.PID), RSS: now})
	}
	return all
}

// total is what a process used that no other tracked process's total has.
func (p *process) total() time.Duration { return p.Self + max(p.Waited-p.children, 0) }

func (t *Tracker) sample() {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	alive := map[int]bool{}
	var sum int64
	for _, pid := range pids() {
		p := t.known[pid]
		if p == nil {
			if p = t.discover(pid, now); p == nil {
				continue
			}
		}
		s, err := Read(pid)
		if err != nil || s.start != p.start {
			continue
		}
		p.Stat = s
		alive[pid] = true
		if s.State != 'Z' {
			_, p.peak = Memory(pid)
			sum += p.peak
		}
	}
	t.peak = max(t.peak, sum)
	for pid, p := range t.known {
		if !alive[pid] {
			t.bury(p)
		}
	}
}

// discover decides whether a process is one of ours.
func (t *Tracker) discover(pid int, now time.Time) *process {
	s, err := Read(pid)
	if err != nil {
		return nil
	}
	f, met := t.foreign[pid]
	if met && f.start == s.start && now.Sub(f.seen) > settle {
		return nil
	}
	if !met || f.start != s.start {
		f = foreign{s.start, now}
		t.foreign[pid] = f
	}
	if t.known[s.Parent] == nil && !t.match(pid) {
		return nil
	}
	delete(t.foreign, pid)
	p := &process{Stat: s}
	t.known[pid] = p
	return p
}

// bury moves a process that ended to the ended ones. If its parent lives, it has waited for it, and its account has the exact figure.
func (t *Tracker) bury(p *process) {
	delete(t.known, p.PID)
	t.ended = append(t.ended, p)
	if parent := t.known[p.Parent]; parent != nil && parent.PID != p.PID {
		parent.children += p.total() + p.children
	}
}
