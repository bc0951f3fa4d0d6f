package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/thalweg/thalweg/bench/internal/flink"
	"github.com/thalweg/thalweg/bench/internal/gen"
)

// prepare installs Flink and builds our side's job. The product's programs are those of `make build`.
func prepare(ctx context.Context, o options, progress io.Writer) (*bench, error) {
	root, err := checkout()
	if err != nil {
		return nil, err
	}
	b := &bench{options: o, root: root, bin: filepath.Join(root, "bin"), out: progress, begin: time.Now(), tallies: map[string]gen.Tally{}}
	if b.dir, err = os.MkdirTemp("", "thalweg-bench-"); err != nil {
		return nil, err
	}
	b.pipe = filepath.Join(b.dir, "pipe")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", b.pipe, "./bench/jobs/pipe")
	cmd.Dir, cmd.Stderr = root, progress
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if err := cmd.Run(); err != nil {
		return nil, errors.Join(fmt.Errorf("build the job: %w", err), os.RemoveAll(b.dir))
	}
	if b.only != thalweg {
		if b.flink, err = flink.Install(ctx, root, progress); err != nil {
			return nil, errors.Join(err, os.RemoveAll(b.dir))
		}
	}
	return b, nil
}

// checkout finds the folder with go.mod above the working folder.
func checkout() (string, error) {
	wd, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for d := wd; ; d = filepath.Dir(d) {
		if _, err := os.Stat(filepath.Join(d, "go.mod")); err == nil {
			return d, nil
		}
		if d == filepath.Dir(d) {
			return "", fmt.Errorf("%s is not inside a checkout", wd)
		}
	}
}
