package am

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/thalweg/thalweg/am/allocator"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/runtime/resourcemanager"
	yarnpb "github.com/thalweg/thalweg/yarnrpc/proto/yarn"
)

// deliveries calls resourcemanager.Events from one goroutine, in order: the Manager calls the Driver with its own lock held, so that the
// Driver must not call back from inside. Its queue is bounded by the number of containers.
type deliveries struct {
	d        *Driver
	mu       sync.Mutex
	queue    []func(resourcemanager.Events)
	more     chan struct{}
	done     chan struct{}
	finished sync.WaitGroup
	tails    int // fetched, see tail
	lastTail string
	problems string
}

// maxTails bounds how many error files are fetched in the life of an attempt: each may take as long as tailTimeout.
const (
	maxTails    = 20
	tailTimeout = 2 * time.Second
)

func newDeliveries(d *Driver) *deliveries {
	return &deliveries{d: d, more: make(chan struct{}, 1), done: make(chan struct{})}
}

func (q *deliveries) start(ev resourcemanager.Events) {
	q.finished.Go(func() {
		for {
			select {
			case <-q.done:
				return
			case <-q.more:
			}
			for {
				q.mu.Lock()
				if len(q.queue) == 0 {
					q.mu.Unlock()
					break
				}
				f := q.queue[0]
				q.queue = q.queue[1:]
				q.mu.Unlock()
				f(ev)
			}
		}
	})
}

func (q *deliveries) stop() {
	close(q.done)
	q.finished.Wait()
}

func (q *deliveries) put(f func(resourcemanager.Events)) {
	q.mu.Lock()
	q.queue = append(q.queue, f)
	q.mu.Unlock()
	select {
	case q.more <- struct{}{}:
	default:
	}
}

func (q *deliveries) started(id resourcemanager.WorkerID, s resourcemanager.WorkerSpec, host string) {
	q.put(func(ev resourcemanager.Events) { ev.WorkerStarted(id, s, host) })
}

func (q *deliveries) leaving(e allocator.Leaving) {
	q.put(func(ev resourcemanager.Events) { ev.WorkerLeaving(workerID(e.Container.ID), e.Until, e.Why) })
}

func (q *deliveries) staying(e allocator.Staying) {
	q.put(func(ev resourcemanager.Events) { ev.WorkerStays(workerID(e.Container.ID)) })
}

func (q *deliveries) problem(text string) {
	if text == q.problems { // called with the driver's lock
		return
	}
	q.problems = text
	q.put(func(ev resourcemanager.Events) { ev.Problem(text) })
}

func (q *deliveries) fatal(err error) {
	q.d.log.Error().Err(err).Msg("the driver cannot go on")
	q.put(func(ev resourcemanager.Events) { ev.Fatal(err) })
}

func (q *deliveries) ended(e allocator.Ended, p *yarnpb.ContainerProto) {
	q.put(func(ev resourcemanager.Events) {
		text := e.String()
		if !e.Registered && !e.Cause.Blameless() {
			if t := q.tail(p); t != "" {
				text += "; its last lines of error output: " + t
			}
		}
		ev.WorkerLost(workerID(e.Container.ID), resourcemanager.Exit{
			Code: int(e.Exit), Text: text, Preempted: e.Cause.Blameless() && e.Cause != allocator.Released, Memory: e.Cause == allocator.Memory,
		})
	})
}

func (q *deliveries) failed(e allocator.Failed) {
	q.put(func(ev resourcemanager.Events) {
		text := e.Last.String()
		if q.lastTail != "" {
			text += "; its last lines of error output: " + q.lastTail
		}
		ev.Fatal(fmt.Errorf("am: %d TaskManagers in a row failed to start (%s), the last one: %s", e.Failures, config.StartFailureLimit.Key, text))
	})
}

// tail returns the last lines of the container's error file in one line. Called from the delivering goroutine only.
func (q *deliveries) tail(p *yarnpb.ContainerProto) string {
	if q.d.o.Tail == nil || p == nil || q.tails >= maxTails {
		return ""
	}
	q.tails++
	ctx, cancel := context.WithTimeout(q.d.ctx, tailTimeout)
	defer cancel()
	if t := oneLine(q.d.o.Tail(ctx, p)); t != "" {
		q.lastTail = t
		return t
	}
	return ""
}

// oneLine joins the last lines of a text; YARN's pages and Flink's tools show diagnostics in one.
func oneLine(s string) string {
	var lines []string
	for _, l := range strings.Split(s, "\n") {
		if l = strings.TrimSpace(l); l != "" {
			lines = append(lines, l)
		}
	}
	if len(lines) > 10 {
		lines = lines[len(lines)-10:]
	}
	return strings.Join(lines, " | ")
}

// cleanDiagnostics drops what the NodeManager adds to every exit (a Java stack, the pages' addresses) and keeps its words.
func cleanDiagnostics(s string) string {
	var out []string
	for _, l := range strings.Split(s, "\n") {
		l = strings.TrimSpace(l)
		if strings.HasPrefix(l, "[") { // the time of each entry
			if _, rest, ok := strings.Cut(l, "]"); ok {
				l = strings.TrimSpace(rest)
			}
		}
		switch {
		case l == "", strings.HasPrefix(l, "at "), strings.HasPrefix(l, "Exception from container-launch"), strings.HasPrefix(l, "Container id:"),
			strings.HasPrefix(l, "Exit code:"), strings.HasPrefix(l, "Stack trace:"), strings.HasPrefix(l, "Shell output:"), strings.HasPrefix(l, "Shell error output:"),
			strings.HasPrefix(l, "For more detailed output"), strings.HasPrefix(l, "Last 4096 bytes of"), strings.HasPrefix(l, "Error file:"),
			strings.HasPrefix(l, "Container exited with a non-zero exit code"), strings.HasPrefix(l, "Container killed on request. Exit code"),
			l == "Killed by external signal":
			continue
		}
		out = append(out, l)
	}
	return limit(strings.Join(out, " | "), 2<<10)
}
