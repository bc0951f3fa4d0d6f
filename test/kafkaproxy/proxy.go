// Package kafkaproxy is a TCP proxy in front of one Kafka broker that can cut its clients off, slow them down, break their connections, and
// deliver an EndTxn late.
// Clients find the proxy in place of the broker in the answers that name brokers. It knows the frames and the headers of Kafka's protocol, and
// of the bodies those of Metadata, FindCoordinator and DescribeCluster. No TLS, no SASL, one broker.
//
// A late EndTxn is what Jepsen's study of Bufstream names as a flaw of Kafka's protocol before KIP-890: the client's connection breaks, it
// repeats the request or begins anew, and the first request reaches the broker long after.
package kafkaproxy

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// maxFrame bounds a request or response, bytes.
const maxFrame = 128 << 20

// Proxy forwards connections to a broker until Close.
type Proxy struct {
	target string
	host   string
	port   int32
	l      net.Listener
	ctx    context.Context //nolint:containedctx // the proxy's life
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	conns   map[net.Conn]struct{} // of clients
	healed  chan struct{}         // closed unless cut
	delay   time.Duration         // of each answer
	hold    []time.Duration       // of the EndTxn to come
	late    []Late
	waiting chan struct{} // closed when late grew
}

// Late is an EndTxn that was held back and delivered later.
type Late struct {
	Version int16
	ID      string // transactional
	Commit  bool
	Code    int16 // the broker's answer to it
	Err     error // when it got none
}

// Start listens on a port of its own and forwards to the broker at target, host:port.
func Start(target string) (*Proxy, error) {
	var lc net.ListenConfig
	ctx, cancel := context.WithCancel(context.Background())
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		cancel()
		return nil, fmt.Errorf("kafkaproxy: %w", err)
	}
	p := &Proxy{target: target, host: "127.0.0.1", l: l, ctx: ctx, cancel: cancel, conns: map[net.Conn]struct{}{}, healed: make(chan struct{}), waiting: make(chan struct{})}
	close(p.healed)
	if a, ok := l.Addr().(*net.TCPAddr); ok {
		p.port = int32(a.Port)
	}
	p.wg.Go(p.accept)
	return p, nil
}

// Addr is where clients connect, host:port.
func (p *Proxy) Addr() string { return net.JoinHostPort(p.host, strconv.Itoa(int(p.port))) }

// Close ends all connections.
func (p *Proxy) Close() {
	p.cancel()
	_ = p.l.Close()
	p.wg.Wait()
}

// Cut lets nothing through, in either direction, until Heal: connections stay open and silent, as when a network drops packets.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.healed:
		p.healed = make(chan struct{})
	default:
	}
}

// Heal ends Cut; what was under way arrives.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.healed:
	default:
		close(p.healed)
	}
}

// Slow delays each answer by d; 0 ends it.
func (p *Proxy) Slow(d time.Duration) {
	p.mu.Lock()
	p.delay = d
	p.mu.Unlock()
}

// Reset breaks all connections, in the middle of what they carry; clients may connect again at once.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		if t, ok := c.(*net.TCPConn); ok {
			_ = t.SetLinger(0) // a reset, not an end
		}
		_ = c.Close()
	}
}

// HoldEndTxn takes the next EndTxn requests off their connections, which it closes, and delivers each after its time of ds; 0 lets one
// through. A client that repeats a request that was held sends the next one.
func (p *Proxy) HoldEndTxn(ds ...time.Duration) {
	p.mu.Lock()
	p.hold = append(p.hold, ds...)
	p.mu.Unlock()
}

// AwaitLate waits until n of the requests that were held are delivered, and returns all of them.
func (p *Proxy) AwaitLate(ctx context.Context, n int) ([]Late, error) {
	for {
		p.mu.Lock()
		all, more := p.late, p.waiting
		p.mu.Unlock()
		if len(all) >= n {
			return all, nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return all, fmt.Errorf("kafkaproxy: %d of %d EndTxn were held and delivered: %w", len(all), n, context.Cause(ctx))
		}
	}
}

// Delivered is the number of requests that were held and are delivered.
func (p *Proxy) Delivered() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.late)
}

func (p *Proxy) accept() {
	for {
		c, err := p.l.Accept()
		if err != nil {
			return
		}
		p.wg.Go(func() { p.serve(c) })
	}
}

