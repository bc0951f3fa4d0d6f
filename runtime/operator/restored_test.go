package operator

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Restored data gives each subtask its own records, in order, and no watermark.
func TestSift(t *testing.T) {
	typ, err := TypeOf[string]()
	if err != nil {
		t.Fatal(err)
	}
	codec := typ.(*recordType[string]).codec
	rapid.Check(t, func(t *rapid.T) {
		subtasks := rapid.IntRange(1, 4).Draw(t, "subtasks")
		custom := rapid.Bool().Draw(t, "custom")
		of := func(s string, h uint32) int {
			if custom {
				return len(s) % subtasks
			}
			return int(h) % subtasks
		}
		var all []byte
		want := make([][]string, subtasks)
		for range rapid.IntRange(0, 20).Draw(t, "elements") {
			switch rapid.IntRange(0, 5).Draw(t, "kind") {
			case 0:
				all = append(all, tagWatermark)
				all = binary.LittleEndian.AppendUint64(all, rapid.Uint64().Draw(t, "watermark"))
			case 1:
				all = append(all, rapid.SampledFrom([]byte{tagIdle, tagActive}).Draw(t, "idleness"))
			default:
				s, h := rapid.StringN(0, 9, -1).Draw(t, "record"), rapid.Uint32Range(0, 9).Draw(t, "hash")
				tag := byte(tagHash)
				if rapid.Bool().Draw(t, "time") {
					tag |= tagTime
				}
				all = append(all, tag)
				if tag&tagTime != 0 {
					all = binary.LittleEndian.AppendUint64(all, 7)
				}
				all = codec.Append(binary.LittleEndian.AppendUint32(all, h), s)
				want[of(s, h)] = append(want[of(s, h)], s)
			}
		}
		for i := range subtasks {
			var data []byte
			var err error
			if custom {
				measure := typ.Restored(CustomPartitioner[string]{Choose: func(s string, n int) int { return len(s) % n }}, subtasks)
				data, err = Sift(all, measure, nil, i)
			} else {
				data, err = Sift(all, typ.Restored(nil, subtasks), func(h uint32) bool { return int(h)%subtasks == i }, -1)
			}
			if err != nil {
				t.Fatal(err)
			}
			var got heard
			r, err := typ.Reader(Receiver[string](&got), 1)
			if err != nil {
				t.Fatal(err)
			}
			if rest, err := r.Read(0, data); err != nil || len(rest) > 0 {
				t.Fatal(rest, err)
			}
			if !slices.Equal(got.records, want[i]) || got.others > 0 {
				t.Fatalf("subtask %d: %q and %d watermarks, want %q", i, got.records, got.others, want[i])
			}
		}
		if cut := rapid.IntRange(0, len(all)).Draw(t, "cut"); cut < len(all) {
			if _, err := Sift(all[:cut], typ.Restored(nil, 1), nil, -1); err != nil && !errors.Is(err, ErrCorrupt) {
				t.Fatal(err)
			}
		}
	})
}

// A record without the hash of its key would go to the state of another one.
func TestSiftRefusesRecordsWithoutKey(t *testing.T) {
	typ, err := TypeOf[string]()
	if err != nil {
		t.Fatal(err)
	}
	data := typ.(*recordType[string]).codec.Append([]byte{0}, "x")
	if _, err := Sift(data, typ.Restored(nil, 1), func(uint32) bool { return true }, -1); !errors.Is(err, ErrUnkeyed) {
		t.Fatal(err)
	}
	if got, err := Sift(data, typ.Restored(nil, 1), nil, -1); err != nil || len(got) != len(data) {
		t.Fatal(got, err)
	}
}

// heard takes what comes.
type heard struct {
	records []string
	others  int
}

func (h *heard) Process(v string, _ Meta) error {
	h.records = append(h.records, v)
	return nil
}
func (h *heard) Watermark(int64) error { h.others++; return nil }
func (h *heard) Idle(bool) error       { h.others++; return nil }
