// Package proc tells what processes cost: CPU seconds and memory, from /proc. Layer: bench; imports nothing of ours.
//
// Main flow: a Tracker samples the processes that its match function names, and all that they start, until it is stopped. CPU time is
// user + system of every process over its life. What a process used between the last sample and its end, and children that no sample
// saw, are taken from its parent's account of children that ended.
//
// Invariant: no CPU second is counted twice: a child's seconds are in its parent's account only after the parent has waited for it, and
// then the larger of the two figures counts.
//
// Source: proc_pid_stat(5), proc_pid_status(5), proc_stat(5).
package proc

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of times in /proc: sysconf(_SC_CLK_TCK), 100 on every Linux that Go runs on.
const tick = 10 * time.Millisecond

// Stat is what /proc/PID/stat says. Times are of the process itself and of its children that ended and were waited for.
type Stat struct {
	PID, Parent  int
	Name         string
	State        byte
	Self, Waited time.Duration
	start        int64 // ticks since boot: with PID the identity of a process
}

// Read reads the figures of one process.
func Read(pid int) (Stat, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Stat{}, fmt.Errorf("proc: %w", err)
	}
	return parse(b)
}

func parse(b []byte) (Stat, error) {
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 1 || end < open {
		return Stat{}, fmt.Errorf("proc: stat %q has no name", b)
	}
	pid, err := strconv.Atoi(string(bytes.TrimSpace(b[:open])))
	if err != nil {
		return Stat{}, fmt.Errorf("proc: stat: %w", err)
	}
	f := strings.Fields(string(b[end+1:]))
	if len(f) < 20 {
		return Stat{}, fmt.Errorf("proc: stat of %d has %d fields", pid, len(f))
	}
	n := func(i int) int64 { v, _ := strconv.ParseInt(f[i], 10, 64); return v } // the kernel writes numbers
	return Stat{
		PID: pid, Name: string(b[open+1 : end]), State: f[0][0], Parent: int(n(1)),
		Self: time.Duration(n(11)+n(12)) * tick, Waited: time.Duration(n(13)+n(14)) * tick, start: n(19),
	}, nil
}

// Memory is a process's resident memory and the largest it ever had, in bytes; zeros when it has ended.
func Memory(pid int) (now, peak int64) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0
	}
	for line := range strings.Lines(string(b)) {
		k, v, _ := strings.Cut(line, ":")
		n, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(v), " kB"), 10, 64)
		switch k {
		case "VmRSS":
			now = n << 10
		case "VmHWM":
			peak = n << 10
		}
	}
	return now, peak
}

// ResetPeak makes a process's peak memory its present one.
func ResetPeak(pid int) error {
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0o200); err != nil {
		return fmt.Errorf("proc: reset the peak memory of %d: %w", pid, err)
	}
	return nil
}

// CPU is the CPU time of live processes together, their ended children included.
func CPU(pids ...int) time.Duration {
	var d time.Duration
	for _, p := range pids {
		if s, err := Read(p); err == nil {
			d += s.Self + s.Waited
		}
	}
	return d
}

// Self is the CPU time of live processes together, without their children.
func Self(pids ...int) time.Duration {
	var d time.Duration
	for _, p := range pids {
		if s, err := Read(p); err == nil {
			d += s.Self
		}
	}
	return d
}

// Busy is the CPU time that the whole machine has used since it was started; what a hypervisor took counts as used.
func Busy() time.Duration {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(b), "\n")
	var all int64
	for i, f := range strings.Fields(line)[1:] {
		if n, err := strconv.ParseInt(f, 10, 64); err == nil && i != 3 && i != 4 && i < 8 { // less idle, iowait; guest time is in user time
			all += n
		}
	}
	return time.Duration(all) * tick
}

// Cores is the number of CPUs of the machine.
func Cores() int {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 1
	}
	n := 0
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, "cpu") && line[3] >= '0' && line[3] <= '9' {
			n++
		}
	}
	return max(n, 1)
}

func pids() []int {
	names, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil
	}
	all := make([]int, 0, len(names))
	for _, n := range names {
		if p, err := strconv.Atoi(filepath.Base(n)); err == nil {
			all = append(all, p)
		}
	}
	return all
}

// Environment is a process's environment as it was started with.
func Environment(pid int) []byte {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return nil
	}
	return b
}

// Command is a process's command line.
func Command(pid int) []string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || len(b) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00")
}
