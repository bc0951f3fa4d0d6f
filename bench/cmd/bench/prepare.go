package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/thalweg/thalweg/bench/internal/flink"
	"github.com/thalweg/thalweg/bench/internal/machine"
	"github.com/thalweg/thalweg/bench/internal/tally"
)

// prepare installs Flink. The product's programs are those of `make build`.
func prepare(ctx context.Context, o options, progress io.Writer) (*bench, error) {
	root, err := machine.Checkout()
	if err != nil {
		return nil, err
	}
	b := &bench{options: o, root: root, bin: filepath.Join(root, "bin"), out: progress, begin: time.Now(), tallies: map[string]tally.Tally{}, programs: map[string]string{}}
	b.data = os.Getenv("THALWEG_BENCH_DIR")
	if b.data == "" {
		b.data = filepath.Join(root, ".cluster", "bench")
	}
	if err := os.MkdirAll(b.data, 0o755); err != nil {
		return nil, err
	}
	if err := b.loadTallies(); err != nil {
		return nil, err
	}
	if b.dir, err = os.MkdirTemp("", "thalweg-bench-"); err != nil {
		return nil, err
	}
	if b.only != thalweg {
		if b.flink, err = flink.Install(ctx, root, progress); err != nil {
			return nil, errors.Join(err, os.RemoveAll(b.dir))
		}
	}
	return b, nil
}

// program builds a job of ours, once.
func (b *bench) program(ctx context.Context, name string) (string, error) {
	if p, ok := b.programs[name]; ok {
		return p, nil
	}
	p := filepath.Join(b.dir, name)
	if err := machine.Build(ctx, b.root, p, "./bench/jobs/"+name, b.out); err != nil {
		return "", err
	}
	b.programs[name] = p
	return p, nil
}

// The plain computations of earlier runs are kept, since those of some queries take as long as the query.

func (b *bench) talliesFile() string { return filepath.Join(b.data, "expected.json") }

func (b *bench) loadTallies() error {
	text, err := os.ReadFile(b.talliesFile())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(text, &b.tallies)
	}
	if err != nil {
		return fmt.Errorf("results of the plain computation: %w; remove %s", err, b.talliesFile())
	}
	return nil
}

func (b *bench) saveTallies() error {
	text, err := json.Marshal(b.tallies)
	if err != nil {
		return err
	}
	return os.WriteFile(b.talliesFile(), text, 0o644)
}
