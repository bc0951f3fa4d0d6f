package inspect_test

import (
	"encoding/binary"
	"hash/crc32"
	"testing"

	"github.com/thalweg/thalweg/checkpoint/inspect"
	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/mem"
	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
)

// Metadata of any content with a right checksum can be listed, and its states read, or an error says why not.
func FuzzOperators(f *testing.F) {
	cp := metadata.Checkpoint{Operators: []metadata.Operator{{Name: "op", Parallelism: 1, MaxParallelism: 4, Subtasks: []metadata.Subtask{{
		Keyed: []state.Handle{{Format: "canonical", Range: state.Range{End: 4}, Tables: []state.TableMeta{{Name: "t", Kind: "table", Key: serde.Schema{Kind: "string"}, Value: serde.Schema{Kind: "int64"}}},
			Files: []state.File{{Key: "state", Ref: state.FileRef{Inline: []byte("TWKS"), Size: 4}}}, Offsets: []int64{0, 1, 2, 3, 4}}},
		Lists: []metadata.ListState{{Name: "l", Items: [][]byte{[]byte("x")}}}}}}}}
	b, err := metadata.Encode(cp)
	if err != nil {
		f.Fatal(err)
	}
	const header = 24
	f.Add(b[header:])
	reg := &fs.Registry{}
	mem.Register(reg)
	f.Fuzz(func(t *testing.T, body []byte) {
		file := append(append(make([]byte, 0, header+len(body)), b[:header]...), body...)
		binary.LittleEndian.PutUint64(file[12:], uint64(len(body)))
		binary.LittleEndian.PutUint32(file[20:], crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)))
		fsys, p, err := reg.Resolve(t.Context(), "mem://fuzz/chk-1/_metadata")
		if err == nil {
			err = fs.WriteFile(t.Context(), fsys, p, file, true)
		}
		if err != nil {
			t.Fatal(err)
		}
		s, err := inspect.Open(t.Context(), reg, "mem://fuzz/chk-1")
		if err != nil {
			return
		}
		defer func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}()
		for _, o := range s.Operators() {
			for i := range o.States {
				if o.States[i].Format == "pebble" {
					continue // state/pebble has fuzz tests of its own
				}
				_ = s.Each(t.Context(), o.States[i], func(inspect.Entry) error { return nil })
			}
		}
	})
}
