package network

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// proxy forwards connections and can cut all of them.
type proxy struct {
	l      net.Listener
	target string
	wg     sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn
}

func newProxy(target string) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{l: l, target: target}
	p.wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", p.target)
			if err != nil {
				_ = in.Close()
				continue
			}
			p.mu.Lock()
			p.conns = append(p.conns, in, out)
			p.mu.Unlock()
			pipe := func(a, b net.Conn) {
				_, _ = io.Copy(a, b)
				_ = a.Close()
				_ = b.Close()
			}
			p.wg.Go(func() { pipe(in, out) })
			p.wg.Go(func() { pipe(out, in) })
		}
	})
	return p, nil
}

func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close()
	}
}

func (p *proxy) close() {
	_ = p.l.Close()
	p.cut()
	p.wg.Wait()
}

// scenario is one drawn exchange: producers x consumers, each pair a channel.
type scenario struct {
	cfg                           Config
	workers, producers, consumers int
	records, maxRecord            int
	barriers                      bool
	recycle                       bool
	seed                          uint64
	fault                         string // "", "cut", "cancel producer", "cancel consumer", "close producer", "close consumer", "close worker"
}

func drawScenario(t *rapid.T) scenario {
	s := scenario{
		cfg: Config{
			BufferSize:        rapid.SampledFrom([]int{1, 7, 64, 1000, 32 << 10}).Draw(t, "bufferSize"),
			BuffersPerChannel: rapid.IntRange(1, 3).Draw(t, "buffersPerChannel"),
			FloatingPerGate:   rapid.IntRange(-1, 4).Draw(t, "floating"),
			Token:             []byte("t"),
		},
		workers:   rapid.IntRange(1, 3).Draw(t, "workers"),
		producers: rapid.IntRange(1, 5).Draw(t, "producers"),
		consumers: rapid.IntRange(1, 5).Draw(t, "consumers"),
		records:   rapid.IntRange(0, 400).Draw(t, "records"),
		barriers:  rapid.Bool().Draw(t, "barriers"),
		recycle:   rapid.Bool().Draw(t, "recycle"),
		seed:      rapid.Uint64().Draw(t, "seed"),
		fault: rapid.SampledFrom([]string{
			"", "", "", "cut", "cancel producer", "cancel consumer", "close producer", "close consumer", "close worker",
		}).Draw(t, "fault"),
	}
	if s.fault != "" {
		s.cfg.PartitionTimeout = time.Second // a producer that failed before it was asked for is never found
	}
	s.maxRecord = min(3*s.cfg.BufferSize+40, 40<<10)
	return s
}

// A record is its length, producer, consumer, number, and filler that follows from these.
func appendTestRecord(b []byte, producer, consumer, seq, filler int) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(12+filler))
	b = binary.LittleEndian.AppendUint32(b, uint32(producer))
	b = binary.LittleEndian.AppendUint32(b, uint32(consumer))
	b = binary.LittleEndian.AppendUint32(b, uint32(seq))
	return append(b, bytes.Repeat([]byte{byte(seq)}, filler)...)
}

// checkRecords reads a buffer that must hold whole records that go on at *seq.
func checkRecords(b []byte, producer, consumer int, seq *int) error {
	for len(b) > 0 {
		if len(b) < 16 {
			return fmt.Errorf("a part of a record: % x", b)
		}
		n := int(binary.LittleEndian.Uint32(b))
		p, c, s := binary.LittleEndian.Uint32(b[4:]), binary.LittleEndian.Uint32(b[8:]), binary.LittleEndian.Uint32(b[12:])
		if int(p) != producer || int(c) != consumer || int(s) != *seq || n < 12 || len(b) < 4+n {
			return fmt.Errorf("record %d>%d number %d of %d bytes; want %d>%d number %d", p, c, s, n, producer, consumer, *seq)
		}
		for _, x := range b[16 : 4+n] {
			if x != byte(s) {
				return fmt.Errorf("record %d>%d number %d is overwritten with %#x", p, c, s, x)
			}
		}
		*seq++
		b = b[4+n:]
	}
	return nil
}

var errFault = errors.New("test: fault")

