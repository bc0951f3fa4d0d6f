package network

import (
	"bufio"
	"bytes"
	"net"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

// FuzzFrames: decoders neither panic nor accept what would be written in another way.
func FuzzFrames(f *testing.F) {
	f.Add(appendRequest(nil, 1, request{id: testPartition(3), sub: 2, credit: 4}))
	f.Add(appendCredits(nil, []credit{{1, 2}, {7, 1}}))
	f.Add(appendEvent(nil, 5, &Event{Kind: Barrier, Checkpoint: 1 << 40, Timestamp: -1, Options: 3, Extra: []byte("x")}))
	f.Add(appendFail(nil, 0, ConnectFailed, "no"))
	f.Add(append(appendHeader(nil, header{length: 3, kind: frameData, backlog: 9, channel: 1}), "abc"...))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < headerSize {
			return
		}
		h, err := decodeHeader((*[headerSize]byte)(b), 1<<16)
		if err != nil {
			return
		}
		if again := appendHeader(nil, h); !bytes.Equal(again, b[:headerSize]) {
			t.Fatalf("header % x is written as % x", b[:headerSize], again)
		}
		payload := b[headerSize:]
		if len(payload) != h.length {
			return
		}
		var again []byte
		switch h.kind {
		case frameRequest:
			r, err := decodeRequest(payload)
			if err != nil {
				return
			}
			again = appendRequest(nil, h.channel, r)
		case frameCredit:
			var cs []credit
			if err := decodeCredits(payload, func(c credit) { cs = append(cs, c) }); err != nil {
				return
			}
			again = appendCredits(nil, cs)
		case frameEvent:
			ev, err := decodeEvent(payload)
			if err != nil {
				return
			}
			again = appendEvent(nil, h.channel, ev)
		case frameFail:
			k, err := decodeFail(payload)
			if err != nil && k != ProtocolViolation {
				again = appendFail(nil, h.channel, k, err.Error())
			}
		}
		if again != nil && !bytes.Equal(again[headerSize:], payload) {
			t.Fatalf("payload % x of kind %d is written as % x", payload, h.kind, again[headerSize:])
		}
	})
}

// FuzzProducerSide: whatever a consumer sends, the producer's side ends in order and forgets it.
func FuzzProducerSide(f *testing.F) {
	good := appendRequest(nil, 1, request{id: testPartition(1), sub: 0, credit: 2})
	good = appendRequest(good, 2, request{id: testPartition(1), sub: 1, credit: 2})
	good = appendRequest(good, 3, request{id: testPartition(9), sub: 1, credit: 2})
	f.Add(good)
	f.Add(appendHeader(appendCredits(bytes.Clone(good), []credit{{1, 1}, {4, 2}}), header{kind: frameCancel, channel: 1}))
	f.Add(appendRequest(bytes.Clone(good), 1, request{id: testPartition(1), sub: 0, credit: 2}))
	f.Fuzz(func(t *testing.T, b []byte) {
		e := New(Config{BufferSize: 16}, quietLog())
		p, err := e.NewPartition(t.Context(), testPartition(1), 2)
		if err != nil {
			t.Fatal(err)
		}
		conn, other := net.Pipe()
		defer other.Close()
		s := &serverConn{env: e, conn: conn, peer: "fuzz", log: quietLog(), kick: make(chan struct{}, 1), streams: map[uint32]*stream{}}
		s.close(s.readLoop(bufio.NewReader(bytes.NewReader(b))))
		if e.mu.Lock(); len(e.waiting) > 0 {
			t.Error("a request is left behind")
		}
		e.mu.Unlock()
		for _, c := range p.channels {
			if c.reader != nil {
				t.Errorf("channel %d still has a reader", c.index)
			}
		}
		p.Close()
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
}

// FuzzConsumerSide: whatever a producer sends, a gate holds no more than it granted, and either fails or goes on.
func FuzzConsumerSide(f *testing.F) {
	data := func(b []byte, channel uint32, backlog int, s string) []byte {
		return append(appendHeader(b, header{length: len(s), kind: frameData, backlog: backlog, channel: channel}), s...)
	}
	b := data(data(data(nil, 1, 9, "abc"), 2, 0, "d"), 1, 0, "e")
	f.Add(b)
	f.Add(data(data(data(data(data(bytes.Clone(b), 1, 0, "f"), 2, 0, "f"), 2, 0, "f"), 2, 0, "f"), 2, 0, "f"))
	f.Add(appendEvent(appendEvent(bytes.Clone(b), 1, &Event{Kind: EndOfPartition}), 2, &Event{Kind: EndOfPartition}))
	f.Add(appendFail(bytes.Clone(b), 2, ProducerGone, "user error"))
	f.Fuzz(func(t *testing.T, b []byte) {
		e := New(Config{BufferSize: 16, MaxFrame: 64, FloatingPerGate: 2}, quietLog())
		g := &Gate{env: e, notify: func() {}, floating: e.cfg.FloatingPerGate}
		c := &clientConn{env: e, addr: "fuzz", log: quietLog(), kick: make(chan struct{}, 1), stop: func() {}, channels: map[uint32]*remoteChannel{}}
		for i := range 2 {
			ch := &inputChannel{gate: g, index: i, source: Source{Partition: testPartition(i)}, remote: true}
			g.channels = append(g.channels, ch)
			c.add(ch)
		}
		kind, err := c.readLoop(bufio.NewReader(bytes.NewReader(b)))
		for i, ch := range g.channels {
			n := 0
			for _, en := range ch.queue.items[ch.queue.head:] {
				if en.data != nil {
					n++
				}
			}
			if n > e.cfg.BuffersPerChannel+e.cfg.FloatingPerGate || ch.granted < 0 || g.floating < 0 {
				t.Errorf("channel %d holds %d buffers (granted %d, floating %d)", i, n, ch.granted, g.floating)
			}
		}
		c.fail(kind, err)
		for {
			it, ok, err := g.Poll()
			if err != nil || !ok {
				break
			}
			g.Release(it)
		}
		g.Close()
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestEventsSurviveTheWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ev := &Event{
			Kind:       EventKind(rapid.IntRange(1, 3).Draw(t, "kind")),
			Checkpoint: rapid.Int64().Draw(t, "checkpoint"),
			Timestamp:  rapid.Int64().Draw(t, "timestamp"),
			Options:    rapid.Byte().Draw(t, "options"),
			Extra:      rapid.SliceOf(rapid.Byte()).Draw(t, "extra"),
		}
		got, err := decodeEvent(appendEvent(nil, 1, ev)[headerSize:])
		if err != nil {
			t.Fatal(err)
		}
		if len(ev.Extra) == 0 {
			ev.Extra = nil
		}
		if !reflect.DeepEqual(got, ev) {
			t.Fatalf("got %+v, want %+v", got, ev)
		}
	})
}
