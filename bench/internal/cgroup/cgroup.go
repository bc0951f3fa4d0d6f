// Package cgroup confines a set of processes to a limit of memory, the page cache of what they read and write included, as a container
// is. It speaks to either version of Linux's control groups, whichever the memory controller is in. Layer: bench; imports nothing of ours.
//
// Main flow: New, Enter as the first words of a shell command (what it starts is inside from its first page on) or Add of a pid, Read,
// Close when the processes have ended.
//
// Source: Documentation/admin-guide/cgroup-v1/memory.rst and cgroup-v2.rst of Linux.
package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Group is a control group. Make it with New, give it up with Close. Safe for concurrent use.
type Group struct {
	dir string
	v2  bool
}

// Usage is what a group holds and has met, in bytes and times.
type Usage struct {
	Now   int64 `json:"now"`   // charged: anonymous memory, page cache, the kernel's own
	Peak  int64 `json:"peak"`  // the most that was charged: with files in use that is the limit
	Anon  int64 `json:"anon"`  // the processes' own memory
	Cache int64 `json:"cache"` // page cache
	Again int64 `json:"again"` // read from files again, since the page cache had no room for it
	Kills int64 `json:"kills"` // processes that the kernel killed for it
}

const root = "/sys/fs/cgroup"

// New makes a group below the machine's root group; limit is in bytes. It needs root's rights.
//
// Errors: why there is no confinement on this machine.
func New(name string, limit int64) (*Group, error) {
	g := &Group{dir: filepath.Join(root, "memory", name)}
	if text, err := os.ReadFile(filepath.Join(root, "cgroup.controllers")); err == nil {
		if !strings.Contains(string(text), "memory") {
			return nil, errors.New("cgroup: the root group has no memory controller")
		}
		g.dir, g.v2 = filepath.Join(root, name), true
		if err := os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), []byte("+memory"), 0o644); err != nil {
			return nil, fmt.Errorf("cgroup: %w", err)
		}
	} else if _, err := os.Stat(filepath.Join(root, "memory", "memory.limit_in_bytes")); err != nil {
		return nil, fmt.Errorf("cgroup: no memory controller is mounted below %s: %w", root, err)
	}
	if err := os.Mkdir(g.dir, 0o755); err != nil {
		return nil, fmt.Errorf("cgroup: %w", err)
	}
	if err := g.limit(limit); err != nil {
		return nil, errors.Join(err, g.Close(context.Background()))
	}
	return g, nil
}

// limit sets the limit, without swap.
func (g *Group) limit(n int64) error {
	files := []string{"memory.limit_in_bytes", "memory.memsw.limit_in_bytes"}
	values := []int64{n, n}
	if g.v2 {
		files, values = []string{"memory.max", "memory.swap.max"}, []int64{n, 0}
	}
	for i, f := range files {
		err := os.WriteFile(filepath.Join(g.dir, f), []byte(strconv.FormatInt(values[i], 10)), 0o644)
		if err != nil && (i == 0 || !errors.Is(err, os.ErrNotExist)) { // a kernel without swap has no such file
			return fmt.Errorf("cgroup: limit: %w", err)
		}
	}
	return nil
}

// Enter is a shell's command that brings the shell, and what it starts, into the group.
func (g *Group) Enter() string { return "echo $$ > " + filepath.Join(g.dir, "cgroup.procs") }

// Add brings a process into the group. What it holds already stays charged where it was.
func (g *Group) Add(pid int) error {
	if err := os.WriteFile(filepath.Join(g.dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644); err != nil {
		return fmt.Errorf("cgroup: add %d: %w", pid, err)
	}
	return nil
}

// Processes are the pids in the group.
func (g *Group) Processes() ([]int, error) {
	text, err := os.ReadFile(filepath.Join(g.dir, "cgroup.procs"))
	if err != nil {
		return nil, fmt.Errorf("cgroup: %w", err)
	}
	var all []int
	for f := range strings.FieldsSeq(string(text)) {
		if n, err := strconv.Atoi(f); err == nil {
			all = append(all, n)
		}
	}
	return all, nil
}

// Read reads the figures; those that the kernel does not tell are 0.
func (g *Group) Read() Usage {
	page := int64(os.Getpagesize())
	if g.v2 {
		stat, events := g.table("memory.stat"), g.table("memory.events")
		return Usage{Now: g.number("memory.current"), Peak: g.number("memory.peak"), Anon: stat["anon"], Cache: stat["file"], Again: stat["workingset_refault_file"] * page, Kills: events["oom_kill"]}
	}
	stat, oom := g.table("memory.stat"), g.table("memory.oom_control")
	return Usage{Now: g.number("memory.usage_in_bytes"), Peak: g.number("memory.max_usage_in_bytes"), Anon: stat["total_rss"], Cache: stat["total_cache"],
		Again: stat["total_workingset_refault_file"] * page, Kills: oom["oom_kill"]}
}

func (g *Group) number(file string) int64 {
	text, err := os.ReadFile(filepath.Join(g.dir, file))
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64) // the kernel writes numbers
	return n
}

// table reads a file of lines with a name and a number.
func (g *Group) table(file string) map[string]int64 {
	t := map[string]int64{}
	text, err := os.ReadFile(filepath.Join(g.dir, file))
	if err != nil {
		return t
	}
	for line := range strings.Lines(string(text)) {
		k, v, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.ParseInt(v, 10, 64); err == nil {
			t[k] = n
		}
	}
	return t
}

// Close removes the group. Its processes must have ended; the kernel may take a moment to see that, which Close waits for, five seconds at most and
// not after the end of ctx.
func (g *Group) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, closeWait)
	defer cancel()
	again := time.NewTicker(closePause)
	defer again.Stop()
	for {
		err := os.Remove(g.dir)
		if err == nil || errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if errors.Is(err, syscall.EBUSY) {
			select {
			case <-again.C:
				continue
			case <-ctx.Done():
			}
		}
		return fmt.Errorf("cgroup: remove: %w", err)
	}
}

const (
	closeWait  = 5 * time.Second
	closePause = 100 * time.Millisecond
)
