package network

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"
)

// pump sends b.N records of the given size through one channel and reads them at the other end.
func pump(b *testing.B, producer, consumerEnv *Environment, address string, size int, recycle bool) {
	id := testPartition(1)
	p, err := producer.NewPartition(context.Background(), id, 1)
	if err != nil {
		b.Fatal(err)
	}
	g := newConsumer(b, context.Background(), consumerEnv, Source{Partition: id, Address: address})
	g.SetRecycle(recycle)
	record := make([]byte, size)
	b.SetBytes(int64(size))
	b.ReportAllocs()
	b.ResetTimer()
	cpu := cpuTime(b)
	done := make(chan error, 1)
	go func() {
		c := p.Channel(0)
		for range b.N {
			if err := c.Put(append(c.Buf(), record...)); err != nil {
				done <- err
				return
			}
		}
		done <- p.Finish()
	}()
	n := 0
	for {
		it, err := g.next()
		if err != nil {
			b.Fatal(err)
		}
		n += len(it.Data) / size
		g.Release(it)
		if it.Event.Kind == EndOfPartition {
			break
		}
	}
	if err := <-done; err != nil {
		b.Fatal(err)
	}
	cpu = cpuTime(b) - cpu
	b.StopTimer()
	if n != b.N {
		b.Fatalf("%d records came, %d were sent", n, b.N)
	}
	b.ReportMetric(float64(b.N)/cpu.Seconds()/1e6, "Mrec/core-s")
	p.Close()
	g.Close()
}

func cpuTime(tb testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func BenchmarkLocal(b *testing.B) {
	for _, recycle := range []bool{true, false} {
		b.Run(fmt.Sprintf("200B/recycle=%t", recycle), func(b *testing.B) {
			e := newEnv(b, Config{})
			pump(b, e, e, "", 200, recycle)
		})
	}
}

func BenchmarkRemote(b *testing.B) {
	for _, recycle := range []bool{true, false} {
		b.Run(fmt.Sprintf("200B/recycle=%t", recycle), func(b *testing.B) {
			e1, e2 := newEnv(b, Config{}), newEnv(b, Config{})
			addr, err := e1.Listen(context.Background(), "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			pump(b, e1, e2, addr, 200, recycle)
		})
	}
}

// BenchmarkRemoteAllToAll is four producing tasks of one worker, each with a channel to each of four consuming tasks of another.
func BenchmarkRemoteAllToAll(b *testing.B) {
	const n, size = 4, 200
	e1, e2 := newEnv(b, Config{}), newEnv(b, Config{})
	addr, err := e1.Listen(context.Background(), "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	record := make([]byte, size)
	errs := make(chan error, 2*n)
	counts := make([]int, n)
	b.SetBytes(size)
	b.ReportAllocs()
	b.ResetTimer()
	cpu := cpuTime(b)
	for i := range n {
		p, err := e1.NewPartition(context.Background(), testPartition(i), n)
		if err != nil {
			b.Fatal(err)
		}
		go func() {
			for k := i; k < b.N; k += n {
				c := p.Channel(k / n % n)
				if err := c.Put(append(c.Buf(), record...)); err != nil {
					errs <- err
					return
				}
			}
			errs <- p.Finish()
			p.Close()
		}()
	}
	for i := range n {
		var src []Source
		for k := range n {
			src = append(src, Source{Partition: testPartition(k), Subpartition: i, Address: addr})
		}
		g := newConsumer(b, context.Background(), e2, src...)
		g.SetRecycle(true)
		go func() {
			for open := n; open > 0; {
				it, err := g.next()
				if err != nil {
					errs <- err
					return
				}
				counts[i] += len(it.Data) / size
				g.Release(it)
				if it.Event.Kind == EndOfPartition {
					open--
				}
			}
			errs <- nil
		}()
	}
	for range 2 * n {
		if err := <-errs; err != nil {
			b.Fatal(err)
		}
	}
	cpu = cpuTime(b) - cpu
	b.StopTimer()
	if got := counts[0] + counts[1] + counts[2] + counts[3]; got != b.N {
		b.Fatalf("%d records came, %d were sent", got, b.N)
	}
	b.ReportMetric(float64(b.N)/cpu.Seconds()/1e6, "Mrec/core-s")
}

// BenchmarkHandOver is one buffer from Put to Poll and Release within one goroutine: what a hand-over costs beyond waiting.
func BenchmarkHandOver(b *testing.B) {
	e := newEnv(b, Config{BufferSize: 1024})
	id := testPartition(1)
	p, err := e.NewPartition(context.Background(), id, 1)
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	g := newConsumer(b, context.Background(), e, Source{Partition: id})
	g.SetRecycle(true)
	c := p.Channel(0)
	b.ReportAllocs()
	for b.Loop() {
		if err := c.Put(c.Buf()[:1024]); err != nil {
			b.Fatal(err)
		}
		it, ok, err := g.Poll()
		if !ok || err != nil {
			b.Fatal(ok, err)
		}
		g.Release(it)
	}
}

func BenchmarkPut(b *testing.B) {
	e := newEnv(b, Config{})
	id := testPartition(1)
	p, err := e.NewPartition(context.Background(), id, 1)
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	c := p.Channel(0)
	b.ReportAllocs()
	record := make([]byte, 24)
	i := 0
	for b.Loop() {
		if err := c.Put(append(c.Buf(), record...)); err != nil {
			b.Fatal(err)
		}
		if i++; i == 1000 {
			i, c.buf = 0, c.buf[:0]
		}
	}
}
