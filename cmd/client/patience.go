package main

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/thalweg/thalweg/yarnrpc/ipc"
)

// patienceEnds is how long the command line waits in silence.
const patienceEnds = 3 * time.Second

// patience tells a user who waits what for. Safe for concurrent use.
type patience struct {
	after time.Duration
	tell  func(format string, args ...any)

	mu    sync.Mutex
	waits map[string]*waiting
}

// waiting is for one thing, such as "the ResourceManager".
type waiting struct {
	timer *time.Timer
	where string // the address last tried
	why   error  // of the last failure; nil while nothing has answered at all
	told  bool
}

func newPatience(after time.Duration, tell func(string, ...any)) *patience {
	return &patience{after: after, tell: tell, waits: map[string]*waiting{}}
}

// dial wraps a dial function: one message after some seconds in which no connection to what could be opened, and one when it could at last.
// limit says when the caller will give up.
func (p *patience) dial(what, limit string, next ipc.DialFunc) ipc.DialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		p.began(what, limit, addr)
		conn, err := next(ctx, network, addr)
		if err != nil {
			p.failed(what, err)
			return nil, err
		}
		p.reached(what)
		return conn, nil
	}
}

// began notes that what is waited for, at the address where if it is known; the second call of a wait only moves it.
func (p *patience) began(what, limit, where string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.waits[what]
	if w == nil {
		w = &waiting{}
		w.timer = time.AfterFunc(p.after, func() { p.over(what, limit, w) })
		p.waits[what] = w
	}
	w.where = where
}

func (p *patience) over(what, limit string, w *waiting) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waits[what] != w || w.where == "" && len(p.waits) > 1 {
		return // it came to its end meanwhile, or another one says why
	}
	w.told = true
	why := "no answer yet"
	if w.why != nil {
		why = w.why.Error()
	}
	at := ""
	if w.where != "" {
		at = " at " + w.where
	}
	p.tell("still trying to reach %s%s: %s (%s)", what, at, why, limit)
}

func (p *patience) failed(what string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.waits[what]; w != nil {
		w.why = err
	}
}

// reached ends a wait.
func (p *patience) reached(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.waits[what]
	if w == nil {
		return
	}
	w.timer.Stop()
	delete(p.waits, what)
	if w.told {
		p.tell("%s answers", what)
	}
}

// close ends all waits in silence.
func (p *patience) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for what, w := range p.waits {
		w.timer.Stop()
		delete(p.waits, what)
	}
}
