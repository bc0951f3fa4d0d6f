package rpc

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"
)

// MaxQueued is the number of messages that may wait in a link's send queue.
const MaxQueued = 8192

// flushTimeout bounds how long an orderly Close waits for queued messages to leave.
const flushTimeout = 2 * time.Second

var (
	// ErrClosed is returned by Send, SendWait and Recv after this end closed the link.
	ErrClosed = errors.New("rpc: link closed")
	// ErrSlow ends a link whose peer did not take MaxQueued messages.
	ErrSlow = errors.New("rpc: link broken: the peer does not read its messages")
	// ErrPeerClosed is returned after the other end closed the link in order.
	ErrPeerClosed = errors.New("rpc: link closed by the peer")
	// ErrBroken is returned when the connection broke: the peer died, or the network between.
	ErrBroken = errors.New("the connection broke")
)

// Link is one end of an ordered bidirectional stream; S is what this end sends, R what it receives. Send, SendWait and Close are safe for
// concurrent use; Recv is for one goroutine.
type Link[S, R any] interface {
	// Send queues m. It never blocks; a full queue ends the link with ErrSlow.
	Send(m S) error
	// SendWait queues m and waits for room.
	SendWait(ctx context.Context, m S) error
	// Recv returns the next message. After the end of the link it first returns what had arrived, then the reason of the end (after a
	// local Close at once). The owner receives to the end, or closes.
	Recv() (R, error)
	// Close ends the link and returns at once. With a nil error queued messages are still sent (for at most two seconds); the peer
	// then sees ErrPeerClosed. With an error the link is cut. Further calls do nothing.
	Close(err error)
	// Done is closed when the link has ended, by whatever side, and its goroutines are gone.
	Done() <-chan struct{}
	// Ended is closed when the link has ended; its goroutines may still be there.
	Ended() <-chan struct{}
	// Err is the reason of the end, nil before.
	Err() error
}

// Transport is what a link needs from the stream below it. Send and Recv are called by one goroutine each; CloseSend after the last Send;
// Cut makes pending calls return, soon, and may be called several times.
type Transport[S, R any] struct {
	Send      func(S) error     // io.EOF: Recv gives the reason
	Recv      func() (R, error) // io.EOF when the peer closed in order, ErrBroken (wrapped, perhaps) when it is gone
	CloseSend func() error
	Cut       func()
}

type link[S, R any] struct {
	t       Transport[S, R]
	out     chan S
	in      chan R
	stop    chan struct{} // closed when the link ends, for whatever reason: nothing more is taken for sending
	dropped chan struct{} // closed by the local Close: nothing more is wanted from the peer
	done    chan struct{}

	mu       sync.Mutex
	err      error
	stopped  bool
	local    bool
	graceful bool
}

// NewLink starts a link over t. Its goroutines end when the link does.
func NewLink[S, R any](t Transport[S, R]) Link[S, R] {
	l := &link[S, R]{t: t, out: make(chan S, MaxQueued), in: make(chan R, 64),
		stop: make(chan struct{}), dropped: make(chan struct{}), done: make(chan struct{})}
	written := make(chan struct{})
	go func() { defer close(written); l.write() }()
	go func() {
		l.read()
		<-written
		l.t.Cut()
		close(l.in)
		close(l.done)
	}()
	return l
}

// end records the first reason. A link that ends in order may still flush; one that is cut may not.
func (l *link[S, R]) end(err error, graceful, local bool) {
	l.mu.Lock()
	first := !l.stopped
	if first {
		l.stopped, l.err, l.graceful = true, err, graceful
		close(l.stop)
	}
	if local && !l.local {
		l.local = true
		close(l.dropped)
	}
	l.mu.Unlock()
	if !graceful {
		l.t.Cut()
	}
}

func (l *link[S, R]) write() {
	for {
		select {
		case m := <-l.out:
			err := l.t.Send(m)
			if err == nil {
				continue
			}
			if !errors.Is(err, io.EOF) { // else the reader gets the reason
				l.end(err, false, false)
			}
			<-l.stop
			return
		case <-l.stop:
			l.mu.Lock()
			graceful := l.graceful
			l.mu.Unlock()
			if graceful {
				l.flush()
			}
			return
		}
	}
}

func (l *link[S, R]) flush() {
	timer := time.AfterFunc(flushTimeout, l.t.Cut)
	defer timer.Stop()
	for {
		select {
		case m := <-l.out:
			if l.t.Send(m) != nil {
				return
			}
		default:
			_ = l.t.CloseSend() // the reader sees what comes of it
			return
		}
	}
}

// read passes messages on until the stream ends. After a local close it waits for the peer's end, but not for long.
func (l *link[S, R]) read() {
	finished := make(chan struct{})
	defer close(finished)
	go func() {
		select {
		case <-l.dropped:
		case <-finished:
			return
		}
		timer := time.NewTimer(flushTimeout)
		defer timer.Stop()
		select {
		case <-timer.C:
			l.t.Cut()
		case <-finished:
		}
	}()
	for {
		m, err := l.t.Recv()
		if err != nil {
			if errors.Is(err, io.EOF) {
				l.end(ErrPeerClosed, true, false)
			} else {
				l.end(err, false, false)
			}
			return
		}
		select {
		case l.in <- m:
		case <-l.dropped:
		}
	}
}

func (l *link[S, R]) Send(m S) error {
	select {
	case <-l.stop:
		return l.Err()
	default:
	}
	select {
	case l.out <- m:
		return nil
	default:
		l.end(ErrSlow, false, false)
		return ErrSlow
	}
}

func (l *link[S, R]) SendWait(ctx context.Context, m S) error {
	select {
	case <-l.stop:
		return l.Err()
	default:
	}
	select {
	case l.out <- m:
		return nil
	case <-l.stop:
		return l.Err()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (l *link[S, R]) Recv() (R, error) {
	var zero R
	select {
	case <-l.dropped:
		return zero, l.Err()
	default:
	}
	select {
	case m, ok := <-l.in:
		if !ok {
			return zero, l.Err()
		}
		return m, nil
	case <-l.dropped:
		return zero, l.Err()
	}
}

func (l *link[S, R]) Close(err error) {
	if err == nil {
		l.end(ErrClosed, true, true)
		return
	}
	l.end(err, false, true)
}

func (l *link[S, R]) Done() <-chan struct{}  { return l.done }
func (l *link[S, R]) Ended() <-chan struct{} { return l.stop }

func (l *link[S, R]) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}
