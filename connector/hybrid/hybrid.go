// Package hybrid chains sources: bounded ones, read one after the other, and a last one that may be without end; history from files, then
// what is live in Kafka. Layer L1.
//
// The enumerator runs the enumerator of the present source. When every reader has told that it is at the end of it, the enumerator asks for
// the position that the next source starts at, and tells the readers to open that source. The position is part of each checkpoint, so
// a restored job opens the same source; all processes make it by the same function. Since a switch waits for all readers, no split
// of an earlier source is left when it happens: a checkpoint holds splits of one source, its index in front of their ids.
// Files: hybrid.go (the chain), enumerator.go, reader.go.
//
// Source: Flink's HybridSource (FLIP-150).
package hybrid

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/thalweg/thalweg/connector"
)

// Chain is a source that reads its sources one after the other. Each emits its records through splits (connector.Output.Split); watermark
// alignment of several splits of one subtask needs sources whose readers can pause splits.
type Chain[T any] struct {
	stages []stage[T]
	errs   []error
}

type stage[T any] struct {
	bounded  connector.Boundedness
	fixed    connector.Source[T]                                                  // nil: made from a position
	position func(ctx context.Context, prev connector.Enumerator) ([]byte, error) // nil: none is needed
	from     func(position []byte) (connector.Source[T], error)
}

// Source begins a chain with a bounded source.
func Source[T any](first connector.Source[T]) *Chain[T] { return (&Chain[T]{}).Then(first) }

// Then adds a source whose start does not depend on the one before.
func (c *Chain[T]) Then(src connector.Source[T]) *Chain[T] {
	if src == nil {
		c.errs = append(c.errs, fmt.Errorf("hybrid: source %d is nil", len(c.stages)+1))
		return c
	}
	c.stages = append(c.stages, stage[T]{bounded: src.Boundedness(), fixed: src})
	return c
}

// ThenFrom adds a source that starts where the one before ended. position runs once, in the coordinator process, when all of the source
// before is read; prev is its enumerator, which nothing else uses meanwhile, and position may wait for the network. next makes the source
// from that position in each process of the job, also after a restore: it must depend on nothing else. P goes through JSON.
func (c *Chain[T]) ThenFrom[P any](b connector.Boundedness, position func(ctx context.Context, prev connector.Enumerator) (P, error), next func(position P) connector.Source[T]) *Chain[T] {
	if position == nil || next == nil {
		c.errs = append(c.errs, fmt.Errorf("hybrid: source %d lacks a function", len(c.stages)+1))
		return c
	}
	n := len(c.stages) + 1
	c.stages = append(c.stages, stage[T]{
		bounded: b,
		position: func(ctx context.Context, prev connector.Enumerator) ([]byte, error) {
			p, err := position(ctx, prev)
			if err != nil {
				return nil, fmt.Errorf("hybrid: position of source %d: %w", n, err)
			}
			return json.Marshal(p)
		},
		from: func(b []byte) (connector.Source[T], error) {
			var p P
			if err := json.Unmarshal(b, &p); err != nil {
				return nil, fmt.Errorf("hybrid: position of source %d cannot be decoded: %w", n, err)
			}
			src := next(p)
			if src == nil {
				return nil, fmt.Errorf("hybrid: source %d is nil", n)
			}
			return src, nil
		},
	})
	return c
}

// source makes source i.
func (c *Chain[T]) source(i int, position []byte) (connector.Source[T], error) {
	if i < 0 || i >= len(c.stages) {
		return nil, fmt.Errorf("hybrid: the state is of source %d; the chain has %d", i+1, len(c.stages))
	}
	s := c.stages[i]
	if s.fixed != nil {
		return s.fixed, nil
	}
	src, err := s.from(position)
	if err != nil {
		return nil, err
	}
	if v, ok := src.(connector.Validator); ok {
		if err := v.Validate(); err != nil {
			return nil, fmt.Errorf("hybrid: source %d: %w", i+1, err)
		}
	}
	if src.Boundedness() != s.bounded {
		return nil, &connector.ContractError{Rule: "boundedness", Detail: fmt.Sprintf("source %d of the chain is not as bounded as ThenFrom said", i+1)}
	}
	return src, nil
}

// Boundedness implements connector.Source: the last source decides.
func (c *Chain[T]) Boundedness() connector.Boundedness {
	if len(c.stages) == 0 {
		return connector.Bounded
	}
	return c.stages[len(c.stages)-1].bounded
}

// Validate implements connector.Validator.
func (c *Chain[T]) Validate() error {
	errs := c.errs
	if len(c.stages) == 0 {
		errs = append(errs, errors.New("hybrid: the chain has no source"))
	}
	for i, s := range c.stages {
		if s.bounded != connector.Bounded && i < len(c.stages)-1 {
			errs = append(errs, fmt.Errorf("hybrid: source %d has no end, so source %d would never be read", i+1, i+2))
		}
		if v, ok := s.fixed.(connector.Validator); ok {
			if err := v.Validate(); err != nil {
				errs = append(errs, fmt.Errorf("hybrid: source %d: %w", i+1, err))
			}
		}
	}
	if len(c.stages) > 0 && c.stages[0].fixed == nil {
		errs = append(errs, errors.New("hybrid: the first source cannot start from another one's end"))
	}
	return errors.Join(errs...)
}

// Preflight implements connector.Preflight for the sources that are known beforehand.
func (c *Chain[T]) Preflight(ctx context.Context, env connector.PreflightContext) error {
	for i, s := range c.stages {
		if p, ok := s.fixed.(connector.Preflight); ok {
			if err := p.Preflight(ctx, env); err != nil {
				return fmt.Errorf("hybrid: source %d: %w", i+1, err)
			}
		}
	}
	return nil
}

// event is what enumerator and readers tell each other, about source Index.
type event struct {
	Index    int    `json:"index"`
	Open     bool   `json:"open,omitempty"` // read this source from now on, made from Position
	Position []byte `json:"position,omitempty"`
	NoMore   bool   `json:"noMore,omitempty"`
	Ended    bool   `json:"ended,omitempty"`   // the reader is at its end
	Request  bool   `json:"request,omitempty"` // the reader wants a split
	Custom   []byte `json:"custom,omitempty"`  // the source's own
}

func wrapID(index int, id string) string { return strconv.Itoa(index) + ":" + id }

func unwrap(s connector.Split) (index int, inner connector.Split, err error) {
	n, id, ok := strings.Cut(s.ID, ":")
	if index, err = strconv.Atoi(n); err != nil || !ok {
		return 0, inner, fmt.Errorf("hybrid: split %q is not of a chain", s.ID)
	}
	return index, connector.Split{ID: id, State: s.State}, nil
}

func wrap(index int, splits []connector.Split) []connector.Split {
	out := make([]connector.Split, len(splits))
	for i, s := range splits {
		out[i] = connector.Split{ID: wrapID(index, s.ID), State: s.State}
	}
	return out
}
