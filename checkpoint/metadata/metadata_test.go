package metadata

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"maps"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/thalweg/thalweg/runtime/graph"
	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWhatIsEncodedIsDecoded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const base = "hdfs://nn:8020/ckp/j/chk-7"
		want := drawCheckpoint(t, base)
		b, err := Encode(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Decode(b, base)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatal(diff)
		}
		again, err := Encode(got)
		if err != nil || !bytes.Equal(b, again) {
			t.Fatalf("encoded again it differs (%v)", err)
		}
	})
}

func TestTaskKeepsWhereItsFilesAre(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawTask(t)
		b, err := EncodeTask(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeTask(b)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatal(diff)
		}
	})
	if got, err := DecodeTask(nil); err != nil || len(got.Operators) > 0 {
		t.Fatalf("%+v, %v; want a task without state", got, err)
	}
}

func sample() Checkpoint {
	return Checkpoint{ID: 42, Trigger: time.UnixMilli(1_700_000_000_123).UTC(), JobID: graph.JobID{ID: graph.ID{1, 2}}, JobName: "order-totals",
		Product: "0.1.0", Config: map[string]string{"parallelism.default": "2"},
		Coordinators: map[graph.OperatorID][]byte{{ID: graph.ID{9}}: []byte("splits")},
		Operators: []Operator{{ID: graph.OperatorID{ID: graph.ID{5}}, UID: "customer-totals", Name: "Window", Parallelism: 2, MaxParallelism: 128,
			Subtasks: []Subtask{{Index: 0, Keyed: []state.Handle{{Format: "canonical", Range: state.Range{Start: 0, End: 64}, Size: 3, New: 3,
				Tables: []state.TableMeta{{Name: "panes", Kind: "table", Stored: 1, Key: serde.Schema{Kind: "string"},
					Value: serde.Schema{Kind: "struct", Name: "main.acc", Fields: []serde.SchemaField{{Name: "Sum", Type: serde.Schema{Kind: "int64"}}}}}},
				Files: []state.File{{Ref: state.FileRef{Inline: []byte("abc"), Size: 3, CRC32C: crc32.Checksum([]byte("abc"), castagnoli)}},
					{Key: "7.sst", Ref: state.FileRef{Name: "../shared/41-0b", Scope: state.Shared, Size: 9, CRC32C: 5, Part: true, Offset: 77}}},
				Offsets: []int64{0, 3}}},
				Lists: []ListState{{Name: "offsets", Items: [][]byte{[]byte("p0")}}}}}}},
		Exchanges: []Exchange{{From: graph.OperatorID{ID: graph.ID{4}}, Tag: "late", To: graph.OperatorID{ID: graph.ID{5}}, Input: 1, Type: "main.Order#01020304",
			Producers: 3, Consumers: 2, Parts: []Part{{Producer: 2, Consumer: 1, Sent: true, Rank: 1,
				Segment: Segment{File: state.FileRef{Name: "42-0a", Size: 100, CRC32C: 7}, Offset: 60, Length: 40, CRC32C: 8}}}}}}
}

// golden is a file of testdata.
func golden(t *testing.T, name string) (b []byte) {
	t.Helper()
	dump, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(dump)) {
		if len(line) < 60 {
			continue // the end's offset
		}
		row, err := hex.DecodeString(strings.ReplaceAll(line[9:59], " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		b = append(b, row...)
	}
	return b
}

// Snapshots of version 2 hold no parts of files, and those of version 1 nothing that was under way.
func TestFormerVersionsAreRead(t *testing.T) {
	want := sample()
	h := &want.Operators[0].Subtasks[0].Keyed[0]
	h.Files = h.Files[:1]
	for _, name := range []string{"v2.hex", "v1.hex"} {
		if name == "v1.hex" {
			want.Exchanges = nil
		}
		got, err := Decode(golden(t, name), "")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("%s: %s", name, diff)
		}
	}
}

// The format is a contract with savepoints that exist: a change of these bytes needs a new version, and a decoder that reads both.
func TestGoldenBytes(t *testing.T) {
	b, err := Encode(sample())
	if err != nil {
		t.Fatal(err)
	}
	const file = "testdata/v3.hex"
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(file, []byte(hex.Dump(b)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), hex.Dump(b)); diff != "" {
		t.Fatal(diff)
	}
}

