package network

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// eventually waits for cond.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !cond() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not so after a minute", what)
		}
		<-time.After(time.Millisecond)
	}
}

// fill writes records of ten bytes to the channel until Put fails.
func fill(p *Partition, i int) chan error {
	done := make(chan error, 1)
	go func() {
		c := p.Channel(i)
		for {
			if err := c.Put(append(c.Buf(), "0123456789"...)); err != nil {
				done <- err
				return
			}
		}
	}()
	return done
}

func wait(t testing.TB, done <-chan error) error {
	t.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(time.Minute):
		t.Fatal("blocked for a minute")
		return nil
	}
}

// pair returns a producing and a consuming environment, which are one and the same when local, and the address to give to sources.
func pair(t *testing.T, remote bool, cfg Config) (producer, consumer *Environment, address string) {
	producer = newEnv(t, cfg)
	if !remote {
		return producer, producer, ""
	}
	return producer, newEnv(t, cfg), listen(t, producer)
}

func both(t *testing.T, f func(t *testing.T, remote bool)) {
	for _, remote := range []bool{false, true} {
		t.Run(fmt.Sprintf("remote=%t", remote), func(t *testing.T) { f(t, remote) })
	}
}

// TestBackpressure: a consumer that does not read blocks the producer within the bound of the credits; the time shows; a read lets it go on.
func TestBackpressure(t *testing.T) {
	both(t, func(t *testing.T, remote bool) {
		cfg := Config{BufferSize: 100, BuffersPerChannel: 2, FloatingPerGate: 3}
		e1, e2, addr := pair(t, remote, cfg)
		p := newPartition(t, e1, testPartition(1), 1)
		g := newConsumer(t, t.Context(), e2, Source{Partition: testPartition(1), Address: addr})
		done := fill(p, 0)
		blocked := func() bool { return p.BackpressuredNanos() > int64(20*time.Millisecond) }
		eventually(t, "blocked", func() bool { return blocked() && (remote || g.Queued() == 4) })
		// Two at the producer, two and the lent three under way; the current one is not counted.
		if most := int64((2 + 2 + 3) * 110); p.BytesOut() > most {
			t.Errorf("%d bytes went out with nobody reading, want at most %d", p.BytesOut(), most)
		}
		before := p.BytesOut()
		for range 3 {
			it, err := g.next()
			if err != nil {
				t.Fatal(err)
			}
			g.Release(it)
		}
		eventually(t, "going on", func() bool { return p.BytesOut() > before })
		g.Close()
		wantKind(t, wait(t, done), ConsumerGone)
		if g.BytesIn() == 0 {
			t.Error("no bytes counted at the gate")
		}
	})
}

// TestSlowChannelDoesNotBlockOthers: two channels of one connection, one of them not read.
func TestSlowChannelDoesNotBlockOthers(t *testing.T) {
	e1, e2, addr := pair(t, true, Config{BufferSize: 100})
	slow, fast := newPartition(t, e1, testPartition(1), 1), newPartition(t, e1, testPartition(2), 1)
	gSlow := newConsumer(t, t.Context(), e2, Source{Partition: testPartition(1), Address: addr})
	g := newConsumer(t, t.Context(), e2, Source{Partition: testPartition(1), Subpartition: 0, Address: addr})
	g.Close() // asked twice for the same: refused, and no harm to the others
	both := newConsumer(t, t.Context(), e2, Source{Partition: testPartition(2), Address: addr})
	done := fill(slow, 0)
	eventually(t, "slow channel blocked", func() bool { return slow.BackpressuredNanos() > int64(10*time.Millisecond) })
	errs := make(chan error, 1)
	go func() { errs <- writeNumbers(fast, 0, 20000) }()
	got, err := both.collect()
	if err != nil || string(got[0]) != numbers(20000) {
		t.Errorf("%d bytes, %v", len(got[0]), err)
	}
	if err := wait(t, errs); err != nil {
		t.Error(err)
	}
	gSlow.Close()
	wantKind(t, wait(t, done), ConsumerGone)
}

