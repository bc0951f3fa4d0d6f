package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/runtime/graph"
)

// Environment is the exchange of one worker process: its listener, connections, partitions and gates. Safe for concurrent use.
type Environment struct {
	cfg    Config
	log    zerolog.Logger
	pool   pool
	ctx    context.Context //nolint:containedctx // the environment's life
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup // every goroutine, and every pending timer

	mu         sync.Mutex
	closed     bool
	address    string
	listener   net.Listener
	partitions map[PartitionID]*Partition
	waiting    map[PartitionID]map[*waiter]struct{}
	gates      map[*Gate]struct{}
	conns      map[string]*clientConn
	servers    map[*serverConn]struct{}
}

// waiter is a request for a partition that is not registered yet.
type waiter struct {
	id     PartitionID
	sub    int
	reader reader
	local  bool
	peer   string
	bind   func(*Channel) // called with Environment.mu held, before attach
	timer  *time.Timer
}

// New returns an environment that works at once for jobs within this process; Listen opens it to others. The caller must Close it.
func New(cfg Config, log zerolog.Logger) *Environment {
	cfg = cfg.withDefaults()
	e := &Environment{
		cfg:        cfg,
		log:        log.With().Str("component", "network").Logger(),
		pool:       pool{size: cfg.BufferSize, limit: max(16, (8<<20)/cfg.BufferSize)},
		partitions: map[PartitionID]*Partition{},
		waiting:    map[PartitionID]map[*waiter]struct{}{},
		gates:      map[*Gate]struct{}{},
		conns:      map[string]*clientConn{},
		servers:    map[*serverConn]struct{}{},
	}
	e.ctx, e.cancel = context.WithCancelCause(context.Background())
	return e
}

// Listen accepts consumers of other processes at addr, "host:port" with port 0 for any, and returns the data address to give to them: the same
// host (or this machine's name when empty) with the true port. ctx bounds the call only.
func (e *Environment) Listen(ctx context.Context, addr string) (string, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return "", fmt.Errorf("network: listen at %q: want host:port: %w", addr, err)
	}
	if host == "" {
		if host, err = os.Hostname(); err != nil {
			return "", fmt.Errorf("network: listen at %q: %w", addr, err)
		}
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return "", fmt.Errorf("network: listen at %q: %w", addr, err)
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return "", errors.Join(fmt.Errorf("network: listen at %q: %w", addr, err), l.Close())
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || e.listener != nil {
		err := ErrClosed
		if !e.closed {
			err = errors.New("is listening already at " + e.address)
		}
		return "", errors.Join(fmt.Errorf("network: listen at %q: %w", addr, err), l.Close())
	}
	e.listener, e.address = l, net.JoinHostPort(host, port)
	e.wg.Add(1)
	go e.acceptLoop(l)
	return e.address, nil
}

// Close fails all channels that are still in use, closes the listener and the connections, and waits for all goroutines. A second call does nothing.
func (e *Environment) Close() error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil
	}
	e.closed = true
	var partitions []*Partition
	for _, p := range e.partitions {
		partitions = append(partitions, p)
	}
	var gates []*Gate
	for g := range e.gates {
		gates = append(gates, g)
	}
	for _, ws := range e.waiting {
		for w := range ws {
			e.stopTimerLocked(w)
		}
	}
	clear(e.waiting)
	conns := e.allConnsLocked()
	l := e.listener
	e.mu.Unlock()

	e.cancel(ErrClosed)
	var err error
	if l != nil {
		err = l.Close()
	}
	for _, g := range gates {
		g.Close()
	}
	for _, p := range partitions {
		p.fail(ErrClosed)
		e.unregister(p)
	}
	for _, c := range conns {
		c.close(ErrClosed)
	}
	e.wg.Wait()
	return err
}

// ReleaseBefore drops all partitions of attempts before the given one, finished ones too: their consumers fail with ProducerGone unless
// they have read to the end. For the owner of the tasks, when a job starts anew, since a finished partition otherwise waits for its
// consumers for ever. Partitions of the executions kept stay.
func (e *Environment) ReleaseBefore(attempt int, kept ...graph.ExecutionID) {
	e.release(func(id PartitionID) bool { return id.Producer.Attempt < attempt && !slices.Contains(kept, id.Producer) })
}

// Release drops the partitions of these executions: blocking ones that are no longer needed, or are to be made anew.
func (e *Environment) Release(producers ...graph.ExecutionID) {
	e.release(func(id PartitionID) bool { return slices.Contains(producers, id.Producer) })
}

func (e *Environment) release(which func(PartitionID) bool) {
	e.mu.Lock()
	var found []*Partition
	for pid, p := range e.partitions {
		if which(pid) {
			found = append(found, p)
		}
	}
	e.mu.Unlock()
	for _, p := range found {
		p.fail(errors.New("released"))
		e.unregister(p)
	}
}

// Partitions returns how many partitions are registered: those being written, and finished ones that were not read to their end.
func (e *Environment) Partitions() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.partitions)
}