func TestDamageIsNamed(t *testing.T) {
	good, err := Encode(sample())
	if err != nil {
		t.Fatal(err)
	}
	change := func(i int, v byte) []byte { b := slices.Clone(good); b[i] = v; return b }
	for name, c := range map[string]struct {
		in   []byte
		want error
	}{
		"empty":         {nil, ErrTruncated},
		"half a magic":  {good[:5], ErrTruncated},
		"half a header": {good[:15], ErrTruncated},
		"half a body":   {good[:len(good)/2], ErrTruncated},
		"one byte less": {good[:len(good)-1], ErrTruncated},
		"one byte more": {append(slices.Clone(good), 0), ErrCorrupt},
		"a bit flipped": {change(len(good)/2, good[len(good)/2]^4), ErrCorrupt},
		"another file":  {[]byte("PAR1 and so on and so on"), ErrFormat},
		"next version":  {change(8, Version+1), ErrVersion},
		"version 0":     {change(8, 0), ErrVersion},
		"unknown flags": {change(10, 1), ErrVersion},
	} {
		if _, err := Decode(c.in, ""); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	for n := range good {
		if _, err := Decode(good[:n], ""); err == nil {
			t.Fatalf("%d of %d bytes were decoded", n, len(good))
		}
	}
}

func TestWhatDoesNotFitIsNotEncoded(t *testing.T) {
	deep := serde.Schema{Kind: "slice"}
	for range maxSchemaDepth + 1 {
		inner := deep
		deep = serde.Schema{Kind: "slice", Elem: &inner}
	}
	for name, h := range map[string]state.Handle{
		"range":          {Range: state.Range{Start: 3, End: 1}},
		"schema":         {Tables: []state.TableMeta{{Key: deep}}},
		"name and bytes": {Files: []state.File{{Ref: state.FileRef{Name: "x", Inline: []byte{1}}}}},
	} {
		c := Checkpoint{Operators: []Operator{{Subtasks: []Subtask{{Keyed: []state.Handle{h}}}}}}
		if _, err := Encode(c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// allocated is what fn allocates, bytes.
func allocated(fn func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	fn()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

const (
	allocFactor = 8
	allocSlack  = 32 << 10 // what small inputs and the test's own machinery take
)

// seal puts a header with the right checksum before body, so that fuzzing gets past it.
func seal(body []byte) []byte {
	b := make([]byte, headerSize, headerSize+len(body))
	copy(b, magic)
	binary.LittleEndian.PutUint16(b[8:], Version)
	binary.LittleEndian.PutUint64(b[12:], uint64(len(body)))
	binary.LittleEndian.PutUint32(b[20:], crc32.Checksum(body, castagnoli))
	return append(b, body...)
}

func FuzzDecode(f *testing.F) {
	good, err := Encode(sample())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good[headerSize:])
	f.Add(bytes.Repeat([]byte{1, 0, 0, 0}, 64))
	f.Fuzz(func(t *testing.T, body []byte) {
		_, _ = Decode(body, "b")
		in := seal(body)
		var c Checkpoint
		var err error
		if got, limit := allocated(func() { c, err = Decode(in, "hdfs://nn/x") }), uint64(allocFactor*len(in)+allocSlack); got > limit {
			t.Fatalf("%d bytes of input took %d bytes, want at most %d", len(in), got, limit)
		}
		if err != nil {
			return
		}
		again, err := Encode(c)
		if err != nil {
			t.Fatalf("decoded but not encoded again: %v", err)
		}
		if !bytes.Equal(in, again) {
			t.Fatal("decoded and encoded again it differs")
		}
	})
}

func FuzzDecodeTask(f *testing.F) {
	c := sample()
	b, err := EncodeTask(Task{Operators: []TaskOperator{{ID: c.Operators[0].ID, State: c.Operators[0].Subtasks[0]}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte{1, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, in []byte) {
		var task Task
		var err error
		if got, limit := allocated(func() { task, err = DecodeTask(in) }), uint64(allocFactor*len(in)+allocSlack); got > limit {
			t.Fatalf("%d bytes of input took %d bytes, want at most %d", len(in), got, limit)
		}
		if err == nil {
			if _, err := EncodeTask(task); err != nil {
				t.Fatalf("decoded but not encoded again: %v", err)
			}
		}
	})
}

// The worst that a well-formed input of each list can ask for.
func TestHostileInputsTakeLittleMemory(t *testing.T) {
	const n = 20000
	empty := make([][]byte, n)
	config := map[string]string{}
	for i := range n {
		config[string([]byte{byte(i >> 8), byte(i)})] = ""
	}
	var deep serde.Schema
	deep.Fields = make([]serde.SchemaField, n)
	handle := func(h state.Handle) Checkpoint {
		return Checkpoint{Operators: []Operator{{Subtasks: []Subtask{{Keyed: []state.Handle{h}}}}}}
	}
	coord := map[graph.OperatorID][]byte{}
	for i := range n {
		coord[graph.OperatorID{ID: graph.ID{byte(i >> 8), byte(i)}}] = nil
	}
	for name, c := range map[string]Checkpoint{
		"items":        {Operators: []Operator{{Subtasks: []Subtask{{Lists: []ListState{{Items: empty}}}}}}},
		"lists":        {Operators: []Operator{{Subtasks: []Subtask{{Lists: make([]ListState, n)}}}}},
		"subtasks":     {Operators: []Operator{{Subtasks: make([]Subtask, n)}}},
		"operators":    {Operators: make([]Operator, n)},
		"handles":      {Operators: []Operator{{Subtasks: []Subtask{{Keyed: make([]state.Handle, n)}}}}},
		"tables":       handle(state.Handle{Tables: make([]state.TableMeta, n)}),
		"files":        handle(state.Handle{Files: slices.Repeat([]state.File{{Ref: state.FileRef{Inline: []byte{}}}}, n)}),
		"offsets":      handle(state.Handle{Offsets: make([]int64, n)}),
		"fields":       handle(state.Handle{Tables: []state.TableMeta{{Key: deep}}}),
		"config":       {Config: config},
		"coordinators": {Coordinators: coord},
		"exchanges":    {Exchanges: make([]Exchange, n)},
		"parts": {Exchanges: []Exchange{{Producers: 1, Consumers: 1,
			Parts: slices.Repeat([]Part{{Segment: Segment{File: state.FileRef{Inline: []byte{}}}}}, n)}}},
	} {
		b, err := Encode(c)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got := allocated(func() { _, err = Decode(b, "") })
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got > uint64(allocFactor*len(b)+allocSlack) {
			t.Errorf("%s: %d bytes of input took %d, %.1f times as much", name, len(b), got, float64(got)/float64(len(b)))
		}
	}
}

func keyed(op Operator) (out []state.Handle) {
	for _, s := range op.Subtasks {
		out = append(out, s.Keyed...)
	}
	return out
}

// Every key group is restored by the subtask that owns it, from the handle that has it; list items are neither lost nor doubled.
func TestRedistributionLosesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		maxP := rapid.IntRange(1, 300).Draw(t, "max parallelism")
		oldP := rapid.IntRange(1, min(maxP, 12)).Draw(t, "old parallelism")
		newP := rapid.IntRange(1, min(maxP, 12)).Draw(t, "new parallelism")
		op := Operator{Name: "op", Parallelism: oldP, MaxParallelism: maxP}
		split, union := 0, 0
		for i := range oldP {
			s := Subtask{Index: i}
			if rapid.IntRange(0, 3).Draw(t, "keyed") > 0 {
				s.Keyed = []state.Handle{{Format: "canonical", Range: state.RangeOf(maxP, oldP, i)}}
			}
			item := func(n *int, kind byte) func() []byte {
				return func() []byte { *n++; return []byte{kind, byte(*n), byte(*n >> 8)} }
			}
			if items := some(t, "split", 5, item(&split, 's')); items != nil {
				s.Lists = append(s.Lists, ListState{Name: "s", Mode: Split, Items: items})
			}
			if items := some(t, "union", 3, item(&union, 'u')); items != nil {
				s.Lists = append(s.Lists, ListState{Name: "u", Mode: Union, Items: items})
			}
			op.Subtasks = append(op.Subtasks, s)
		}
		slices.Reverse(op.Subtasks) // their order in the metadata does not matter
		out, err := Redistribute(op, newP, maxP)
		if err != nil {
			t.Fatal(err)
		}
		if len(out) != newP {
			t.Fatalf("%d subtasks, want %d", len(out), newP)
		}
		stored := keyed(op)
		seen := map[string]int{}
		counts := make([]int, newP)
		for i, s := range out {
			if s.Index != i {
				t.Fatalf("subtask %d has index %d", i, s.Index)
			}
			r := state.RangeOf(maxP, newP, i)
			for g := r.Start; g < r.End; g++ {
				holds := func(h state.Handle) bool { return h.Range.Contains(g) }
				if slices.ContainsFunc(stored, holds) != slices.ContainsFunc(s.Keyed, holds) {
					t.Fatalf("key group %d: stored and not restored, or the reverse", g)
				}
			}
			for _, h := range s.Keyed {
				if h.Range.End <= r.Start || h.Range.Start >= r.End {
					t.Fatalf("subtask %d got the handle of %v, which it does not need", i, h.Range)
				}
			}
			for _, l := range s.Lists {
				if l.Name == "u" {
					if len(l.Items) != union {
						t.Fatalf("subtask %d got %d of %d union items", i, len(l.Items), union)
					}
					continue
				}
				counts[i] = len(l.Items)
				for _, it := range l.Items {
					seen[string(it)]++
				}
			}
		}
		if len(seen) != split {
			t.Fatalf("%d of %d split items restored", len(seen), split)
		}
		for it, n := range seen {
			if n != 1 {
				t.Fatalf("item %x restored %d times", it, n)
			}
		}
		if newP != oldP && slices.Max(counts)-slices.Min(counts) > 1 {
			t.Fatalf("items are dealt unevenly: %v", counts)
		}
	})
}

func TestUnchangedParallelismKeepsItemsInPlace(t *testing.T) {
	op := Operator{Parallelism: 2, MaxParallelism: 4, Subtasks: []Subtask{
		{Index: 0, Lists: []ListState{{Name: "l", Items: [][]byte{{1}, {2}, {3}}}}},
		{Index: 1, Lists: []ListState{{Name: "l", Items: [][]byte{{4}}}}}}}
	out, err := Redistribute(op, 2, 4)
	if err != nil {
		t.Fatal(err)
	}
	if len(out[0].Lists[0].Items) != 3 || len(out[1].Lists[0].Items) != 1 {
		t.Fatalf("%+v", out)
	}
	out, err = Redistribute(op, 3, 4)
	if err != nil {
		t.Fatal(err)
	}
	if got := out[0].Lists[0].Items; len(got) != 2 || got[0][0] != 1 || got[1][0] != 4 {
		t.Fatalf("subtask 0 got %v, want items 1 and 4 of the round", got)
	}
}

func TestRedistributionRefuses(t *testing.T) {
	op := Operator{Name: "Window", UID: "totals", Parallelism: 1, MaxParallelism: 128,
		Subtasks: []Subtask{{Keyed: []state.Handle{{Range: state.Range{End: 128}}}}}}
	_, err := Redistribute(op, 2, 256)
	var mp *MaxParallelismError
	if !errors.As(err, &mp) || mp.Stored != 128 || mp.Wanted != 256 {
		t.Fatalf("%v, want a MaxParallelismError", err)
	}
	for _, part := range []string{`"Window"`, `"totals"`, "128", "256"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not name %s", err, part)
		}
	}
	op.Subtasks[0].Keyed = nil
	if _, err := Redistribute(op, 2, 256); err != nil {
		t.Fatalf("without keyed state: %v", err)
	}
	if _, err := Redistribute(op, 129, 128); err == nil {
		t.Fatal("a parallelism above the max parallelism was taken")
	}
	op.Subtasks = []Subtask{{Lists: []ListState{{Name: "a", Mode: Split}}}, {Index: 1, Lists: []ListState{{Name: "a", Mode: Union}}}}
	if _, err := Redistribute(op, 1, 128); err == nil {
		t.Fatal("a list in two modes was taken")
	}
}

func TestCloneOwnsItsReferences(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawCheckpoint(t, "a")
		before, _ := Encode(c)
		d := c.Clone()
		d.Refs(func(r *state.FileRef) { r.Name, r.Size, r.Inline = "changed", math.MaxInt64, nil })
		if after, _ := Encode(c); !bytes.Equal(before, after) {
			t.Fatal("changing the clone's references changed the original")
		}
		if !maps.Equal(c.Config, d.Config) {
			t.Fatal("the clone lost something")
		}
	})
}
