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
	"syscall"
	"time"

	"github.com/thalweg/thalweg/bench/internal/flink"
	"github.com/thalweg/thalweg/bench/internal/gen"
	"github.com/thalweg/thalweg/bench/internal/proc"
)

const (
	keys          = 10_000
	windowSeconds = 10
)

// local prepares a case that needs no cluster: ours is one process, Flink's a standalone JobManager and TaskManager.
func local(b *bench, ctx context.Context, c testCase) (engines, error) {
	e := engines{run: map[string]func(context.Context, int64) (sample, error){}, close: func() error { return nil }}
	dir := filepath.Join(b.dir, c.name)
	for _, n := range c.events {
		b.expected(c, b.scaled(n)) // not while an engine runs
		b.expected(c, b.scaled(n)/2)
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
		"state.backend.type": c.backend[side], "execution.checkpointing.interval": "1 s", "execution.checkpointing.dir": "file://" + dir,
		"execution.checkpointing.mode": map[string]string{thalweg: "exactly_once", peer: "EXACTLY_ONCE"}[side],
	}
}

func (c testCase) args(events int64, results string) []string {
	return []string{"--case", c.kind, "--events", strconv.FormatInt(events, 10), "--keys", strconv.Itoa(keys), "--result", results}
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
	cmd := exec.CommandContext(ctx, b.pipe, append(c.args(events, results), "--window", fmt.Sprintf("%ds", windowSeconds))...)
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
	return s, b.check(c, events, results)
}

// theirs runs the job on the standalone cluster; CPU time is that of both processes from before the submission until after the end.
func (b *bench) theirs(ctx context.Context, c testCase, s *flink.Standalone, dir string, events int64) (sample, error) {
	results, err := freshDir(dir, "flink-results")
	if err != nil {
		return sample{}, err
	}
	pids := s.PIDs()
	for _, p := range pids {
		if err := proc.ResetPeak(p); err != nil {
			return sample{}, err
		}
	}
	before := proc.CPU(pids...)
	wall, err := s.Run(ctx, "thalweg.bench.Pipe", c.parallelism, append(c.args(events, results), "--window", strconv.Itoa(windowSeconds))...)
	if err != nil {
		return sample{}, err
	}
	r := sample{Wall: wall.Seconds(), CPU: (proc.CPU(pids...) - before).Seconds()}
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
func (b *bench) expected(c testCase, events int64) gen.Tally {
	key := fmt.Sprint(c.kind, events)
	t, ok := b.tallies[key]
	if !ok {
		t = gen.Expected(c.kind, events, keys, windowSeconds*1000)
		b.tallies[key] = t
	}
	return t
}

// check compares what arrived at the sinks with the plain computation.
func (b *bench) check(c testCase, events int64, results string) error {
	want := b.expected(c, events)
	var got gen.Tally
	for i := range c.parallelism {
		text, err := os.ReadFile(filepath.Join(results, fmt.Sprintf("part-%d", i)))
		if err != nil {
			return fmt.Errorf("the sink left no tally: %w", err)
		}
		var t gen.Tally
		if _, err := fmt.Sscan(string(text), &t.Count, &t.Sum); err != nil {
			return fmt.Errorf("the sink's tally %q: %w", text, err)
		}
		got.Count += t.Count
		got.Sum += t.Sum
	}
	if got != want {
		return fmt.Errorf("wrong results: the sinks have %+v, the plain computation %+v", got, want)
	}
	return nil
}

// selfCPU is what this process used, without its children.
func selfCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
