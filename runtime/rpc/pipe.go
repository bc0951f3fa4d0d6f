package rpc

import (
	"errors"
	"io"
	"sync"
)

// errCut is what the two ends of a pipe see after one of them was cut.
var errCut = errors.New("rpc: link cut")

// Pipe returns the two ends of a link in memory: what one sends the other receives. Messages are passed, not copied.
func Pipe[A, B any]() (Link[A, B], Link[B, A]) {
	ab, ba := make(chan A, 16), make(chan B, 16)
	cut := make(chan struct{})
	var once sync.Once
	cutAll := func() { once.Do(func() { close(cut) }) }
	return NewLink(pipeEnd(ab, ba, cut, cutAll)), NewLink(pipeEnd(ba, ab, cut, cutAll))
}

func pipeEnd[S, R any](out chan S, in chan R, cut chan struct{}, cutAll func()) Transport[S, R] {
	return Transport[S, R]{
		Send: func(m S) error {
			select {
			case out <- m:
				return nil
			case <-cut:
				return errCut
			}
		},
		Recv: func() (R, error) {
			var zero R
			select {
			case m, ok := <-in: // first what is there
				if !ok {
					return zero, io.EOF
				}
				return m, nil
			default:
			}
			select {
			case m, ok := <-in:
				if !ok {
					return zero, io.EOF
				}
				return m, nil
			case <-cut:
				return zero, errCut
			}
		},
		CloseSend: sync.OnceValue(func() error { close(out); return nil }),
		Cut:       cutAll,
	}
}
