package main

import (
	"fmt"
	"strings"

	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/runtime/network"
	"github.com/thalweg/thalweg/runtime/operator"
)

// order takes 200 bytes on the wire, its time included.
type order struct {
	ID, Cents            int64
	Customer, City, Note string
}

// structs sends orders as tasks do: encoded by the edge's writer, decoded by the consumer's reader, whose records' strings are views of the
// buffers.
func structs(part *network.Partition, gate *network.Gate, wake <-chan struct{}, n int64) error {
	typ, err := operator.TypeOf[order]()
	if err != nil {
		return err
	}
	w, err := typ.Writer(part, 1, 0, 128, graph.Forward, nil, false)
	if err != nil {
		return err
	}
	out, ok := w.(operator.Receiver[order])
	if !ok {
		return fmt.Errorf("the writer is a %T", w)
	}
	got := &counter{}
	in, err := typ.Reader(operator.Receiver[order](got), 1)
	if err != nil {
		return err
	}
	gate.SetRecycle(!typ.Views())
	written := make(chan error, 1)
	go func() {
		written <- func() error {
			defer part.Close()
			o := order{Cents: 4999, Customer: "customer-1234567", City: "Amsterdam", Note: strings.Repeat("n", 146)}
			for o.ID = range n {
				if err := out.Process(o, operator.Meta{TS: o.ID}); err != nil {
					return err
				}
			}
			return part.Finish()
		}()
	}()
	_, err = read(gate, wake, func(b []byte) error {
		if len(b) == 0 {
			return nil
		}
		_, err := in.Read(0, b)
		return err
	})
	if err != nil {
		return err
	}
	gate.Close()
	if err := <-written; err != nil {
		return err
	}
	if got.n != n || got.text != n*(16+9+146) {
		return fmt.Errorf("%d records with %d bytes of text came, %d were sent", got.n, got.text, n)
	}
	return nil
}

// counter counts orders and the bytes of their strings.
type counter struct{ n, text int64 }

// Process implements operator.Receiver.
func (c *counter) Process(o order, _ operator.Meta) error {
	c.n++
	c.text += int64(len(o.Customer) + len(o.City) + len(o.Note))
	return nil
}

// Watermark implements operator.Receiver.
func (*counter) Watermark(int64) error { return nil }

// Idle implements operator.Receiver.
func (*counter) Idle(bool) error { return nil }
