package savepoint

import (
	"encoding/binary"
	"hash/crc32"
	"testing"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/state"
)

// Metadata with a right checksum and any content fits a job, or is refused: nothing that is dealt out to its subtasks is a surprise to them.
func FuzzRestore(f *testing.F) {
	cp := metadata.Checkpoint{ID: 3, Operators: []metadata.Operator{
		{ID: op(1), UID: "a", Parallelism: 2, MaxParallelism: 4}, keyedState(2, "b", 2, 4), listState(3, "c", "x", "y"),
	}, Coordinators: map[graph.OperatorID][]byte{op(1): []byte("s")}, Exchanges: []metadata.Exchange{{From: op(1), To: op(2), Type: "T#1", Producers: 2, Consumers: 2,
		Parts: []metadata.Part{{Producer: 1, Consumer: 1, Segment: metadata.Segment{File: state.FileRef{Name: "3-x", Size: 9}, Offset: 2, Length: 7}}}}}}
	b, err := metadata.Encode(cp)
	if err != nil {
		f.Fatal(err)
	}
	const header = 24
	f.Add(b[header:], uint8(2), uint8(3), uint8(4), true)
	f.Add(b[header:], uint8(1), uint8(1), uint8(0), false)
	f.Fuzz(func(t *testing.T, body []byte, producers, consumers, maxParallelism uint8, allow bool) {
		file := append(append(make([]byte, 0, header+len(body)), b[:header]...), body...)
		binary.LittleEndian.PutUint64(file[12:], uint64(len(body)))
		binary.LittleEndian.PutUint32(file[20:], crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)))
		cp, err := metadata.Decode(file, "mem://x/chk-3")
		if err != nil {
			return
		}
		g := edge(graph.Hash, 1+int(producers%8), 1+int(consumers%8), int(maxParallelism))
		g.Vertices[1].Operators[0].Keyed, g.Vertices[1].Operators[0].Stateful = true, true
		if maxParallelism == 0 {
			for i := range g.Vertices {
				g.Vertices[i].MaxDerived = true
			}
		}
		adopted, err := Check(cp, g, allow)
		if err != nil || CheckBackend(cp, g, "hashmap") != nil {
			return
		}
		g = adopted.Apply(g)
		out, err := Assign(cp, g)
		if err != nil {
			return
		}
		for i := range g.Vertices {
			v := &g.Vertices[i]
			if len(out[v.ID]) != v.Parallelism {
				t.Fatalf("%d shares for %d subtasks", len(out[v.ID]), v.Parallelism)
			}
			for j, task := range out[v.ID] {
				if _, err := metadata.EncodeTask(task); err != nil {
					t.Fatal(err)
				}
				for _, x := range task.InFlight {
					if x.Channel < 0 || x.Channel >= g.Vertices[0].Parallelism || x.Index != 0 {
						t.Fatalf("subtask %d gets %+v", j, x)
					}
				}
			}
		}
	})
}
