package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/thalweg/thalweg/bench/internal/flink"
	"github.com/thalweg/thalweg/bench/internal/gen"
	"github.com/thalweg/thalweg/bench/internal/proc"
	"github.com/thalweg/thalweg/bench/internal/tally"
)

const (
	keys          = 10_000
	windowSeconds = 10
)

// localJob is the job of a case that needs no cluster, on both sides.
type localJob struct {
	program  string // ours, below bench/jobs
	class    string // Flink's
	interval string // of checkpoints
	args     func(side string, events int64, results string) []string
	// key names the results of so many events; expected computes them the plain way.
	key      func(events int64) string
	expected func(events int64) (tally.Tally, error)
	check    func(got, want tally.Tally) error
	prepare  func(ctx context.Context, b *bench) error // what the job reads; may be nil
}

// pipe is a case of bench/jobs/pipe.
func pipe(kind string) localJob {
	return localJob{program: "pipe", class: "thalweg.bench.Pipe", interval: "1 s",
		args: func(side string, events int64, results string) []string {
			window := strconv.Itoa(windowSeconds)
			if side == thalweg {
				window += "s"
			}
			return []string{"--case", kind, "--events", strconv.FormatInt(events, 10), "--keys", strconv.Itoa(keys), "--result", results, "--window", window}
		},
		key: func(events int64) string { return fmt.Sprint(kind, events) },
		expected: func(events int64) (tally.Tally, error) {
			return gen.Expected(kind, events, keys, windowSeconds*1000), nil
		},
		check: func(got, want tally.Tally) error {
			if got != want {
				return fmt.Errorf("wrong results: the sinks have %+v, the plain computation %+v", got, want)
			}
			return nil
		},
	}
}

// local prepares a case that needs no cluster: ours is one process, Flink's a standalone JobManager and TaskManager.
func local(b *bench, ctx context.Context, c testCase) (engines, error) {
	e := engines{run: map[string]func(context.Context, int64) (sample, error){}, close: func() error { return nil }}
	dir := filepath.Join(b.dir, strings.ReplaceAll(c.name, "/", "-"))
	if c.local.prepare != nil {
		if err := c.local.prepare(ctx, b); err != nil {
			return e, err
		}
	}
	for side, n := range c.events {
		if b.only != "" && b.only != side {
			continue
		}
		for _, n := range []int64{b.scaled(n), b.warmUp(c, side)} { // not while an engine runs
			if _, err := b.expected(c, n); err != nil {
				return e, err
			}
		}
	}
	e.run[thalweg] = func(ctx context.Context, events int64) (sample, error) { return b.ours(ctx, c, dir, events) }
	if b.only == thalweg {
		return e, os.MkdirAll(dir, 0o755)
	}
	settings := map[string]string{
		"taskmanager.memory.process.size": "4096m", "taskmanager.numberOfTaskSlots": strconv.Itoa(c.parallelism),
		"taskmanager.memory.managed.fraction": "0.1",
	}
	for k, v := range c.checkpoints(peer, filepath.Join(dir, "flink-checkpoints")) {
		settings[k] = v
	}
	if c.backend[peer] == "rocksdb" {
		settings["taskmanager.memory.managed.fraction"] = "0.4"
	}
	s, err := b.flink.Start(ctx, filepath.Join(dir, "flink"), settings)
	if err != nil {
		return e, err
	}
	e.close = s.Stop
	e.run[peer] = func(ctx context.Context, events int64) (sample, error) { return b.theirs(ctx, c, s, dir, events) }
	return e, nil
}

// checkpoints are the settings of state; the keys are the same on both sides.
func (c testCase) checkpoints(side, dir string) map[string]string {
	if c.backend == nil {
		return nil
	}
	return map[string]string{
		"state.backend.type": c.backend[side], "execution.checkpointing.interval": c.local.interval, "execution.checkpointing.dir": "file://" + dir,
		"execution.checkpointing.mode": map[string]string{thalweg: "exactly_once", peer: "EXACTLY_ONCE"}[side],
	}
}

