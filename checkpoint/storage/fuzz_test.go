package storage

import (
	"bytes"
	"errors"
	"hash/crc32"
	"io"
	"strings"
	"testing"

	"github.com/thalweg/thalweg/checkpoint/metadata"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/state"
)

// Whatever stands in a _metadata file, reading it ends with a checkpoint that can be listed, or with an error that names the file.
func FuzzReadMetadata(f *testing.F) {
	good, err := metadata.Encode(checkpointWith(7, state.FileRef{Name: "7-a", Size: 4}, state.FileRef{Inline: []byte("abc"), Size: 3}))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:len(good)-3])
	f.Add([]byte("THLWGCKP"))
	reg := registry()
	const dir = "mem://fuzz/ckp/chk-7"
	f.Fuzz(func(t *testing.T, b []byte) {
		fsys, p, err := reg.Resolve(t.Context(), dir+"/"+MetadataName)
		if err == nil {
			err = fs.WriteFile(t.Context(), fsys, p, b, true)
		}
		if err != nil {
			t.Fatal(err)
		}
		c, err := ReadMetadata(t.Context(), reg, dir)
		if err != nil {
			if !strings.Contains(err.Error(), dir+"/"+MetadataName) {
				t.Fatalf("which file it is, is not said: %v", err)
			}
			return
		}
		c.Refs(func(r *state.FileRef) {
			if uri, err := Resolve(r.Base, r.Name); err == nil && !strings.HasPrefix(uri, "mem://fuzz/") {
				t.Fatalf("%q leads to %s", r.Name, uri)
			}
		})
	})
}

// What a state file holds is read as it was written, or with an error that names the file, however it is read in pieces.
func FuzzSource(f *testing.F) {
	f.Add([]byte("content"), []byte("content"), uint8(3))
	f.Add([]byte("content"), []byte("conten"), uint8(100))
	f.Add([]byte("content"), []byte("contents"), uint8(1))
	f.Add([]byte{}, []byte("x"), uint8(1))
	reg := registry()
	f.Fuzz(func(t *testing.T, written, there []byte, piece uint8) {
		fsys, p, err := reg.Resolve(t.Context(), "mem://fuzz/ckp/chk-1/1-x")
		if err == nil {
			err = fs.WriteFile(t.Context(), fsys, p, there, true)
		}
		if err != nil {
			t.Fatal(err)
		}
		ref := state.FileRef{Name: "1-x", Base: "mem://fuzz/ckp/chk-1", Size: int64(len(written)), CRC32C: crc32.Checksum(written, castagnoli)}
		r, err := NewSource(reg).Open(t.Context(), ref)
		if err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		_, err = io.CopyBuffer(&got, struct{ io.Reader }{r}, make([]byte, 1+int(piece)))
		if cerr := r.Close(); cerr != nil {
			t.Fatal(cerr)
		}
		if err == nil && !bytes.Equal(got.Bytes(), written) && crc32.Checksum(got.Bytes(), castagnoli) != ref.CRC32C {
			t.Fatalf("%q was read as %q", written, got.Bytes())
		}
		var damage *StateFileError
		if err != nil && (!errors.As(err, &damage) || !strings.Contains(err.Error(), "mem://fuzz/ckp/chk-1/1-x")) {
			t.Fatal(err)
		}
	})
}

// Names lead nowhere but below the file system that they are relative in, and back.
func FuzzNames(f *testing.F) {
	f.Add("hdfs://nn:8020/ckp/j/chk-7", "../shared/7-abc")
	f.Add("/a", "../../..")
	f.Add("file:///a/b", "c//d")
	f.Fuzz(func(t *testing.T, base, name string) {
		uri, err := Resolve(base, name)
		if err != nil {
			return
		}
		root, _, _ := split(clean(base))
		if !strings.HasPrefix(uri, root+"/") {
			t.Fatalf("%q in %q leads to %q", name, base, uri)
		}
		if rel, err := Relative(base, uri); err == nil {
			if again, err := Resolve(base, rel); err != nil || again != uri {
				t.Fatalf("%q is %q, which is %q (%v)", uri, rel, again, err)
			}
		}
		_, _ = FileCheckpoint(name)
		if id, ok := checkpointID(name); ok && CheckpointDir("", id) != "/"+name {
			t.Fatalf("%q is checkpoint %d", name, id)
		}
	})
}
