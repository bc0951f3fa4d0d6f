package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/thalweg/thalweg/bench/internal/flink"
	"github.com/thalweg/thalweg/bench/internal/gen"
	"github.com/thalweg/thalweg/bench/internal/machine"
)

// prepare installs Flink and builds our side's job. The product's programs are those of `make build`.
func prepare(ctx context.Context, o options, progress io.Writer) (*bench, error) {
	root, err := machine.Checkout()
	if err != nil {
		return nil, err
	}
	b := &bench{options: o, root: root, bin: filepath.Join(root, "bin"), out: progress, begin: time.Now(), tallies: map[string]gen.Tally{}}
	if b.dir, err = os.MkdirTemp("", "thalweg-bench-"); err != nil {
		return nil, err
	}
	b.pipe = filepath.Join(b.dir, "pipe")
	if err := machine.Build(ctx, root, b.pipe, "./bench/jobs/pipe", progress); err != nil {
		return nil, errors.Join(err, os.RemoveAll(b.dir))
	}
	if b.only != thalweg {
		if b.flink, err = flink.Install(ctx, root, progress); err != nil {
			return nil, errors.Join(err, os.RemoveAll(b.dir))
		}
	}
	return b, nil
}
