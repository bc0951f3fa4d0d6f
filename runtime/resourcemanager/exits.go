package resourcemanager

import "context"

// maxExits bounds what is remembered of ended workers.
const maxExits = 100

// exits remembers how workers ended. Guarded by Manager.mu.
type exits struct {
	last  map[WorkerID]Exit
	order []WorkerID
	news  chan struct{} // closed and replaced with each exit
}

func newExits() exits { return exits{last: map[WorkerID]Exit{}, news: make(chan struct{})} }

func (x *exits) put(id WorkerID, e Exit) {
	if len(x.order) == maxExits {
		delete(x.last, x.order[0])
		x.order = x.order[1:]
	}
	x.last[id] = e
	x.order = append(x.order, id)
	close(x.news)
	x.news = make(chan struct{})
}

// AwaitExit tells how a TaskManager's container ended. A broken link is seen before the deployment reports the end, so it waits for the
// report of a worker that was started and is not yet known to have ended; false when there is none before ctx ends.
func (m *Manager) AwaitExit(ctx context.Context, id string) (Exit, bool) {
	for {
		m.mu.Lock()
		e, ok := m.exits.last[WorkerID(id)]
		known, news := m.known[WorkerID(id)], m.exits.news
		m.mu.Unlock()
		if ok || !known {
			return e, ok
		}
		select {
		case <-news:
		case <-ctx.Done():
			return Exit{}, false
		}
	}
}
