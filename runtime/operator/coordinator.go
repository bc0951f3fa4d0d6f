package operator

import (
	"context"

	"github.com/thalweg/thalweg/connector"
)

// Coordinator is an operator's half in the coordinator process.
type Coordinator interface {
	// Preflight checks the external system before any task is deployed; an error fails the job for good.
	Preflight(ctx context.Context, env connector.PreflightContext) error
	// Enumerator makes the source's enumerator, or returns nil for operators without one.
	Enumerator(ctx connector.EnumeratorContext, restored []byte) (connector.Enumerator, error)
	// Alignment is the source's watermark alignment, nil for none.
	Alignment() *Alignment
}

// SourceCoordinator is the Coordinator of a source.
func SourceCoordinator[T any](src connector.Source[T], wm Watermarks[T]) Coordinator {
	return coordinator{preflight(src), src.Enumerator, wm.Alignment}
}

// SinkCoordinator is the Coordinator of a sink that has checks, nil for others.
func SinkCoordinator(s any) Coordinator {
	p := preflight(s)
	if p == nil {
		return nil
	}
	return coordinator{p, nil, nil}
}

func preflight(v any) connector.Preflight {
	p, _ := v.(connector.Preflight)
	return p
}

type coordinator struct {
	p     connector.Preflight
	enum  func(connector.EnumeratorContext, []byte) (connector.Enumerator, error)
	align *Alignment
}

func (c coordinator) Alignment() *Alignment { return c.align }

func (c coordinator) Preflight(ctx context.Context, env connector.PreflightContext) error {
	if c.p == nil {
		return nil
	}
	return c.p.Preflight(ctx, env)
}

func (c coordinator) Enumerator(ctx connector.EnumeratorContext, restored []byte) (connector.Enumerator, error) {
	if c.enum == nil {
		return nil, nil
	}
	return c.enum(ctx, restored)
}
