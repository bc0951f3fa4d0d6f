package metadata

import (
	"fmt"
	"hash/crc32"
	"time"

	"pgregory.net/rapid"

	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
)

// Generators of arbitrary metadata.

func drawID(t *rapid.T, label string) (id graph.ID) {
	copy(id[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, label))
	return id
}

func some[T any](t *rapid.T, label string, limit int, one func() T) (out []T) {
	for range rapid.IntRange(0, limit).Draw(t, label) {
		out = append(out, one())
	}
	return out
}

func drawBytes(t *rapid.T, label string) []byte {
	return rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, label)
}

func drawText(t *rapid.T, label string) string { return rapid.StringN(0, 12, -1).Draw(t, label) }

func drawSchema(t *rapid.T, depth int) serde.Schema {
	s := serde.Schema{Kind: rapid.SampledFrom([]string{"", "int64", "string", "struct", "map"}).Draw(t, "kind"), Name: drawText(t, "type"), Len: rapid.IntRange(0, 9).Draw(t, "len")}
	if depth == 0 {
		return s
	}
	s.Fields = some(t, "fields", 3, func() serde.SchemaField {
		return serde.SchemaField{Name: drawText(t, "field"), Type: drawSchema(t, depth-1)}
	})
	if rapid.Bool().Draw(t, "elem") {
		e := drawSchema(t, depth-1)
		s.Elem = &e
	}
	if rapid.Bool().Draw(t, "key") {
		k := drawSchema(t, depth-1)
		s.Key = &k
	}
	return s
}

func drawRef(t *rapid.T, base string) state.FileRef {
	r := state.FileRef{Size: rapid.Int64Range(0, 1<<40).Draw(t, "size"), CRC32C: rapid.Uint32().Draw(t, "crc")}
	if rapid.Bool().Draw(t, "inline") {
		r.Inline = drawBytes(t, "content")
		r.Size, r.CRC32C = int64(len(r.Inline)), crc32.Checksum(r.Inline, castagnoli)
		return r
	}
	r.Name = rapid.StringMatching(`(\.\./shared/)?[0-9]-[0-9a-f]{8}`).Draw(t, "name")
	r.Scope = rapid.SampledFrom([]state.Scope{state.Exclusive, state.Shared}).Draw(t, "scope")
	r.Base = base
	if r.Part = rapid.Bool().Draw(t, "part"); r.Part {
		r.Offset = rapid.Int64Range(0, 1<<40).Draw(t, "offset in the file")
	}
	return r
}

func drawHandle(t *rapid.T, base func() string) state.Handle {
	h := state.Handle{Format: rapid.SampledFrom([]string{"canonical", "pebble"}).Draw(t, "format"), Size: rapid.Int64().Draw(t, "size"), New: rapid.Int64().Draw(t, "new")}
	h.Range.Start = rapid.IntRange(0, 200).Draw(t, "start")
	h.Range.End = h.Range.Start + rapid.IntRange(0, 200).Draw(t, "groups")
	h.Tables = some(t, "tables", 2, func() state.TableMeta {
		return state.TableMeta{Name: drawText(t, "table"), Kind: "table", Stored: rapid.Int64().Draw(t, "stored"), Key: drawSchema(t, 1), Value: drawSchema(t, 2)}
	})
	h.Files = some(t, "files", 3, func() state.File {
		return state.File{Key: drawText(t, "sst"), Ref: drawRef(t, base())}
	})
	at := int64(0)
	h.Offsets = some(t, "offsets", 5, func() int64 { at += rapid.Int64Range(0, 1000).Draw(t, "step"); return at })
	return h
}

func drawSubtask(t *rapid.T, i int, base func() string) Subtask {
	return Subtask{Index: i,
		Keyed: some(t, "keyed", 2, func() state.Handle { return drawHandle(t, base) }),
		Lists: some(t, "lists", 2, func() ListState {
			return ListState{Name: drawText(t, "list"), Mode: rapid.SampledFrom([]Mode{Split, Union}).Draw(t, "mode"),
				Items: some(t, "items", 4, func() []byte { return drawBytes(t, "item") })}
		})}
}