// serve forwards one connection. Both directions end together.
func (p *Proxy) serve(client net.Conn) {
	p.mu.Lock()
	p.conns[client] = struct{}{}
	p.mu.Unlock()
	defer func() {
		_ = client.Close()
		p.mu.Lock()
		delete(p.conns, client)
		p.mu.Unlock()
	}()
	if !p.open() {
		return
	}
	var d net.Dialer
	broker, err := d.DialContext(p.ctx, "tcp", p.target)
	if err != nil {
		return // the client sees its connection closed
	}
	defer broker.Close()
	stop := context.AfterFunc(p.ctx, func() { _ = client.Close(); _ = broker.Close() })
	defer stop()
	c := &conn{p: p, asked: map[int32]request{}}
	var both sync.WaitGroup
	both.Go(func() { _ = c.requests(client, broker); _ = client.Close(); _ = broker.Close() })
	both.Go(func() { _ = c.answers(broker, client); _ = client.Close(); _ = broker.Close() })
	both.Wait()
}

// open waits while the proxy is cut; false when it ends.
func (p *Proxy) open() bool {
	p.mu.Lock()
	healed := p.healed
	p.mu.Unlock()
	select {
	case <-healed:
		return true
	case <-p.ctx.Done():
		return false
	}
}

func (p *Proxy) takeHold() (d time.Duration, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.hold) == 0 {
		return 0, false
	}
	d = p.hold[0]
	p.hold = p.hold[1:]
	return d, d > 0
}

// deliver sends a held request on a connection of its own.
func (p *Proxy) deliver(frame []byte, r request, after time.Duration) {
	t := time.NewTimer(after)
	defer t.Stop()
	select {
	case <-t.C:
	case <-p.ctx.Done():
		return
	}
	l := Late{Version: r.version}
	req := kmsg.NewPtrEndTxnRequest()
	req.SetVersion(r.version)
	if body, err := requestBody(frame, req.IsFlexible()); err == nil && req.ReadFrom(body) == nil {
		l.ID, l.Commit = req.TransactionalID, req.Commit
	}
	l.Code, l.Err = p.send(frame, r)
	p.mu.Lock()
	p.late = append(p.late, l)
	close(p.waiting)
	p.waiting = make(chan struct{})
	p.mu.Unlock()
}

func (p *Proxy) send(frame []byte, r request) (int16, error) {
	var d net.Dialer
	c, err := d.DialContext(p.ctx, "tcp", p.target)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	if err := writeFrame(c, frame); err != nil {
		return 0, err
	}
	answer, err := readFrame(c)
	if err != nil {
		return 0, err
	}
	resp := kmsg.NewPtrEndTxnResponse()
	resp.SetVersion(r.version)
	_, body, err := split(answer, resp.IsFlexible())
	if err == nil {
		err = resp.ReadFrom(body)
	}
	return resp.ErrorCode, err
}

// request is what is remembered of one until its answer comes.
type request struct{ key, version int16 }

type conn struct {
	p     *Proxy
	mu    sync.Mutex
	asked map[int32]request
}

var errHeld = errors.New("kafkaproxy: the request is held back")

func (c *conn) requests(from io.Reader, to io.Writer) error {
	for {
		frame, err := readFrame(from)
		if err != nil {
			return err
		}
		if len(frame) < 8 {
			return io.ErrUnexpectedEOF
		}
		r := request{int16(binary.BigEndian.Uint16(frame)), int16(binary.BigEndian.Uint16(frame[2:]))}
		if !c.p.open() {
			return net.ErrClosed
		}
		if r.key == int16(kmsg.EndTxn) {
			if d, ok := c.p.takeHold(); ok {
				c.p.wg.Go(func() { c.p.deliver(frame, r, d) })
				return errHeld
			}
		}
		c.mu.Lock()
		c.asked[int32(binary.BigEndian.Uint32(frame[4:]))] = r
		c.mu.Unlock()
		if err := writeFrame(to, frame); err != nil {
			return err
		}
	}
}

func (c *conn) answers(from io.Reader, to io.Writer) error {
	for {
		frame, err := readFrame(from)
		if err != nil {
			return err
		}
		if len(frame) < 4 {
			return io.ErrUnexpectedEOF
		}
		id := int32(binary.BigEndian.Uint32(frame))
		c.mu.Lock()
		r, ok := c.asked[id]
		delete(c.asked, id)
		c.mu.Unlock()
		if ok {
			if frame, err = c.p.rename(frame, r); err != nil {
				return err
			}
		}
		c.p.mu.Lock()
		delay := c.p.delay
		c.p.mu.Unlock()
		if delay > 0 {
			t := time.NewTimer(delay)
			select {
			case <-t.C:
			case <-c.p.ctx.Done():
				t.Stop()
				return net.ErrClosed
			}
		}
		if !c.p.open() {
			return net.ErrClosed
		}
		if err := writeFrame(to, frame); err != nil {
			return err
		}
	}
}
