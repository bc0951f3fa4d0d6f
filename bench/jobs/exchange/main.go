// Command exchange is the job of the cases exchange and exchange-strings: records of 200 bytes from one worker's data plane to another's, over
// a connection. Both are in this process, so that its CPU time is that of both ends.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/runtime/network"
)

func main() {
	n := flag.Int64("events", 50_000_000, "number of records")
	size := flag.Int("size", 200, "bytes of a record of bytes")
	strings := flag.Bool("strings", false, "structs that hold strings, encoded and decoded, in place of bytes")
	flag.Parse()
	debug.SetGCPercent(400) // as in a worker
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := run(context.Background(), *n, *size, *strings); err != nil {
		fmt.Fprintln(os.Stderr, "exchange:", err)
		os.Exit(1)
	}
	runtime.ReadMemStats(&after)
	fmt.Printf("%g allocations per record\n", float64(after.Mallocs-before.Mallocs)/float64(*n))
}

func run(ctx context.Context, n int64, size int, strings bool) (err error) {
	from, to := network.New(network.Config{}, zerolog.Nop()), network.New(network.Config{}, zerolog.Nop())
	defer func() { err = errors.Join(err, from.Close(), to.Close()) }()
	address, err := from.Listen(ctx, "127.0.0.1:0")
	if err != nil {
		return err
	}
	part, err := from.NewPartition(ctx, network.PartitionID{}, 1)
	if err != nil {
		return err
	}
	wake := make(chan struct{}, 1)
	gate, err := to.NewGate(ctx, []network.Source{{Address: address}}, func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	})
	if err != nil {
		return err
	}
	if strings {
		return structs(part, gate, wake, n)
	}
	gate.SetRecycle(true) // as for records without strings
	written := make(chan error, 1)
	go func() { written <- write(part, n, size) }()
	got, err := read(gate, wake, func([]byte) error { return nil })
	if err != nil {
		return err
	}
	gate.Close()
	if err := <-written; err != nil {
		return err
	}
	if want := n * int64(size); got != want {
		return fmt.Errorf("%d bytes came, %d were sent", got, want)
	}
	return nil
}

func write(part *network.Partition, n int64, size int) error {
	defer part.Close()
	c, record := part.Channel(0), make([]byte, size)
	for range n {
		if err := c.Put(append(c.Buf(), record...)); err != nil {
			return err
		}
	}
	return part.Finish()
}

func read(gate *network.Gate, wake <-chan struct{}, each func([]byte) error) (bytes int64, err error) {
	for {
		item, ok, err := gate.Poll()
		if err != nil {
			return bytes, err
		}
		if !ok {
			<-wake
			continue
		}
		bytes += int64(len(item.Data))
		if err := each(item.Data); err != nil {
			return bytes, err
		}
		gate.Release(item)
		if item.Event.Kind == network.EndOfPartition {
			return bytes, nil
		}
	}
}
