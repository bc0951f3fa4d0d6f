package storage

import (
	"bytes"
	"errors"
	"hash/crc32"
	"testing"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/mem"
	"github.com/thalweg/thalweg/state"
)

// What was under way is read as it was written, or with an error that says which file it is not in; whatever the metadata says about its size,
// no more memory is taken than the file has bytes.
func FuzzReadSegment(f *testing.F) {
	f.Add([]byte("before-inside-after"), int64(7), int64(6), []byte("inside"), false)
	f.Add([]byte("cut"), int64(1), int64(1)<<60, []byte("inside"), false)
	f.Add([]byte("inside"), int64(0), int64(6), []byte("inside"), true)
	f.Add([]byte("inside"), int64(3), int64(-1), []byte{}, true)
	reg := &fs.Registry{}
	mem.Register(reg)
	f.Fuzz(func(t *testing.T, content []byte, offset, length int64, want []byte, inline bool) {
		fsys, p, err := reg.Resolve(t.Context(), "mem://fuzz/chk-1/1-x")
		if err == nil {
			err = fs.WriteFile(t.Context(), fsys, p, content, true)
		}
		if err != nil {
			t.Fatal(err)
		}
		s := metadata.Segment{Offset: offset, Length: length, CRC32C: crc32.Checksum(want, castagnoli)}
		s.File = state.FileRef{Name: "1-x", Base: "mem://fuzz/chk-1", Size: 1 << 62}
		if inline {
			s.File = state.FileRef{Inline: content, Size: int64(len(content)), CRC32C: crc32.Checksum(content, castagnoli)}
		}
		got, err := ReadSegment(t.Context(), reg, &s)
		var damage *StateFileError
		switch {
		case err == nil && !bytes.Equal(got, want) && crc32.Checksum(got, castagnoli) != s.CRC32C:
			t.Fatalf("%q, want %q", got, want)
		case err != nil && !errors.As(err, &damage):
			t.Fatal(err)
		}
	})
}