// TestExchange: whatever the sizes, timing, blocking and faults, each channel delivers the records and barriers in order, as a whole when there is
// no fault and up to some point when there is one, and everybody comes to an end with the right kind of error.
func TestExchange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { runScenario(t, drawScenario(t)) })
}

func runScenario(t *rapid.T, s scenario) {
	log := quietLog()
	var envs []*Environment
	var proxies []*proxy
	var addrs []string
	defer func() {
		for _, e := range envs {
			if err := e.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		}
		for _, p := range proxies {
			p.close()
		}
	}()
	for range s.workers {
		e := New(s.cfg, log)
		envs = append(envs, e)
		addr, err := e.Listen(context.Background(), "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		p, err := newProxy(addr)
		if err != nil {
			t.Fatal(err)
		}
		proxies = append(proxies, p)
		addrs = append(addrs, p.l.Addr().String())
	}
	rng := rand.New(rand.NewPCG(s.seed, 1))
	ctx, cancel := context.WithTimeoutCause(context.Background(), 60*time.Second, errTestTimeout)
	defer cancel()
	type result struct {
		who string
		err error
	}
	results := make(chan result, s.producers+s.consumers)
	faultAt := rng.IntN(s.records*s.consumers + 1) // record of producer 0, or item of consumer 0
	trip := func(f func()) {
		// Called by the victim itself.
		switch s.fault {
		case "cut":
			for _, p := range proxies {
				p.cut()
			}
		case "close worker":
			go func() { _ = envs[0].Close() }() // Close waits for nobody but the environment's own goroutines; the deferred one is a no-op then
		default:
			f()
		}
	}
	start := func(who string, f func(rng *rand.Rand) error) {
		r := rand.New(rand.NewPCG(s.seed, rng.Uint64()))
		go func() { results <- result{who, f(r)} }()
	}
	runProducer := func(i int, rng *rand.Rand) error {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		p, err := envs[i%s.workers].NewPartition(ctx, testPartition(i), s.consumers)
		if err != nil {
			return err
		}
		defer p.Close()
		seq := make([]int, s.consumers)
		for n := range s.records * s.consumers {
			if i == 0 && n == faultAt {
				switch s.fault {
				case "cancel producer":
					trip(func() { cancel(errFault) })
				case "close producer":
					return errFault
				case "cut", "close worker":
					trip(nil)
				}
			}
			c := rng.IntN(s.consumers)
			ch := p.Channel(c)
			if err := ch.Put(appendTestRecord(ch.Buf(), i, c, seq[c], rng.IntN(s.maxRecord))); err != nil {
				return err
			}
			seq[c]++
			if s.barriers && n%97 == 96 {
				if err := p.Broadcast(Event{Kind: Barrier, Checkpoint: int64(n / 97), Extra: binary.AppendUvarint(nil, uint64(n))}); err != nil {
					return err
				}
			}
			switch rng.IntN(50) {
			case 0:
				if err := p.FlushAll(); err != nil {
					return err
				}
			case 1:
				if err := ch.Flush(); err != nil {
					return err
				}
			case 2:
				runtime.Gosched()
			}
		}
		for c := range s.consumers {
			b := binary.AppendUvarint(nil, uint64(seq[c]))
			if err := p.Channel(c).Send(Event{Kind: EndOfData, Checkpoint: int64(seq[c]), Extra: b}); err != nil {
				return err
			}
		}
		return p.Finish()
	}
	runConsumer := func(c int, rng *rand.Rand) error {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		var sources []Source
		for i := range s.producers {
			src := Source{Partition: testPartition(i), Subpartition: c}
			if i%s.workers != c%s.workers {
				src.Address = addrs[i%s.workers]
			}
			sources = append(sources, src)
		}
		wake := make(chan struct{}, 1)
		g, err := envs[c%s.workers].NewGate(ctx, sources, func() {
			select {
			case wake <- struct{}{}:
			default:
			}
		})
		if err != nil {
			return err
		}
		defer g.Close()
		g.SetRecycle(s.recycle)
		seq, barrier := make([]int, s.producers), make([]int64, s.producers)
		ended := make([]bool, s.producers)
		blocked := map[int]bool{}
		var held []Item
		release := func() {
			for _, it := range held {
				g.Release(it)
			}
			held = held[:0]
		}
		for open, n := s.producers, 0; open > 0; n++ {
			if c == 0 && n == faultAt {
				switch s.fault {
				case "cancel consumer":
					trip(func() { cancel(errFault) })
				case "close consumer":
					return errFault
				}
			}
			it, ok, err := g.Poll()
			if err != nil {
				return err
			}
			if !ok {
				release()
				if len(blocked) > 0 {
					for k := range blocked {
						g.Unblock(k)
					}
					clear(blocked)
					continue
				}
				select {
				case <-wake:
				case <-ctx.Done():
					if cause := context.Cause(ctx); !errors.Is(cause, errFault) {
						return fmt.Errorf("waiting with %d of %d channels open: %w", open, s.producers, cause)
					}
					<-wake // the gate was told as well
				}
				continue
			}
			k := it.Channel
			if blocked[k] {
				return fmt.Errorf("an item of channel %d, which is blocked", k)
			}
			if ended[k] {
				return fmt.Errorf("an item of channel %d behind its end", k)
			}
			before := seq[k]
			if err := checkRecords(it.Data, k, c, &seq[k]); err != nil {
				return err
			}
			switch it.Event.Kind {
			case Barrier:
				if it.Event.Checkpoint != barrier[k] {
					return fmt.Errorf("barrier %d on channel %d, want %d", it.Event.Checkpoint, k, barrier[k])
				}
				barrier[k]++
				if want := binary.AppendUvarint(nil, uint64(97*it.Event.Checkpoint+96)); !bytes.Equal(it.Event.Extra, want) {
					return fmt.Errorf("barrier with extra %x, want %x", it.Event.Extra, want)
				}
				g.Block(k)
				blocked[k] = true
			case EndOfData:
				if int(it.Event.Checkpoint) != seq[k] {
					return fmt.Errorf("channel %d ended at record %d, want %d", k, seq[k], it.Event.Checkpoint)
				}
			case EndOfPartition:
				ended[k] = true
				open--
			}
			if it.Data != nil {
				runtime.Gosched()
				if err := checkRecords(it.Data, k, c, &before); err != nil { // nobody else uses the memory before Release
					return fmt.Errorf("again: %w", err)
				}
				held = append(held, it)
			}
			if len(held) > rng.IntN(3) {
				release()
			}
			if rng.IntN(30) == 0 && open > 0 {
				b := rng.IntN(s.producers)
				g.Block(b)
				blocked[b] = true
			}
		}
		release()
		return nil
	}
	order := rng.Perm(s.producers + s.consumers)
	for _, k := range order {
		if k < s.producers {
			start(fmt.Sprintf("producer %d", k), func(r *rand.Rand) error { return runProducer(k, r) })
		} else {
			start(fmt.Sprintf("consumer %d", k-s.producers), func(r *rand.Rand) error { return runConsumer(k-s.producers, r) })
		}
		if rng.IntN(3) == 0 {
			runtime.Gosched()
		}
	}
	failed := false
	for range order {
		r := <-results
		if r.err == nil {
			continue
		}
		var ce *ConnectionError
		switch {
		case errors.Is(r.err, errTestTimeout):
			t.Errorf("%s: hangs: %v", r.who, r.err)
		case s.fault == "":
			t.Errorf("%s: %v", r.who, r.err)
		case errors.Is(r.err, errFault), errors.Is(r.err, ErrClosed) && s.fault == "close worker":
		case errors.As(r.err, &ce):
		default:
			t.Errorf("%s: %v: neither the fault nor a *ConnectionError", r.who, r.err)
		}
		if !failed {
			failed = true
			// What the JobMaster does: the others are cancelled. They must not need it when they depend on the one that failed.
			time.AfterFunc(10*time.Millisecond, cancelLater(envs))
		}
	}
}

// cancelLater drops all partitions, as after a failed attempt.
func cancelLater(envs []*Environment) func() {
	return func() {
		for _, e := range envs {
			e.ReleaseBefore(1)
		}
	}
}
