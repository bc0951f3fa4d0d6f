package file

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/serde"
)

// Sink writes each record, encoded by format, as a line of a part file: exactly once with checkpoints, since parts appear in the directory
// when the checkpoint that covers them is complete (so nothing appears before the first one). Without checkpoints parts appear when they
// are rolled and at the end, and a restart writes records again. A record whose encoding holds '\n' or ends with '\r' is refused: Source would not read it back as
// it was.
func Sink[T any](format serde.Format[T], opts ...SinkOption) connector.CommittingSink[T] {
	s := &sink[T]{format: format, cfg: &sinkConfig{prefix: "part", rollSize: 128 << 20, rollInterval: time.Minute}}
	for _, o := range opts {
		o(s.cfg)
	}
	if format == nil {
		s.cfg.errs = append(s.cfg.errs, errors.New("file: the sink has no format"))
	}
	s.cfg.errs = append(s.cfg.errs, invalid(format))
	if s.cfg.bucket != nil {
		fn, ok := s.cfg.bucket.(func(T) string)
		if !ok {
			s.cfg.errs = append(s.cfg.errs, fmt.Errorf("file.BucketBy: it has a %T, the sink's records are %v", s.cfg.bucket, reflect.TypeFor[T]()))
		}
		s.bucket = fn
	}
	return s
}

type sink[T any] struct {
	format serde.Format[T]
	cfg    *sinkConfig
	bucket func(T) string
}

var (
	_ connector.Validator = (*sink[int])(nil)
	_ connector.Preflight = (*sink[int])(nil)
)

func (s *sink[T]) Validate() error { return s.cfg.validate() }

// Preflight makes the directory and sees whether a file can be written in it.
func (s *sink[T]) Preflight(ctx context.Context, env connector.PreflightContext) (err error) {
	f, dir, err := env.Files.Resolve(ctx, s.cfg.dir)
	if err != nil {
		return fmt.Errorf("file: sink directory: %w", err)
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
	}()
	probe := dir + "/" + hidden + "/probe-" + runID()
	w, err := f.Create(ctx, probe, false)
	if err != nil {
		return fmt.Errorf("file: sink directory %s: %w", s.cfg.dir, err)
	}
	if err := w.Abort(); err != nil {
		return fmt.Errorf("file: sink directory %s: %w", s.cfg.dir, err)
	}
	_ = f.Remove(ctx, dir+"/"+hidden, false) // unless it is in use: the sink may have ended before an attempt that looks again
	return nil
}

func (s *sink[T]) Writer(ctx connector.SinkContext, restored [][]byte) (connector.SinkWriter[T], error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	return newWriter(s, ctx, restored)
}

func (s *sink[T]) Committer(ctx connector.SinkContext) (connector.Committer, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	return &committer{cfg: s.cfg, ctx: ctx, sys: systems{reg: ctx.Files}}, nil
}

// hidden is the folder of parts that are not committed.
const hidden = "_thalweg"

// key names the folder of one sink of one job, and of the jobs that were restored from its checkpoints.
func key(ctx connector.SinkContext) string { return short(ctx.JobID + "/" + ctx.OperatorID) }

func short(s string) string {
	h := sha256.Sum256([]byte(s))
	return hex.EncodeToString(h[:8])
}
