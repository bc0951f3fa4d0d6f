package ipc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"testing"
	"time"

	"github.com/thalweg/thalweg/yarnrpc/ipc"
)

func TestClassify(t *testing.T) {
	remote := func(c ipc.Class) error { return fmt.Errorf("x: %w", &ipc.RemoteError{Class: string(c)}) }
	conn := func(err error) error { return &ipc.ConnError{Op: "dial", Addr: "h:1", Err: err} }
	for _, tc := range []struct {
		err  error
		want ipc.Kind
	}{
		{nil, ipc.Final},
		{context.Canceled, ipc.Final},
		{conn(context.DeadlineExceeded), ipc.Final},
		{ipc.ErrClosed, ipc.Final},
		{errors.New("bug"), ipc.Final},
		{remote("java.lang.NullPointerException"), ipc.Final},
		{remote(ipc.ErrAccessControl), ipc.Final},
		{remote(ipc.ErrInvalidToken), ipc.Final},
		{remote(ipc.ErrStandby), ipc.Standby},
		{remote(ipc.ErrObserverRetry), ipc.Standby},
		{remote(ipc.ErrRetriable), ipc.Retriable},
		{conn(remote(ipc.ErrAccessControl)), ipc.Final},
		{conn(syscall.ECONNREFUSED), ipc.Retriable},
		{conn(io.EOF), ipc.Retriable},
		{io.ErrUnexpectedEOF, ipc.Retriable},
		{fmt.Errorf("x: %w", ipc.ErrTimeout), ipc.Retriable},
		{conn(ipc.ErrNoMechanism), ipc.Final},
		{conn(ipc.ErrMalformed), ipc.Final},
		{conn(ipc.ErrTooLarge), ipc.Final},
	} {
		if got := ipc.Classify(tc.err); got != tc.want {
			t.Errorf("%v is %v, want %v", tc.err, got, tc.want)
		}
	}
}

func TestRetry(t *testing.T) {
	fast := ipc.Retry{Initial: time.Microsecond, Max: time.Microsecond}
	refused := &ipc.ConnError{Op: "dial", Addr: "h:1", Err: syscall.ECONNREFUSED}
	t.Run("until success", func(t *testing.T) {
		n := 0
		err := fast.Do(t.Context(), func(_ context.Context, attempt int) error {
			if attempt != n {
				t.Errorf("attempt %d is numbered %d", n, attempt)
			}
			if n++; n < 5 {
				return refused
			}
			return nil
		})
		if err != nil || n != 5 {
			t.Errorf("%d attempts, %v", n, err)
		}
	})
	t.Run("final at once", func(t *testing.T) {
		n := 0
		err := fast.Do(t.Context(), func(context.Context, int) error { n++; return io.ErrNoProgress })
		if n != 1 || err != io.ErrNoProgress { //nolint:errorlint // unchanged
			t.Errorf("%d attempts, %v", n, err)
		}
	})
	t.Run("attempts used up", func(t *testing.T) {
		n := 0
		r := fast
		r.Attempts = 3
		err := r.Do(t.Context(), func(context.Context, int) error { n++; return refused })
		if n != 3 || !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%d attempts, %v", n, err)
		}
	})
	t.Run("end of context keeps the cause", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		r := ipc.Retry{Initial: time.Hour, Max: time.Hour, OnRetry: func(int, time.Duration, error) { cancel() }}
		err := r.Do(ctx, func(context.Context, int) error { return refused })
		if !errors.Is(err, context.Canceled) || !errors.Is(err, syscall.ECONNREFUSED) || ipc.Classify(err) != ipc.Final {
			t.Errorf("%v", err)
		}
	})
}
