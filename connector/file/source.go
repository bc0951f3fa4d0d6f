package file

import (
	"context"
	"errors"
	"fmt"
	iofs "io/fs"

	"github.com/thalweg/thalweg/connector"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/serde"
)

// Source reads lines, each decoded by format; "\r\n" ends a line as "\n" does. Formats other than serde.String and serde.Bytes do not see
// empty lines. Records have no event time of their own.
func Source[T any](format serde.Format[T], opts ...SourceOption) connector.Source[T] {
	s := &source[T]{format: format, cfg: &sourceConfig{splitSize: 64 << 20, maxLine: 64 << 20}}
	for _, o := range opts {
		o(s.cfg)
	}
	if format == nil {
		s.cfg.errs = append(s.cfg.errs, errors.New("file: the source has no format"))
	}
	s.cfg.errs = append(s.cfg.errs, invalid(format))
	return s
}

// invalid is why a format cannot be used, nil when it can.
func invalid(format any) error {
	if v, ok := format.(connector.Validator); ok {
		if err := v.Validate(); err != nil {
			return fmt.Errorf("file: format: %w", err)
		}
	}
	return nil
}

type source[T any] struct {
	format serde.Format[T]
	cfg    *sourceConfig
}

var (
	_ connector.Validator = (*source[int])(nil)
	_ connector.Preflight = (*source[int])(nil)
)

func (s *source[T]) Validate() error { return s.cfg.validate() }

func (s *source[T]) Boundedness() connector.Boundedness {
	if s.cfg.monitor > 0 {
		return connector.Unbounded
	}
	return connector.Bounded
}

// Preflight refuses paths that are not there.
func (s *source[T]) Preflight(ctx context.Context, env connector.PreflightContext) error {
	for _, uri := range s.cfg.paths {
		f, p, err := env.Files.Resolve(ctx, uri)
		if err != nil {
			return fmt.Errorf("file: source path: %w", err)
		}
		_, err = f.Stat(ctx, p)
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		if errors.Is(err, iofs.ErrNotExist) || errors.Is(err, iofs.ErrPermission) {
			return fmt.Errorf("file: source path %s: %w", uri, err)
		}
	}
	return nil
}

func (s *source[T]) Enumerator(ctx connector.EnumeratorContext, restored []byte) (connector.Enumerator, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	return newEnumerator(s.cfg, ctx, restored)
}

func (s *source[T]) Reader(ctx connector.ReaderContext) (connector.Reader[T], error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	return newReader(s.cfg, s.format, ctx), nil
}

// lastingError is one that no restart of the job heals.
type lastingError struct{ error }

func (e lastingError) Unwrap() error { return e.error }
func (e lastingError) Fatal() bool   { return true }

// systems are the open file systems of one owner, by root. It belongs to one goroutine.
type systems struct {
	reg  *fs.Registry
	open map[string]fs.FileSystem
}

// resolve returns the file system of uri and the path inside.
func (s *systems) resolve(ctx context.Context, uri string) (fs.FileSystem, string, error) {
	f, p, err := s.reg.Resolve(ctx, uri)
	if err != nil {
		return nil, "", err
	}
	if known := s.open[f.URI()]; known != nil {
		return known, p, f.Close()
	}
	if s.open == nil {
		s.open = map[string]fs.FileSystem{}
	}
	s.open[f.URI()] = f
	return f, p, nil
}

// uriOf is the URI of a path in f, whatever letters it has.
func uriOf(f fs.FileSystem, p string) string { return f.URI() + p }

func (s *systems) close() error {
	var errs []error
	for _, f := range s.open {
		errs = append(errs, f.Close())
	}
	s.open = nil
	return errors.Join(errs...)
}
