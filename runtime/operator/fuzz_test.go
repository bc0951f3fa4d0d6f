package operator

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/config"
)

// Records that an unaligned checkpoint found under way are taken apart, or refused with ErrCorrupt; what is taken is read again whole.
func FuzzSift(f *testing.F) {
	typ, err := TypeOf[string]()
	if err != nil {
		f.Fatal(err)
	}
	record := typ.(*recordType[string]).codec.Append([]byte{tagHash, 1, 0, 0, 0}, "x")
	f.Add(append([]byte{tagWatermark, 1, 2, 3, 4, 5, 6, 7, 8, tagIdle, tagActive}, record...), uint8(0))
	f.Add(record[:len(record)-1], uint8(1))
	f.Add([]byte{tagTime | tagHash, 1}, uint8(2))
	f.Fuzz(func(t *testing.T, data []byte, how uint8) {
		measure := typ.Restored(CustomPartitioner[string]{Choose: func(s string, n int) int { return len(s) % n }}, 3)
		var wants func(uint32) bool
		if how%2 == 0 {
			wants = func(h uint32) bool { return h%2 == 0 }
		}
		got, err := Sift(data, measure, wants, int(how%4)-1)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrUnkeyed) {
				t.Fatal(err)
			}
			return
		}
		var in heard
		r, err := typ.Reader(Receiver[string](&in), 1)
		if err != nil {
			t.Fatal(err)
		}
		if rest, err := r.Read(0, got); err != nil || len(rest) > 0 || in.others > 0 {
			t.Fatalf("%d bytes are left, %d watermarks, %v", len(rest), in.others, err)
		}
	})
}

// Whatever comes through an exchange is read, or refused with ErrCorrupt.
func FuzzReader(f *testing.F) {
	type pair struct {
		A string
		B []int32
	}
	typ, err := TypeOf[pair]()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(append([]byte{tagTime}, typ.(*recordType[pair]).codec.Append(make([]byte, 8), pair{"a", []int32{1}})...))
	f.Add([]byte{tagWatermark, 0})
	f.Add([]byte{0xff})
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := typ.Reader(Receiver[pair](&sink[pair]{}), 1)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Read(0, data); err != nil && !errors.Is(err, ErrCorrupt) {
			t.Fatal(err)
		}
	})
}

// Operators that are restored with lists of any content open, or say which of their state cannot be decoded; what opens can be stored again.
func FuzzOperatorState(f *testing.F) {
	f.Add(uint8(0), []byte("12345678"), []byte{})
	f.Add(uint8(1), bytes.Repeat([]byte{1}, 16), binary.LittleEndian.AppendUint64(nil, 1<<63))
	f.Add(uint8(2), append(make([]byte, 8), 2), []byte{})
	f.Add(uint8(3), []byte("\x02x"), []byte(`{"name":"l","kind":"list","schema":{"kind":"string"}}`))
	f.Add(uint8(4), []byte("\x02x"), []byte(`{"name":"u","kind":"union list","schema":{"kind":"int64"}}`))
	f.Add(uint8(5), []byte("\x02x\x07"), []byte(`{"name":"b","kind":"broadcast","schema":{"key":{"kind":"string"},"elem":{"kind":"int64"}}}`))
	f.Add(uint8(6), []byte(`{"ID":"s"}`), []byte{})
	f.Add(uint8(7), []byte(`{"checkpoint":1,"items":["AA=="]}`), []byte("w"))
	var saw []string
	function := func(open string) Factory {
		return Process(func() ProcessFunction[int, int] { return &lists{open: open, saw: &saw} })
	}
	split, all := metadata.Split, metadata.Union
	cases := []struct {
		f     Factory
		out   any
		lists [2]metadata.ListState // without items
	}{
		{caseFactory(f, tumbling(10, 0), 0, nil), Receiver[string](&sink[string]{}), [2]metadata.ListState{{Name: watermarkState, Mode: all}, {Name: nextIDState, Mode: all}}},
		{caseFactory(f, sessionsOf(10), 0, func() Trigger[reading] { return NewCountTrigger[reading](1) }), Receiver[string](&sink[string]{}), [2]metadata.ListState{{Name: watermarkState, Mode: all}, {Name: nextIDState, Mode: all}}},
		{AsyncWait(func() AsyncFunction[int64, string] {
			return asked{invoke: func(context.Context, int64) ([]string, error) { return nil, nil }}
		}, AsyncOptions[string]{Capacity: 1}),
			Receiver[string](&sink[string]{}), [2]metadata.ListState{{Name: asyncState}, {Name: "unknown"}}},
		{function("l"), Receiver[int](&sink[int]{}), [2]metadata.ListState{{Name: userPrefix + "l", Mode: split}, {Name: schemasState, Mode: all}}},
		{function("u"), Receiver[int](&sink[int]{}), [2]metadata.ListState{{Name: userPrefix + "u", Mode: all}, {Name: schemasState, Mode: all}}},
		{function("b"), Receiver[int](&sink[int]{}), [2]metadata.ListState{{Name: userPrefix + "b", Mode: all}, {Name: schemasState, Mode: all}}},
		{Source[int64](&played{available: make(chan struct{})}, Watermarks[int64]{}), Receiver[int64](&sink[int64]{}), [2]metadata.ListState{{Name: splitsState}, {Name: splitsState}}},
		{Sink[int64](badCommits{func() {}}), nil, [2]metadata.ListState{{Name: metadata.PreparedState}, {Name: metadata.PreparedByAll, Mode: all}}},
	}
	f.Fuzz(func(t *testing.T, which uint8, first, second []byte) {
		c := cases[int(which)%len(cases)]
		ctx := &Context{Services: &services{}, Name: "op", Parallelism: 1, MaxParallelism: 4, Config: config.Configuration{"state.backend.type": "hashmap"}, Logger: zerolog.Nop(),
			Metrics: noMetrics{}, Mark: &Marker{}, StateDir: t.TempDir(), StateMemory: 32 << 20, Checkpointing: true}
		for i, item := range [][]byte{first, second} {
			l := c.lists[i]
			l.Items = [][]byte{item}
			ctx.State.Lists = append(ctx.State.Lists, l)
		}
		saw = nil
		op, err := c.f.New(ctx, c.out)
		if err != nil {
			return
		}
		if err = Open(t.Context(), op, ctx); err == nil {
			for _, mail := range ctx.Services.(*services).mails {
				_ = mail()
			}
			if s, err := Take(op, ctx, Barrier{ID: 1, Canonical: true}); err == nil {
				for _, k := range s.Keyed {
					k.Discard()
				}
			}
		}
		if err := op.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