// ours runs the job as one process on the embedded cluster; its CPU time and its memory are the process's, start included.
func (b *bench) ours(ctx context.Context, c testCase, dir string, events int64) (sample, error) {
	results, err := freshDir(dir, "thalweg-results")
	if err != nil {
		return sample{}, err
	}
	checkpoints, err := freshDir(dir, "thalweg-checkpoints")
	if err != nil {
		return sample{}, err
	}
	conf := map[string]string{"parallelism.default": strconv.Itoa(c.parallelism), "rest.port": "0", "taskmanager.numberOfTaskSlots": strconv.Itoa(c.parallelism), "restart-strategy.type": "none"}
	for k, v := range c.checkpoints(thalweg, checkpoints) {
		conf[k] = v
	}
	text, err := json.Marshal(conf)
	if err != nil {
		return sample{}, err
	}
	file := filepath.Join(dir, "thalweg.json")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return sample{}, err
	}
	program, err := b.program(ctx, c.local.program)
	if err != nil {
		return sample{}, err
	}
	cmd := exec.CommandContext(ctx, program, c.local.args(thalweg, events, results)...)
	cmd.Env = append(os.Environ(), "THALWEG_CONFIG="+file)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	begin := time.Now()
	if err := cmd.Run(); err != nil {
		return sample{}, fmt.Errorf("%w: %.3000s", err, log.String())
	}
	s := sample{Wall: time.Since(begin).Seconds(), CPU: (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()}
	if u, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		s.Peak = float64(u.Maxrss) / 1024
	}
	s.Allocs = allocations(results) / float64(events)
	return s, b.check(c, events, results)
}

// theirs runs the job on the standalone cluster; CPU time is that of both processes from before the submission until after the end, without
// the JobManager's planning.
func (b *bench) theirs(ctx context.Context, c testCase, s *flink.Standalone, dir string, events int64) (sample, error) {
	results, err := freshDir(dir, "flink-results")
	if err != nil {
		return sample{}, err
	}
	pids := []int{s.JobManager(), s.TaskManager()}
	for _, p := range pids {
		if err := proc.ResetPeak(p); err != nil {
			return sample{}, err
		}
	}
	tm := proc.CPU(s.TaskManager())
	id, err := s.Submit(ctx, c.local.class, c.parallelism, c.local.args(peer, events, results)...)
	if err != nil {
		return sample{}, err
	}
	jm := proc.CPU(s.JobManager())
	wall, err := s.Wait(ctx, id)
	if err != nil {
		return sample{}, err
	}
	r := sample{Wall: wall.Seconds(), CPU: (proc.CPU(pids...) - tm - jm).Seconds()}
	for _, p := range pids {
		_, peak := proc.Memory(p)
		r.Peak += float64(peak) / (1 << 20)
	}
	return r, b.check(c, events, results)
}

func freshDir(dir, name string) (string, error) {
	d := filepath.Join(dir, name)
	if err := os.RemoveAll(d); err != nil {
		return "", err
	}
	return d, os.MkdirAll(d, 0o755)
}

// expected is the plain computation, kept for the next run of as many events.
func (b *bench) expected(c testCase, events int64) (tally.Tally, error) {
	key := c.local.key(events)
	t, ok := b.tallies[key]
	if ok {
		return t, nil
	}
	t, err := c.local.expected(events)
	if err != nil {
		return t, err
	}
	b.tallies[key] = t
	return t, b.saveTallies()
}

// check compares what arrived at the sinks with the plain computation.
func (b *bench) check(c testCase, events int64, results string) error {
	want, err := b.expected(c, events)
	if err != nil {
		return err
	}
	got, err := tally.Read(results, c.parallelism)
	if err != nil {
		return err
	}
	return c.local.check(got, want)
}

// allocations is what the job counted: the process's, by the source subtask that saw the most.
func allocations(results string) float64 {
	files, err := filepath.Glob(filepath.Join(results, "allocs-*"))
	if err != nil {
		return 0
	}
	var most float64
	for _, f := range files {
		var n float64
		if text, err := os.ReadFile(f); err == nil {
			if _, err := fmt.Sscan(string(text), &n); err == nil {
				most = max(most, n)
			}
		}
	}
	return most
}

// selfCPU is what this process used, without its children.
func selfCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