func (e *Environment) register(p *Partition) error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return fmt.Errorf("network: new partition %s: %w", p.id, ErrClosed)
	}
	if e.partitions[p.id] != nil {
		e.mu.Unlock()
		return fmt.Errorf("network: new partition %s: it exists already", p.id)
	}
	e.partitions[p.id] = p
	var tell []func()
	for w := range e.waiting[p.id] {
		e.stopTimerLocked(w)
		tell = append(tell, e.attachLocked(p, w))
	}
	delete(e.waiting, p.id)
	e.mu.Unlock()
	for _, f := range tell {
		f()
	}
	return nil
}

func (e *Environment) unregister(p *Partition) {
	e.mu.Lock()
	if e.partitions[p.id] == p {
		delete(e.partitions, p.id)
	}
	e.mu.Unlock()
}

// request attaches w.reader to its subpartition, now or when it is registered.
func (e *Environment) request(w *waiter) {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		w.reader.failed(w.error(ProducerGone, ErrClosed))
		return
	}
	if p := e.partitions[w.id]; p != nil {
		tell := e.attachLocked(p, w)
		e.mu.Unlock()
		tell()
		return
	}
	ws := e.waiting[w.id]
	if ws == nil {
		ws = map[*waiter]struct{}{}
		e.waiting[w.id] = ws
	}
	ws[w] = struct{}{}
	e.wg.Add(1) // for the timer; undone by stopTimerLocked or by expire
	w.timer = time.AfterFunc(e.cfg.PartitionTimeout, func() { e.expire(w) })
	e.mu.Unlock()
}

// attachLocked returns what the caller does once e.mu is free: a reader may only be told then.
func (e *Environment) attachLocked(p *Partition, w *waiter) (tell func()) {
	fail := func(err error) func() {
		kind := ProtocolViolation
		var ce *ConnectionError
		if errors.As(err, &ce) { // the partition failed and is about to be unregistered
			kind, err = ce.Kind, ce.Err
		}
		return func() { w.reader.failed(w.error(kind, err)) }
	}
	if w.sub < 0 || w.sub >= len(p.channels) {
		return fail(fmt.Errorf("the partition has %d subpartitions", len(p.channels)))
	}
	c := p.channels[w.sub]
	if p.spill != nil {
		c = p.spill.reader(w.sub)
	}
	if w.bind != nil {
		w.bind(c)
	}
	wake, err := c.attach(w.reader, w.local)
	switch {
	case err != nil:
		return fail(err)
	case wake:
		return w.reader.wake
	}
	return func() {}
}

func (e *Environment) expire(w *waiter) {
	defer e.wg.Done()
	e.mu.Lock()
	_, ok := e.waiting[w.id][w]
	e.forgetLocked(w)
	e.mu.Unlock()
	if ok {
		w.reader.failed(w.error(PartitionNotFound, fmt.Errorf(
			"it was not registered within %s; its task did not start", e.cfg.PartitionTimeout)))
	}
}

func (e *Environment) stopTimerLocked(w *waiter) {
	if w.timer.Stop() {
		e.wg.Done()
	}
}

// forget takes back the pending request of r, if there is one.
func (e *Environment) forget(id PartitionID, r reader) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for w := range e.waiting[id] {
		if w.reader == r {
			e.stopTimerLocked(w)
			e.forgetLocked(w)
		}
	}
}

func (e *Environment) forgetLocked(w *waiter) {
	delete(e.waiting[w.id], w)
	if len(e.waiting[w.id]) == 0 {
		delete(e.waiting, w.id)
	}
}

func (w *waiter) error(kind FailureKind, err error) *ConnectionError {
	return &ConnectionError{Kind: kind, Peer: w.peer, Partition: w.id, Subpartition: w.sub, Err: err}
}

func (e *Environment) addGate(g *Gate) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return ErrClosed
	}
	e.gates[g] = struct{}{}
	return nil
}

func (e *Environment) removeGate(g *Gate) {
	e.mu.Lock()
	delete(e.gates, g)
	e.mu.Unlock()
}

func (e *Environment) isLocal(address string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return address == "" || address == e.address
}

// connect starts to connect ch to its source.
func (e *Environment) connect(ch *inputChannel) error {
	if ch.remote {
		return e.connectRemote(ch)
	}
	g := ch.gate
	e.request(&waiter{
		id: ch.source.Partition, sub: ch.source.Subpartition, reader: ch, local: true, peer: "local",
		bind: func(c *Channel) {
			g.mu.Lock()
			ch.local = c
			g.mu.Unlock()
		},
	})
	return nil
}

// disconnect ends ch, whose gate is closed.
func (e *Environment) disconnect(ch *inputChannel) {
	e.forget(ch.source.Partition, ch)
	g := ch.gate
	g.mu.Lock()
	local, conn, id, ended := ch.local, ch.conn, ch.connID, ch.ended
	ch.queue = fifo[entry]{}
	g.mu.Unlock()
	switch {
	case local != nil:
		local.consumerGone(ch, &ConnectionError{
			Kind: ConsumerGone, Peer: "local", Partition: ch.source.Partition, Subpartition: ch.source.Subpartition,
		})
	case conn != nil && !ended:
		conn.remove(id, true)
	}
}

// allConnsLocked returns what Close has to close.
func (e *Environment) allConnsLocked() []interface{ close(error) } {
	var all []interface{ close(error) }
	for _, c := range e.conns {
		all = append(all, c)
	}
	for s := range e.servers {
		all = append(all, s)
	}
	return all
}
