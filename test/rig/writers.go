package rig

import (
	"bytes"
	"io"
	"sync"
)

// syncWriter lets the two copiers of a command share one buffer.
type syncWriter struct {
	mu sync.Mutex
	b  *bytes.Buffer
}

func (w *syncWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

type teeWriter struct{ a, b io.Writer }

func (w *teeWriter) Write(p []byte) (int, error) {
	if n, err := w.a.Write(p); err != nil {
		return n, err
	}
	return w.b.Write(p)
}
