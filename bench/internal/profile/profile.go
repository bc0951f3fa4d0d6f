// Package profile writes CPU profiles of the benchmark's jobs. Layer: bench, used by the jobs only; it imports nothing of ours.
//
// Main flow: Start reads THALWEG_BENCH_PROFILE (a folder) and, when it is set, profiles the process between two moments of its life and
// writes cpu-<role>-<pid>.pprof and allocs-<role>-<pid>.pprof there. A job's main never returns, so the end is a timer.
package profile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
	"time"
)

// Start starts profiling when THALWEG_BENCH_PROFILE names a folder: from THALWEG_BENCH_PROFILE_AFTER (default 2s) after the start of the
// process, for THALWEG_BENCH_PROFILE_FOR (default 8s). Without the variable it does nothing.
func Start() error {
	dir := os.Getenv("THALWEG_BENCH_PROFILE")
	if dir == "" {
		return nil
	}
	after, err := span("THALWEG_BENCH_PROFILE_AFTER", 2*time.Second)
	if err != nil {
		return err
	}
	length, err := span("THALWEG_BENCH_PROFILE_FOR", 8*time.Second)
	if err != nil {
		return err
	}
	role := os.Getenv("THALWEG_ROLE")
	if role == "" {
		role = "local"
	}
	base := fmt.Sprintf("%s-%d.pprof", role, os.Getpid())
	go func() { // ends with the process at the latest
		if err := record(dir, base, after, length); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}()
	return nil
}

func record(dir, base string, after, length time.Duration) (err error) {
	<-time.After(after)
	f, err := os.Create(filepath.Join(dir, "cpu-"+base))
	if err != nil {
		return fmt.Errorf("profile: create: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := pprof.StartCPUProfile(f); err != nil {
		return fmt.Errorf("profile: start: %w", err)
	}
	<-time.After(length)
	pprof.StopCPUProfile()
	a, err := os.Create(filepath.Join(dir, "allocs-"+base))
	if err != nil {
		return fmt.Errorf("profile: create: %w", err)
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	return pprof.Lookup("allocs").WriteTo(a, 0)
}

func span(key string, otherwise time.Duration) (time.Duration, error) {
	s := os.Getenv(key)
	if s == "" {
		return otherwise, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, fmt.Errorf("profile: %s: %w", key, err)
	}
	return d, nil
}
