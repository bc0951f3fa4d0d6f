package network

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"pgregory.net/rapid"
)

func files(t testing.TB, dir string) int {
	t.Helper()
	n := 0
	err := filepath.WalkDir(dir, func(_ string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			n++
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestBlockingPartition: what was written to each subpartition comes out in its order, to several consumers, here and over a connection, and
// to later ones again, until it is released.
func TestBlockingPartition(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		s := drawScenario(rt)
		s.cfg.PartitionTimeout = 0
		s.fault = ""
		producer := New(s.cfg, quietLog())
		other := New(s.cfg, quietLog())
		defer func() {
			if err := other.Close(); err != nil {
				rt.Error(err)
			}
			if err := producer.Close(); err != nil {
				rt.Error(err)
			}
			if n := files(t, dir); n != 0 {
				rt.Errorf("%d files are left", n)
			}
		}()
		address, err := producer.Listen(context.Background(), "localhost:0")
		if err != nil {
			rt.Fatal(err)
		}
		id := testPartition(1)
		p, err := producer.NewBlockingPartition(context.Background(), id, s.consumers, dir)
		if err != nil {
			rt.Fatal(err)
		}
		rnd := rand.New(rand.NewPCG(s.seed, 1))
		counts := make([]int, s.consumers)
		for range s.records {
			i := rnd.IntN(s.consumers)
			c := p.Channel(i)
			if err := c.Put(appendTestRecord(c.Buf(), 0, i, counts[i], rnd.IntN(s.maxRecord))); err != nil {
				rt.Fatal(err)
			}
			counts[i]++
		}
		if producer.Partitions() != 0 {
			rt.Fatal("it can be found before it is finished")
		}
		for _, kind := range []EventKind{EndOfData, EndOfPartition} {
			if err := p.Broadcast(Event{Kind: kind}); err != nil {
				rt.Fatal(err)
			}
		}
		if err := p.Finish(); err != nil {
			rt.Fatal(err)
		}
		p.Close()
		for round := range 2 {
			done := make(chan error)
			n := 0
			for _, e := range []*Environment{producer, other} {
				for i := range s.consumers {
					src := Source{Partition: id, Subpartition: i}
					if e == other {
						src.Address = address
					}
					n++
					go func() { done <- readBlocking(e, src, counts[i], s.recycle) }()
				}
			}
			for range n {
				if err := <-done; err != nil {
					rt.Errorf("round %d: %v", round, err)
				}
			}
		}
		if producer.Partitions() != 1 {
			rt.Fatal("it is gone though nobody released it")
		}
		producer.Release(id.Producer)
		if n := files(t, dir); n != 0 {
			rt.Fatalf("%d files are left after the release", n)
		}
	})
}

func readBlocking(e *Environment, src Source, want int, recycle bool) error {
	wake := make(chan struct{}, 1)
	g, err := e.NewGate(context.Background(), []Source{src}, func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	})
	if err != nil {
		return err
	}
	defer g.Close()
	g.SetRecycle(recycle)
	seq, ended := 0, false
	for {
		item, ok, err := g.Poll()
		switch {
		case err != nil:
			return err
		case !ok:
			<-wake
		case item.Data != nil:
			if err := checkRecords(item.Data, 0, src.Subpartition, &seq); err != nil {
				return err
			}
			g.Release(item)
		case item.Event.Kind == EndOfData:
			ended = true
		case item.Event.Kind == EndOfPartition:
			if !ended || seq != want {
				return fmt.Errorf("subpartition %d ended after %d of %d records, end of data %v", src.Subpartition, seq, want, ended)
			}
			return nil
		}
	}
}

// A partition that is released, or whose task ends before it is finished, fails those that read it and leaves no file.
func TestReleasedBlockingPartition(t *testing.T) {
	both(t, func(t *testing.T, remote bool) {
		producer, consumerEnv, address := pair(t, remote, Config{BufferSize: 16, BuffersPerChannel: 1, FloatingPerGate: -1})
		dir := t.TempDir()
		p, err := producer.NewBlockingPartition(t.Context(), testPartition(0), 1, dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := writeNumbers(p, 0, 100); err != nil {
			t.Fatal(err)
		}
		c := newConsumer(t, t.Context(), consumerEnv, Source{Partition: p.ID(), Address: address})
		if _, err := c.next(); err != nil {
			t.Fatal(err)
		}
		producer.ReleaseBefore(p.ID().Producer.Attempt + 1)
		_, err = c.collect()
		if ce := wantKind(t, err, ProducerGone); !strings.Contains(ce.Error(), "released") {
			t.Error(ce)
		}
		q, err := producer.NewBlockingPartition(t.Context(), testPartition(1), 1, dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := q.Channel(0).Put(append(q.Channel(0).Buf(), strings.Repeat("x", 100)...)); err != nil {
			t.Fatal(err)
		}
		q.Close()
		if n := files(t, dir); n != 0 {
			t.Errorf("%d files are left", n)
		}
	})
}

// A file that is cut, or gives back what was not written, fails who reads it with the partition's name; one that has lost its name is read.
func TestDamagedBlockingPartition(t *testing.T) {
	both(t, func(t *testing.T, remote bool) {
		for name, damage := range map[string]func(path string) error{
			"cut": func(path string) error { return os.Truncate(path, 20) },
			"changed": func(path string) error {
				f, err := os.OpenFile(path, os.O_RDWR, 0)
				if err == nil {
					_, err = f.WriteAt([]byte{'x'}, 40)
					err = errors.Join(err, f.Close())
				}
				return err
			},
			"": os.Remove,
		} {
			producer, consumerEnv, address := pair(t, remote, Config{BufferSize: 16, BuffersPerChannel: 1, FloatingPerGate: -1})
			p, err := producer.NewBlockingPartition(t.Context(), testPartition(0), 1, t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			if err := writeNumbers(p, 0, 100); err != nil {
				t.Fatal(err)
			}
			if err := damage(p.spill.path); err != nil {
				t.Fatal(err)
			}
			_, err = newConsumer(t, t.Context(), consumerEnv, Source{Partition: p.ID(), Address: address}).collect()
			if name == "" {
				if err != nil {
					t.Errorf("without its name: %v", err)
				}
				continue
			}
			if ce := wantKind(t, err, PartitionLost); ce.Partition != p.ID() || !strings.Contains(ce.Error(), filepath.Base(p.spill.path)) {
				t.Errorf("%s: %v", name, ce)
			}
		}
	})
}

func TestFullDiskOfAPartition(t *testing.T) {
	err := diskError(testPartition(0), "write", &os.PathError{Op: "write", Path: "/d/x", Err: syscall.ENOSPC})
	if s := err.Error(); !strings.Contains(s, "/d/x") || !strings.Contains(s, "io.tmp.dirs") {
		t.Fatal(s)
	}
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	e := newEnv(t, Config{BufferSize: 16})
	p, err := e.NewBlockingPartition(t.Context(), testPartition(0), 1, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	real := p.spill.f
	p.spill.f = full
	err = writeNumbers(p, 0, 100)
	if err == nil || !strings.Contains(err.Error(), "no space left on device") || !strings.Contains(err.Error(), "io.tmp.dirs") {
		t.Error(err)
	}
	if err := full.Close(); err != nil {
		t.Error(err)
	}
	p.spill.f = real
	p.Close()
}
