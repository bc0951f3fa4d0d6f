package process

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// errUnread is the cause of a context that ended since nobody reads what the process writes.
var errUnread = errors.New("nobody reads the output any more")

// Ending returns a context that ends with parent, SIGINT, SIGTERM, or when the reader of the process's standard output or standard error has gone away
// ("job | head") and something is written there. The function that it returns lets go of the signals.
//
// A process that asks for SIGPIPE gets it for every write to a connection that the other side has closed (package os/signal), such as a
// browser's, a broker's or another worker's. These are errors of that connection alone, so a SIGPIPE counts only when one of the two is broken.
func Ending(parent context.Context) (context.Context, context.CancelFunc) {
	signalled, release := signal.NotifyContext(parent, os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithCancelCause(signalled)
	pipes := make(chan os.Signal, 1) // one is enough: that nobody reads is still so when it is looked at
	signal.Notify(pipes, syscall.SIGPIPE)
	var watch sync.WaitGroup
	watch.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-pipes:
				if unread(os.Stdout) || unread(os.Stderr) {
					cancel(errUnread)
				}
			}
		}
	})
	return ctx, func() {
		cancel(context.Canceled)
		watch.Wait()
		signal.Stop(pipes)
		release()
	}
}

// unread tells whether f is a pipe or a socket whose other end is closed.
func unread(f *os.File) bool {
	st, err := f.Stat()
	if err != nil || st.Mode()&(os.ModeNamedPipe|os.ModeSocket) == 0 {
		return false
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return false
	}
	broken := false
	err = conn.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd)}} //nolint:gosec // descriptors are small
		_, err := unix.Poll(fds, 0)
		broken = err == nil && fds[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
	})
	return err == nil && broken
}
