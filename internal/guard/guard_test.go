package guard

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
)

func boom() error { panic("ouch") }

func TestEveryOutcomeIsTold(t *testing.T) {
	for name, c := range map[string]struct {
		fn   func() error
		want error
	}{
		"nothing": {func() error { return nil }, nil},
		"error":   {func() error { return io.EOF }, io.EOF},
		"exit":    {func() error { runtime.Goexit(); return nil }, ErrExit},
	} {
		t.Run(name, func(t *testing.T) {
			told := make(chan error, 2)
			go func() {
				defer close(told)
				Call(c.fn, func(err error) { told <- err })
			}()
			if err := <-told; !errors.Is(err, c.want) {
				t.Fatalf("done got %v, want %v", err, c.want)
			}
			if _, again := <-told; again {
				t.Fatal("done was called twice")
			}
		})
	}
}

func TestPanicKeepsItsStack(t *testing.T) {
	err := fmt.Errorf("wrapped: %w", Run(boom))
	if !strings.HasPrefix(err.Error(), "wrapped: panic: ouch, at guard_test.go:") {
		t.Fatal(err)
	}
	if !strings.Contains(Stack(err), "guard.boom") {
		t.Fatalf("the stack does not show where it was:\n%s", Stack(err))
	}
	if Stack(io.EOF) != "" {
		t.Fatal("a stack of no panic")
	}
}