func drawCheckpoint(t *rapid.T, base string) Checkpoint {
	c := Checkpoint{ID: rapid.Int64().Draw(t, "id"), Savepoint: rapid.Bool().Draw(t, "savepoint"), Canonical: rapid.Bool().Draw(t, "canonical"),
		Trigger: time.UnixMilli(rapid.Int64Range(0, 1<<45).Draw(t, "trigger")).UTC(), JobID: graph.JobID{ID: drawID(t, "job")},
		JobName: drawText(t, "job name"), Product: "1.2.3"}
	for i := range rapid.IntRange(0, 4).Draw(t, "config") {
		if c.Config == nil {
			c.Config = map[string]string{}
		}
		c.Config[fmt.Sprintf("key-%d", i)] = drawText(t, "value")
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "coordinators") {
		if c.Coordinators == nil {
			c.Coordinators = map[graph.OperatorID][]byte{}
		}
		c.Coordinators[graph.OperatorID{ID: graph.ID{byte(i)}}] = drawBytes(t, "coordinator")
	}
	c.Operators = some(t, "operators", 3, func() Operator {
		o := Operator{ID: graph.OperatorID{ID: drawID(t, "operator")}, UID: drawText(t, "uid"), Name: drawText(t, "name"),
			Parallelism: rapid.IntRange(1, 5).Draw(t, "p"), MaxParallelism: rapid.IntRange(1, 1<<15).Draw(t, "max")}
		i := -1
		o.Subtasks = some(t, "subtasks", 3, func() Subtask { i++; return drawSubtask(t, i, func() string { return base }) })
		return o
	})
	c.Exchanges = some(t, "exchanges", 2, func() Exchange {
		x := Exchange{From: graph.OperatorID{ID: drawID(t, "from")}, Tag: drawText(t, "tag"), To: graph.OperatorID{ID: drawID(t, "to")},
			Input: rapid.IntRange(0, 1).Draw(t, "input"), Nth: rapid.IntRange(0, 2).Draw(t, "nth"), Type: drawText(t, "type"),
			Producers: rapid.IntRange(1, 5).Draw(t, "producers"), Consumers: rapid.IntRange(1, 5).Draw(t, "consumers")}
		x.Parts = some(t, "parts", 3, func() Part {
			return Part{Producer: rapid.IntRange(0, x.Producers-1).Draw(t, "producer"), Consumer: rapid.IntRange(0, x.Consumers-1).Draw(t, "consumer"),
				Sent: rapid.Bool().Draw(t, "sent"), Rank: rapid.IntRange(0, 3).Draw(t, "rank"), Segment: drawSegment(t, base)}
		})
		return x
	})
	return c
}

func drawSegment(t *rapid.T, base string) Segment {
	s := Segment{File: drawRef(t, base), CRC32C: rapid.Uint32().Draw(t, "crc of the piece")}
	s.Offset = rapid.Int64Range(0, s.File.Size).Draw(t, "offset")
	s.Length = rapid.Int64Range(0, s.File.Size-s.Offset).Draw(t, "length")
	return s
}

func drawBase(t *rapid.T) string {
	return rapid.SampledFrom([]string{"", "hdfs://nn:8020/ckp/j/chk-1", "file:///tmp/s"}).Draw(t, "base")
}

func drawTask(t *rapid.T) Task {
	return Task{Operators: some(t, "operators", 3, func() TaskOperator {
		return TaskOperator{ID: graph.OperatorID{ID: drawID(t, "operator")}, State: drawSubtask(t, rapid.IntRange(0, 9).Draw(t, "index"),
			func() string { return drawBase(t) })}
	}), InFlight: some(t, "in flight", 3, func() InFlight {
		return InFlight{Sent: rapid.Bool().Draw(t, "sent"), Rank: rapid.IntRange(0, 3).Draw(t, "rank"), Index: rapid.IntRange(0, 3).Draw(t, "gate"), Channel: rapid.IntRange(0, 9).Draw(t, "channel"),
			Type: drawText(t, "type"), Sift: rapid.SampledFrom([]Sift{SiftNone, SiftKeys, SiftChosen}).Draw(t, "sift"), Segment: drawSegment(t, drawBase(t))}
	})}
}
