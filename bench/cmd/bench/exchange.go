package main

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"syscall"
	"time"
)

// exchange prepares the cases exchange and exchange-strings, which are ours alone.
func exchange(b *bench, ctx context.Context, c testCase) (engines, error) {
	program, err := b.program(ctx, "exchange")
	if err != nil {
		return engines{}, err
	}
	run := func(ctx context.Context, records int64) (sample, error) {
		begin := time.Now()
		cmd := exec.CommandContext(ctx, program, "-events", strconv.FormatInt(records, 10), "-strings="+strconv.FormatBool(c.name == "exchange-strings"))
		text, err := cmd.CombinedOutput()
		if err != nil {
			return sample{}, fmt.Errorf("%w: %.3000s", err, text)
		}
		s := sample{Wall: time.Since(begin).Seconds(), CPU: (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()}
		if u, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
			s.Peak = float64(u.Maxrss) / 1024
		}
		if _, err := fmt.Sscan(string(text), &s.Allocs); err != nil {
			return s, fmt.Errorf("the job's output %q: %w", text, err)
		}
		return s, nil
	}
	return engines{run: map[string]func(context.Context, int64) (sample, error){thalweg: run}, close: func() error { return nil }}, nil
}
