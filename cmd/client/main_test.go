package main

import (
	"context"
	"os"
	"os/signal"
	"testing"
	"time"
)

// "thalweg run ... | head -1": the command ends as by SIGTERM, which takes back what it has begun.
func TestAReaderThatHasGoneEndsTheCommandInOrder(t *testing.T) {
	ctx, stop := signal.NotifyContext(t.Context(), ending...)
	defer stop()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close() //nolint:errcheck // it is broken
	o := outlet{w}
	if _, err := o.Write([]byte("one\n")); err != nil || ctx.Err() != nil {
		t.Fatal(err, ctx.Err())
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := o.Write([]byte("two\n")); err == nil {
		t.Error("nobody reads, and it is no error")
	}
	patience, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	select {
	case <-ctx.Done():
	case <-patience.Done():
		t.Error("the command goes on")
	}
	if inner(o) != w {
		t.Error("not the file itself")
	}
}
