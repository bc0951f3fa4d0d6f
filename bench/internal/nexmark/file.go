package nexmark

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"unsafe"
)

// Period is how many events a file holds; the numbers of events, persons and auctions of a pass are multiples of those that the
// generator's arithmetic goes by, so a pass that is moved on is like the next events.
const Period = 1_000_000

// The file, all numbers little endian:
//
//	magic 8 bytes, then i64 each: rate, parts, and the offset of every part and of the end
//	part i has the events i, i+parts, i+2*parts, ... below Period, one after the other:
//	bid:     kind u8, 0 u8, size u16, channel u16, url u16, extra u16, 6 zero bytes, auction, bidder, price, time i64, strings
//	auction: kind u8, 0 u8, size u16, item u16, description u16, extra u16, 6 zero bytes, id, first bid, reserve, time, expires, seller,
//	         category i64, strings
//	person:  kind u8, 0 u8, size u16, name u16, email u16, card u16, city u16, state u16, extra u16, id, time i64, strings
//
// where a string's u16 is its length and size is that of the whole event.
const magic = "nexmark1"

const (
	bidHead     = 48
	auctionHead = 72
	personHead  = 32
)

// Write writes the file of one period; part i of parts is for source subtask i.
func Write(path string, rate int64, parts int) (err error) {
	if parts < 1 || Period%parts != 0 {
		return fmt.Errorf("nexmark: write %s: %d events cannot be dealt out to %d parts", path, Period, parts)
	}
	f, err := os.CreateTemp(dirOf(path), "nexmark-*")
	if err != nil {
		return fmt.Errorf("nexmark: write %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("nexmark: write %s: %w", path, errors.Join(err, f.Close(), os.Remove(f.Name())))
		}
	}()
	w := bufio.NewWriterSize(f, 1<<20)
	head := make([]byte, 8*(4+parts))
	copy(head, magic)
	binary.LittleEndian.PutUint64(head[8:], uint64(rate))
	binary.LittleEndian.PutUint64(head[16:], uint64(parts))
	if _, err := w.Write(head); err != nil {
		return err
	}
	at := len(head)
	g := NewGenerator(rate)
	var e Event
	var b []byte
	for i := range parts {
		binary.LittleEndian.PutUint64(head[24+8*i:], uint64(at))
		for n := int64(i); n < Period; n += int64(parts) {
			g.Reset()
			g.Fill(n, &e)
			b = encode(b[:0], &e)
			if _, err := w.Write(b); err != nil {
				return err
			}
			at += len(b)
		}
	}
	binary.LittleEndian.PutUint64(head[24+8*parts:], uint64(at))
	if err := w.Flush(); err != nil {
		return err
	}
	if _, err := f.WriteAt(head, 0); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

func dirOf(path string) string {
	for i := len(path) - 1; i >= 0; i-- {
		if path[i] == '/' {
			return path[:i+1]
		}
	}
	return "."
}

func encode(b []byte, e *Event) []byte {
	start := len(b)
	head := func(strings ...string) {
		b = append(b, byte(e.Kind), 0, 0, 0)
		for _, s := range strings {
			b = binary.LittleEndian.AppendUint16(b, uint16(len(s)))
		}
		for len(b)-start < 16 {
			b = append(b, 0)
		}
	}
	numbers := func(ns ...int64) {
		for _, n := range ns {
			b = binary.LittleEndian.AppendUint64(b, uint64(n))
		}
	}
	switch e.Kind {
	case KindBid:
		x := &e.Bid
		head(x.Channel, x.URL, x.Extra)
		numbers(x.Auction, x.Bidder, x.Price, x.Time)
		b = append(append(append(b, x.Channel...), x.URL...), x.Extra...)
	case KindAuction:
		x := &e.Auction
		head(x.Item, x.Description, x.Extra)
		numbers(x.ID, x.InitialBid, x.Reserve, x.Time, x.Expires, x.Seller, x.Category)
		b = append(append(append(b, x.Item...), x.Description...), x.Extra...)
	default:
		x := &e.Person
		head(x.Name, x.Email, x.Card, x.City, x.State, x.Extra)
		numbers(x.ID, x.Time)
		b = append(append(append(b, x.Name...), x.Email...), x.Card...)
		b = append(append(append(b, x.City...), x.State...), x.Extra...)
	}
	binary.LittleEndian.PutUint16(b[start+2:], uint16(len(b)-start))
	return b
}

// File is a mapped file. It stays mapped to the end of the process, since the strings of its events are views into it.
type File struct {
	rate  int64
	parts [][]byte
}

// Open maps a file of Write.
func Open(path string) (*File, error) {
	fail := func(err error) (*File, error) { return nil, fmt.Errorf("nexmark: open %s: %w", path, err) }
	f, err := os.Open(path)
	if err != nil {
		return fail(err)
	}
	defer f.Close() //nolint:errcheck // only read
	st, err := f.Stat()
	if err != nil {
		return fail(err)
	}
	if st.Size() < 32 {
		return fail(io.ErrUnexpectedEOF)
	}
	b, err := syscall.Mmap(int(f.Fd()), 0, int(st.Size()), syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return fail(err)
	}
	number := func(at int) int64 { return int64(binary.LittleEndian.Uint64(b[at:])) }
	parts := int(number(16))
	if string(b[:8]) != magic || parts < 1 || len(b) < 8*(4+parts) {
		return fail(errors.New("it is no file of events"))
	}
	x := &File{rate: number(8)}
	for i := range parts {
		from, to := number(24+8*i), number(32+8*i)
		if from < 0 || to < from || to > st.Size() {
			return fail(errors.New("its parts are out of bounds"))
		}
		x.parts = append(x.parts, b[from:to])
	}
	return x, nil
}

// Replay reads a part of a file over and over.
type Replay struct {
	part  []byte
	rest  []byte
	pass  move
	shift move
}

// move is how much later a pass is than the first.
type move struct{ persons, auctions, ms int64 }

// Part returns a reader of part i, before its first event.
func (f *File) Part(i int) *Replay {
	return &Replay{part: f.parts[i], rest: f.parts[i], pass: moves(1, f.rate)}
}

// moves is what n periods are.
func moves(n, rate int64) move {
	return move{n * Period / epoch, n * Period / epoch * auctions, n * Period / max(rate/1000, 1)}
}

// Next reads the next event, in place: its strings are views of the file. Only a file of Write may be read.
func (r *Replay) Next(e *Event) {
	if len(r.rest) == 0 {
		r.rest = r.part
		r.shift.persons += r.pass.persons
		r.shift.auctions += r.pass.auctions
		r.shift.ms += r.pass.ms
	}
	b := r.rest
	h := binary.LittleEndian.Uint64(b)
	r.rest = b[h>>16&0xffff:]
	e.Kind = Kind(h)
	number := func(at int) int64 { return int64(binary.LittleEndian.Uint64(b[at:])) }
	switch e.Kind {
	case KindBid:
		_ = b[bidHead-1]
		x := &e.Bid
		x.Auction, x.Bidder = number(16)+r.shift.auctions, number(24)+r.shift.persons
		x.Price, x.Time = number(32), number(40)+r.shift.ms
		c, u := h>>32&0xffff, h>>48
		s := b[bidHead:]
		x.Channel, s = view(s, c)
		x.URL, s = view(s, u)
		x.Extra, _ = view(s, uint64(binary.LittleEndian.Uint16(b[8:])))
	case KindAuction:
		_ = b[auctionHead-1]
		x := &e.Auction
		x.ID, x.InitialBid, x.Reserve = number(16)+r.shift.auctions, number(24), number(32)
		x.Time, x.Expires = number(40)+r.shift.ms, number(48)+r.shift.ms
		x.Seller, x.Category = number(56)+r.shift.persons, number(64)
		s := b[auctionHead:]
		x.Item, s = view(s, h>>32&0xffff)
		x.Description, s = view(s, h>>48)
		x.Extra, _ = view(s, uint64(binary.LittleEndian.Uint16(b[8:])))
	default:
		_ = b[personHead-1]
		x := &e.Person
		x.ID, x.Time = number(16)+r.shift.persons, number(24)+r.shift.ms
		m := binary.LittleEndian.Uint64(b[8:])
		s := b[personHead:]
		x.Name, s = view(s, h>>32&0xffff)
		x.Email, s = view(s, h>>48)
		x.Card, s = view(s, m&0xffff)
		x.City, s = view(s, m>>16&0xffff)
		x.State, s = view(s, m>>32&0xffff)
		x.Extra, _ = view(s, m>>48)
	}
}

// view takes n bytes off b, as a string.
func view(b []byte, n uint64) (string, []byte) {
	s := b[:n]
	return unsafe.String(unsafe.SliceData(s), len(s)), b[n:]
}

// move moves an event of the first period on.
func (e *Event) move(m move) {
	switch e.Kind {
	case KindBid:
		e.Bid.Auction += m.auctions
		e.Bid.Bidder += m.persons
		e.Bid.Time += m.ms
	case KindAuction:
		e.Auction.ID += m.auctions
		e.Auction.Seller += m.persons
		e.Auction.Time += m.ms
		e.Auction.Expires += m.ms
	default:
		e.Person.ID += m.persons
		e.Person.Time += m.ms
	}
}