// TestBlockedChannelOfAGate: the same within one gate, as during an alignment.
func TestBlockedChannelOfAGate(t *testing.T) {
	both(t, func(t *testing.T, remote bool) {
		e1, e2, addr := pair(t, remote, Config{BufferSize: 100})
		g := newConsumer(t, t.Context(), e2,
			Source{Partition: testPartition(1), Address: addr}, Source{Partition: testPartition(2), Address: addr})
		g.Block(0)
		errs := make(chan error, 2)
		for i := 1; i <= 2; i++ {
			p := newPartition(t, e1, testPartition(i), 1)
			go func() { errs <- writeNumbers(p, 0, 5000) }()
		}
		var got [2]strings.Builder
		for open := 2; open > 0; {
			it, err := g.next()
			if err != nil {
				t.Fatal(err)
			}
			got[it.Channel].Write(it.Data)
			g.Release(it)
			if it.Event.Kind != EndOfPartition {
				continue
			}
			open--
			if it.Channel == 1 {
				if got[0].Len() > 0 {
					t.Error("something came from the blocked channel")
				}
				g.Unblock(0)
			}
		}
		for i := range got {
			if got[i].String() != numbers(5000) {
				t.Errorf("channel %d: %d bytes", i, got[i].Len())
			}
			if err := wait(t, errs); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestCancelledPartitionUnblocksItsWriter(t *testing.T) {
	e := newEnv(t, Config{BufferSize: 100})
	cause := errors.New("the job was cancelled")
	ctx, cancel := context.WithCancelCause(t.Context())
	p, err := e.NewPartition(ctx, testPartition(1), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	done := fill(p, 0)
	eventually(t, "blocked", func() bool { return p.BackpressuredNanos() > 0 })
	cancel(cause)
	if err := wait(t, done); !errors.Is(err, cause) {
		t.Errorf("got %v, want the cause", err)
	}
}

func TestCancelledGate(t *testing.T) {
	both(t, func(t *testing.T, remote bool) {
		e1, e2, addr := pair(t, remote, Config{BufferSize: 100})
		p := newPartition(t, e1, testPartition(1), 1)
		cause := errors.New("the job was cancelled")
		ctx, cancel := context.WithCancelCause(t.Context())
		g := newConsumer(t, ctx, e2, Source{Partition: testPartition(1), Address: addr})
		done := fill(p, 0)
		eventually(t, "blocked, and the consumer attached", func() bool { return p.BackpressuredNanos() > 0 && g.Queued() > 0 })
		cancel(cause)
		eventually(t, "the gate's end", func() bool {
			it, _, err := g.Poll()
			g.Release(it)
			return errors.Is(err, cause)
		})
		if ce := wantKind(t, wait(t, done), ConsumerGone); ce.Partition != testPartition(1) {
			t.Errorf("the error names %s", ce.Partition)
		}
	})
}

func TestProducerThatEndsEarly(t *testing.T) {
	both(t, func(t *testing.T, remote bool) {
		e1, e2, addr := pair(t, remote, Config{})
		p := newPartition(t, e1, testPartition(1), 1)
		g := newConsumer(t, t.Context(), e2, Source{Partition: testPartition(1), Address: addr})
		c := p.Channel(0)
		if err := errors.Join(c.Put(append(c.Buf(), 1)), c.Flush()); err != nil {
			t.Fatal(err)
		}
		it, err := g.next()
		if err != nil {
			t.Fatal(err)
		}
		g.Release(it)
		p.Close()
		_, err = g.next()
		if ce := wantKind(t, err, ProducerGone); ce.Partition != testPartition(1) {
			t.Errorf("the error names %s", ce.Partition)
		}
	})
}

// TestFinishedPartitionOutlivesItsTask: a consumer that comes when the producer has ended reads everything, and then nothing is left.
func TestFinishedPartitionOutlivesItsTask(t *testing.T) {
	both(t, func(t *testing.T, remote bool) {
		e1, e2, addr := pair(t, remote, Config{})
		ctx, cancel := context.WithCancel(t.Context())
		p, err := e1.NewPartition(ctx, testPartition(1), 2)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 2 {
			c := p.Channel(i)
			if err := c.Put(append(c.Buf(), "abc"...)); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.Finish(); err != nil {
			t.Fatal(err)
		}
		p.Close()
		cancel()
		for i := range 2 {
			got, err := newConsumer(t, t.Context(), e2, Source{Partition: testPartition(1), Subpartition: i, Address: addr}).collect()
			if err != nil || string(got[0]) != "abc" {
				t.Errorf("channel %d: %q, %v", i, got[0], err)
			}
		}
		eventually(t, "the partition is gone", func() bool {
			e1.mu.Lock()
			defer e1.mu.Unlock()
			return len(e1.partitions) == 0
		})
	})
}

// TestLostConnectionFailsBothSides: the data connection dies under a consumer and a producer that both wait.
func TestLostConnectionFailsBothSides(t *testing.T) {
	e1, e2, addr := pair(t, true, Config{BufferSize: 100})
	px, err := newProxy(addr)
	if err != nil {
		t.Fatal(err)
	}
	defer px.close()
	p, idle := newPartition(t, e1, testPartition(1), 1), newPartition(t, e1, testPartition(2), 1)
	via := px.l.Addr().String()
	g := newConsumer(t, t.Context(), e2, Source{Partition: testPartition(1), Address: via}) // not read
	g2 := newConsumer(t, t.Context(), e2, Source{Partition: testPartition(2), Address: via})
	done := fill(p, 0)
	eventually(t, "blocked", func() bool { return p.BackpressuredNanos() > int64(10*time.Millisecond) && g.Queued() > 0 })
	if err := errors.Join(idle.Channel(0).Send(Event{Kind: Barrier})); err != nil {
		t.Fatal(err)
	}
	if _, err := g2.next(); err != nil {
		t.Fatal(err)
	}
	px.cut()
	ce := wantKind(t, wait(t, done), ConnectionLost)
	if ce.Peer == "" || ce.Partition != testPartition(1) {
		t.Errorf("the error does not name the peer and the execution: %v", ce)
	}
	_, err = g2.next()
	if ce := wantKind(t, err, ConnectionLost); ce.Peer != via || ce.Partition != testPartition(2) {
		t.Errorf("the error does not name the peer and the execution: %v", ce)
	}
	eventually(t, "the other gate's failure", func() bool { _, _, err := g.Poll(); return err != nil })
}

func TestLargeRecords(t *testing.T) {
	both(t, func(t *testing.T, remote bool) {
		e1, e2, addr := pair(t, remote, Config{BufferSize: 100, MaxFrame: 1000})
		p := newPartition(t, e1, testPartition(1), 1)
		g := newConsumer(t, t.Context(), e2, Source{Partition: testPartition(1), Address: addr})
		c := p.Channel(0)
		put := func(n int, b string) error { return c.Put(append(c.Buf(), strings.Repeat(b, n)...)) }
		if err := errors.Join(put(50, "a"), put(1000, "b"), put(30, "c")); err != nil {
			t.Fatal(err)
		}
		err := put(1001, "x")
		if err == nil || !strings.Contains(err.Error(), "1001 bytes") || !strings.Contains(err.Error(), "1000 bytes") {
			t.Errorf("got %v, want an error that names both sizes", err)
		}
		done := make(chan error, 1)
		go func() { done <- errors.Join(put(3, "d"), p.Finish()) }() // the writer may go on
		got, err := g.collect()
		want := strings.Repeat("a", 50) + strings.Repeat("b", 1000) + strings.Repeat("c", 30) + "ddd"
		if err != nil || string(got[0]) != want {
			t.Errorf("%q, %v", got[0], err)
		}
		if err := wait(t, done); err != nil {
			t.Error(err)
		}
	})
}

// TestFrequentFlushesUnderBackpressureFillBuffers: flushing each record neither blocks nor makes a buffer of each while the consumer is behind.
func TestFrequentFlushesUnderBackpressureFillBuffers(t *testing.T) {
	e := newEnv(t, Config{BufferSize: 1000, BuffersPerChannel: 1})
	p := newPartition(t, e, testPartition(1), 1)
	g := newConsumer(t, t.Context(), e, Source{Partition: testPartition(1)})
	c := p.Channel(0)
	for range 150 {
		if err := errors.Join(c.Put(append(c.Buf(), "0123456789"...)), c.Flush()); err != nil {
			t.Fatal(err)
		}
	}
	if n := g.Queued(); n != 2 {
		t.Errorf("%d buffers are queued, want 2", n)
	}
	if p.BackpressuredNanos() != 0 {
		t.Error("a flush blocked")
	}
}

func TestHolds(t *testing.T) {
	e := newEnv(t, Config{})
	p := newPartition(t, e, testPartition(1), 2)
	g := newConsumer(t, t.Context(), e, Source{Partition: testPartition(1)}, Source{Partition: testPartition(1), Subpartition: 1})
	if p.Holds() {
		t.Error("a new partition holds something")
	}
	if c := p.Channel(1); c.Put(append(c.Buf(), 'x')) != nil {
		t.Fatal("put failed")
	}
	if !p.Holds() || g.Queued() != 0 {
		t.Errorf("holds %v, %d buffers came", p.Holds(), g.Queued())
	}
	if err := p.FlushAll(); err != nil || p.Holds() || g.Queued() != 1 {
		t.Errorf("%v; after the flush it holds %v, %d buffers came", err, p.Holds(), g.Queued())
	}
}

// A finished partition that nobody reads goes with its attempt; those of the next attempt stay.
func TestReleaseBefore(t *testing.T) {
	e := newEnv(t, Config{BufferSize: 100})
	p := newPartition(t, e, testPartition(1), 1)
	done := fill(p, 0)
	eventually(t, "blocked", func() bool { return p.BackpressuredNanos() > 0 })
	finished := newPartition(t, e, testPartition(2), 3)
	if err := finished.Finish(); err != nil {
		t.Fatal(err)
	}
	finished.Close()
	next := testPartition(1)
	next.Producer.Attempt++
	newPartition(t, e, next, 1)
	if e.ReleaseBefore(0); e.Partitions() != 3 {
		t.Errorf("%d partitions, want 3", e.Partitions())
	}
	e.ReleaseBefore(1)
	wantKind(t, wait(t, done), ProducerGone)
	if e.Partitions() != 1 {
		t.Errorf("%d partitions, want that of the second attempt", e.Partitions())
	}
	if _, err := e.NewPartition(t.Context(), testPartition(1), 1); err != nil {
		t.Errorf("the id is not free again: %v", err)
	}
}

func TestClosedEnvironment(t *testing.T) {
	e := newEnv(t, Config{BufferSize: 100})
	p := newPartition(t, e, testPartition(1), 1)
	g := newConsumer(t, t.Context(), e, Source{Partition: testPartition(2)})
	done := fill(p, 0)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if err := wait(t, done); !errors.Is(err, ErrClosed) {
		t.Errorf("writer: %v", err)
	}
	if _, err := g.next(); !errors.Is(err, ErrClosed) {
		t.Errorf("gate: %v", err)
	}
	if _, err := e.NewPartition(t.Context(), testPartition(3), 1); !errors.Is(err, ErrClosed) {
		t.Errorf("new partition: %v", err)
	}
	if _, err := e.NewGate(t.Context(), nil, func() {}); !errors.Is(err, ErrClosed) {
		t.Errorf("new gate: %v", err)
	}
	if _, err := e.Listen(t.Context(), "127.0.0.1:0"); !errors.Is(err, ErrClosed) {
		t.Errorf("listen: %v", err)
	}
}

// TestFinishDespiteOneLostConsumer: the others still get their end.
func TestFinishDespiteOneLostConsumer(t *testing.T) {
	both(t, func(t *testing.T, remote bool) {
		e1, e2, addr := pair(t, remote, Config{})
		p := newPartition(t, e1, testPartition(1), 2)
		gone := newConsumer(t, t.Context(), e2, Source{Partition: testPartition(1), Address: addr})
		g := newConsumer(t, t.Context(), e2, Source{Partition: testPartition(1), Subpartition: 1, Address: addr})
		for i, c := range []*consumer{gone, g} { // both are attached
			if err := p.Channel(i).Send(Event{Kind: Barrier}); err != nil {
				t.Fatal(err)
			}
			if _, err := c.next(); err != nil {
				t.Fatal(err)
			}
		}
		gone.Close()
		eventually(t, "the producer knows", func() bool { return p.Channel(0).Send(Event{Kind: Barrier}) != nil })
		wantKind(t, p.Finish(), ConsumerGone)
		p.Close()
		if _, err := g.collect(); err != nil {
			t.Error(err)
		}
	})
}
