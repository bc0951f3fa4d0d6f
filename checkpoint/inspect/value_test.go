package inspect

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/thalweg/thalweg/serde"
	"github.com/thalweg/thalweg/state"
)

type inner struct {
	S string
	B []byte
	P *int32
}

type every struct {
	Flag    bool
	I8      int8
	I16     int16
	I32     int32
	I64     int64
	U8      uint8
	U16     uint16
	U32     uint32
	U64     uint64
	F32     float32
	F64     float64
	T       time.Time
	D       time.Duration
	In      inner
	Slice   []inner
	Array   [3]uint16
	Strings map[string]int64
	Numbers map[int32]string
	Structs map[[2]int16]bool `json:"-"` // encoding/json has no such keys: see plain
}

// plain is v as encoding/json has it, with the differences of what is shown: maps with other keys are pairs, and byte slices that are nil are null.
func plain(t *rapid.T, v every) any {
	pairs := v.Structs
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	m["Structs"] = nil
	if pairs != nil {
		list := map[string]any{}
		for k, x := range pairs {
			list[fmt.Sprint([]any{float64(k[0]), float64(k[1])})] = x
		}
		m["Structs"] = list
	}
	return m
}

// A value of any type that the engine's codec takes is shown as encoding/json shows it, from its bytes and schema alone.
func TestValuesAreShownByTheirSchema(t *testing.T) {
	codec := serde.Must[every]()
	schema := codec.Schema()
	gen := func(t *rapid.T) every {
		var v every
		text := rapid.StringOfN(rapid.RuneFrom([]rune("ab\"\\<\n\u00e9\u4e16")), 0, 6, -1)
		in := func() inner {
			x := inner{S: text.Draw(t, "s")}
			if rapid.Bool().Draw(t, "bytes") {
				x.B = rapid.SliceOfN(rapid.Byte(), 0, 5).Draw(t, "b")
			}
			if rapid.Bool().Draw(t, "pointer") {
				x.P = new(rapid.Int32().Draw(t, "p"))
			}
			return x
		}
		v.Flag, v.I8, v.I16, v.I32 = rapid.Bool().Draw(t, "flag"), rapid.Int8().Draw(t, "i8"), rapid.Int16().Draw(t, "i16"), rapid.Int32().Draw(t, "i32")
		v.I64, v.U64 = rapid.Int64Range(-1<<53, 1<<53).Draw(t, "i64"), rapid.Uint64Range(0, 1<<53).Draw(t, "u64") // what the comparison's float64 holds
		v.U8, v.U16, v.U32 = rapid.Uint8().Draw(t, "u8"), rapid.Uint16().Draw(t, "u16"), rapid.Uint32().Draw(t, "u32")
		v.F32, v.F64 = float32(rapid.Int16().Draw(t, "f32"))/4, rapid.Float64Range(-1e9, 1e9).Draw(t, "f64")
		v.T = time.Unix(rapid.Int64Range(-1e10, 1e10).Draw(t, "sec"), rapid.Int64Range(0, 999999999).Draw(t, "ns")).UTC()
		v.D = time.Duration(rapid.Int32().Draw(t, "d"))
		v.In = in()
		if n := rapid.IntRange(-1, 3).Draw(t, "slice"); n >= 0 {
			v.Slice = []inner{}
			for range n {
				v.Slice = append(v.Slice, in())
			}
		}
		v.Array = [3]uint16{rapid.Uint16().Draw(t, "a"), 2, 3}
		if rapid.Bool().Draw(t, "maps") {
			v.Strings = rapid.MapOfN(text, rapid.Int64Range(-9, 9), 0, 3).Draw(t, "strings")
			v.Numbers = rapid.MapOfN(rapid.Int32(), text, 0, 3).Draw(t, "numbers")
			v.Structs = map[[2]int16]bool{{1, 2}: true, {-3, rapid.Int16().Draw(t, "k")}: false}
		}
		return v
	}
	rapid.Check(t, func(t *rapid.T) {
		v := gen(t)
		var got map[string]any
		shown := render(codec.Append(nil, v), &schema)
		if err := json.Unmarshal(shown, &got); err != nil {
			t.Fatalf("%s: %v", shown, err)
		}
		if list, ok := got["Structs"].([]any); ok {
			m := map[string]any{}
			for _, p := range list {
				m[fmt.Sprint(p.([]any)[0])] = p.([]any)[1]
			}
			got["Structs"] = m
		}
		if want := plain(t, v); !reflect.DeepEqual(got, want) {
			t.Fatalf("got %v\nwant %v\nshown %s", got, want, shown)
		}
	})
}

func TestValuesOfTheStatePackageAndOddOnes(t *testing.T) {
	codec := state.TimedCodec(serde.Must[string]())
	timed := codec.Schema()
	enc := codec.Append(nil, state.Timed[string]{At: 1_700_000_000_000, V: "x"})
	if got := string(render(enc, &timed)); got != `{"lastAccess":"2023-11-14T22:13:20Z","value":"x"}` {
		t.Error(got)
	}
	list := state.ListCodec(serde.Must[int16]())
	lists := list.Schema()
	for _, v := range [][]int16{{1, 2}, {7}, {}} {
		want, _ := json.Marshal(v)
		if got := string(render(list.Append(nil, v), &lists)); got != string(want) {
			t.Errorf("%v is shown as %s", v, got)
		}
	}
	nan := serde.Must[float64]()
	fs := nan.Schema()
	if got := string(render(nan.Append(nil, math.NaN()), &fs)); got != `"NaN"` {
		t.Error(got)
	}
	own := serde.Schema{Kind: "custom", Name: "geo.Point"}
	if got := string(render([]byte{1, 2}, &own)); !strings.HasPrefix(got, `{"hex":"0102","reason":`) || !strings.Contains(got, "codec of its own") {
		t.Error(got)
	}
}

// Whatever stands in a file, showing it ends, with JSON.
func FuzzRender(f *testing.F) {
	codec := serde.Must[every]()
	schema := codec.Schema()
	f.Add(codec.Append(nil, every{Slice: []inner{{S: "a"}}, Strings: map[string]int64{"b": 1}}))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, s := range []*serde.Schema{&schema, {Kind: "slice", Elem: &serde.Schema{Kind: "struct"}}, {Kind: "map", Key: &serde.Schema{Kind: "struct"}, Elem: &serde.Schema{Kind: "struct"}},
			{Kind: state.KindList, Elem: &serde.Schema{Kind: "struct"}}, {Kind: "pointer"}, {Kind: "array", Len: 1 << 30, Elem: &serde.Schema{Kind: "struct"}}, {Kind: "odd"}} {
			if out := render(b, s); !json.Valid(out) {
				t.Fatalf("%s of %x: %s", s.Kind, b, out)
			}
		}
	})
}
