package serde

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

type purchase struct {
	Customer string    `json:"customer_id"`
	Cents    int64     `json:"amount_in_cents"`
	At       time.Time `json:"occurred_at"`
}

type wide struct {
	Name   string  `json:"name"`
	Other  string  `json:"other,omitempty"`
	I8     int8    `json:"i8"`
	U16    uint16  `json:",omitempty"`
	F32    float32 `json:"f32"`
	F64    float64 `json:"f64,omitempty"`
	OK     bool
	For    time.Duration
	At     time.Time
	In     struct{ X, Y int32 }
	List   []int          `json:"list,omitempty"`
	Any    any            `json:"any"`
	Ptr    *string        `json:"ptr,omitempty"`
	Map    map[string]int `json:"map,omitempty"`
	Raw    []byte
	Num    json.Number `json:"num,omitempty"`
	hidden int
	Skip   int `json:"-"`
	U64    uint64
}

const purchaseText = `{"customer_id":"c1","amount_in_cents":250,"occurred_at":"2026-01-01T00:00:03Z"}`

// sameJSON requires the format to accept, refuse and mean what encoding/json does.
func sameJSON[T any](t interface {
	Fatalf(string, ...any)
	Helper()
}, f Format[T], msg []byte) {
	t.Helper()
	var want T
	wantErr := json.Unmarshal(msg, &want)
	in := append([]byte(nil), msg...)
	got, err := f.Deserialize(in)
	for i := range in {
		in[i] = 'X'
	}
	if (err == nil) != (wantErr == nil) {
		t.Fatalf("%q: got %v, encoding/json %v", msg, err, wantErr)
	}
	if err != nil {
		if len(err.Error()) > 600 {
			t.Fatalf("error of %d bytes: %v", len(err.Error()), err)
		}
		return
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%q:\n got %+v\nwant %+v", msg, got, want)
	}
	b, err := f.Serialize([]byte("x"), got)
	wb, wantErr := json.Marshal(want)
	if (err == nil) != (wantErr == nil) {
		t.Fatalf("encode %+v: got %v, encoding/json %v", want, err, wantErr)
	}
	if err == nil && string(b[1:]) != string(wb) {
		t.Fatalf("encode %+v:\n got %s\nwant %s", want, b[1:], wb)
	}
}

var jsonSeeds = []string{
	purchaseText,
	` { "Customer_ID" : "c1" , "amount_in_cents" : -9223372036854775808, "occurred_at":"2026-01-01T00:00:03.123456789+02:00"} `,
	`{"customer_id":"a\u00e9\n\"b\"","amount_in_cents":9223372036854775808}`,
	`{"customer_id":"\ud83d\ude00 ü","unknown":{"a":[1,2,{"b":null}],"c":"\u12"}}`,
	`{"customer_id":"\ud83d\ude00 ü","unknown":{"a":[1,2.5e-3,{"b":null}],"c":"x\\"},"amount_in_cents":1}`,
	`{"customer_id":null,"amount_in_cents":null,"occurred_at":null}`,
	`{"amount_in_cents":01}`, `{"amount_in_cents":1.0}`, `{"amount_in_cents":1e3}`, `{"amount_in_cents":-0}`, `{"amount_in_cents":"1"}`,
	`{"customer_id":"a","customer_id":"b"}`, `{"customer_id":"<&>  ` + "\x7f" + `"}`, "{\"customer_id\":\"\xff\"}",
	`{"occurred_at":"2024-02-29T23:59:59Z"}`, `{"occurred_at":"2023-02-29T23:59:59Z"}`, `{"occurred_at":"0000-01-01T00:00:00Z"}`,
	`{"occurred_at":"9999-12-31T23:59:59.999999999Z"}`, `{"occurred_at":"2024-01-01T00:00:60Z"}`, `{"occurred_at":"2024-01-01T24:00:00Z"}`,
	`{"occurred_at":"2024-01-01T00:00:00,5Z"}`, `{"occurred_at":"2024-01-01T00:00:00.Z"}`, `{"occurred_at":"2024-1-01T00:00:00Z"}`,
	`{"occurred_at":"2024-01-01T00:00:00.1234567891Z"}`, `{"occurred_at":"2024-01-01t00:00:00z"}`, `{"occurred_at":"1900-03-01T00:00:00Z"}`,
	`null`, `[]`, ``, `{`, `{}`, `{}x`, `{"a":1,}`, `{"a" 1}`, "{\"a\":\"\t\"}", `{"a":tru}`,
	`{"name":"n","i8":-128,"U16":65535,"f32":1e-7,"f64":1e21,"OK":true,"For":5,"In":{"X":1,"Y":2},"list":[1,2],"any":{"a":[1]},"ptr":"x","map":{"a":1},"Raw":"aGk=","num":1.50,"U64":18446744073709551615}`,
	`{"i8":128}`, `{"f32":1e40}`, `{"f64":-0.0}`, `{"In":{"x":1}}`, `{"In":null,"any":null,"ptr":null,"list":null}`, `{"U64":-1}`, `{"OK":1}`, `{"hidden":1,"Skip":2,"-":3}`,
	`{"In":{"X":1},"In":{"Y":2},"map":{"a":1},"map":{"b":2}}`, `{"ſkip":1,"Key":2}`,
}

func TestJSONSeeds(t *testing.T) {
	_ = wide{}.hidden
	p, w := JSON[purchase](), JSON[wide]()
	for _, s := range jsonSeeds {
		sameJSON(t, p, []byte(s))
		sameJSON(t, w, []byte(s))
	}
	sameJSON(t, JSON[map[string]int](), []byte(`{"a":1}`))
	sameJSON(t, JSON[time.Time](), []byte(`"2026-01-01T00:00:03Z"`))
	sameJSON(t, JSON[struct {
		purchase
		X int `json:",string"`
	}](), []byte(`{"customer_id":"x","X":"5"}`))
}

func TestJSONRandom(t *testing.T) {
	p, w := JSON[purchase](), JSON[wide]()
	rapid.Check(t, func(t *rapid.T) {
		v := wide{Name: rapid.String().Draw(t, "name"), Other: rapid.StringMatching(`[a-z<>&"\\]*`).Draw(t, "other"), I8: rapid.Int8().Draw(t, "i8"),
			U16: rapid.Uint16().Draw(t, "u16"), F32: rapid.Float32Range(-1e30, 1e30).Draw(t, "f32"), F64: rapid.Float64Range(-1e300, 1e300).Draw(t, "f64"),
			OK: rapid.Bool().Draw(t, "ok"), At: genTime().Draw(t, "at"), List: rapid.SliceOf(rapid.Int()).Draw(t, "list"), U64: rapid.Uint64().Draw(t, "u64")}
		v.In.X = rapid.Int32().Draw(t, "x")
		if b, err := json.Marshal(v); err == nil {
			sameJSON(t, w, b)
			sameJSON(t, p, b)
			cut := rapid.IntRange(0, len(b)-1).Draw(t, "cut")
			sameJSON(t, w, b[:cut])
			b[cut] = byte(rapid.IntRange(0, 255).Draw(t, "byte"))
			sameJSON(t, w, b)
		}
		v.At = v.At.Add(time.Duration(rapid.Int64().Draw(t, "shift")))
		got, err := w.Serialize(nil, v)
		want, wantErr := json.Marshal(v)
		if (err == nil) != (wantErr == nil) || err == nil && string(got) != string(want) {
			t.Fatalf("got %s %v, want %s %v", got, err, want, wantErr)
		}
	})
}

func TestJSONTimesEqual(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := time.Unix(rapid.Int64Range(-62167219200, 253402300799).Draw(t, "s"), rapid.Int64Range(0, 999999999).Draw(t, "ns")).UTC()
		b := []byte(x.Format(time.RFC3339Nano))
		var got time.Time
		if !utcTime(b, &got) || got != x {
			t.Fatalf("%s: %v", b, got)
		}
	})
}

func TestJSONErrors(t *testing.T) {
	_, err := JSON[purchase]().Deserialize([]byte(`{"customer_id":"c1","amount_in_cents":"` + strings.Repeat("secret", 1000) + `"}`))
	if err == nil || !strings.Contains(err.Error(), "amount_in_cents") || !strings.Contains(err.Error(), "at byte") || len(err.Error()) > 400 {
		t.Fatal(err)
	}
	_, err = JSON[purchase]().Deserialize([]byte(`{"customer_id":"c1",,}`))
	if err == nil || !strings.Contains(err.Error(), "at byte 20") {
		t.Fatal(err)
	}
}

func TestPlainFormats(t *testing.T) {
	b, _ := String().Serialize(nil, "x")
	s, _ := String().Deserialize(b)
	c, _ := Bytes().Serialize(nil, []byte("x"))
	d, _ := Bytes().Deserialize(c)
	if s != "x" || cmp.Diff(d, []byte("x")) != "" {
		t.Fatal(s, d)
	}
}

func FuzzJSON(f *testing.F) {
	for _, s := range jsonSeeds {
		f.Add([]byte(s))
	}
	p, w := JSON[purchase](), JSON[wide]()
	f.Fuzz(func(t *testing.T, b []byte) {
		sameJSON(t, p, b)
		sameJSON(t, w, b)
	})
}

func TestJSONAllocations(t *testing.T) {
	f := JSON[purchase]()
	msg := []byte(purchaseText)
	if n := testing.AllocsPerRun(100, func() {
		if _, err := f.Deserialize(msg); err != nil {
			t.Fatal(err)
		}
	}); n > 1 {
		t.Errorf("decode: %v allocations", n)
	}
	v, _ := f.Deserialize(msg)
	buf := make([]byte, 0, 256)
	if n := testing.AllocsPerRun(100, func() {
		if _, err := f.Serialize(buf, v); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("encode: %v allocations", n)
	}
}

func BenchmarkJSON(b *testing.B) {
	f := JSON[purchase]()
	msg := []byte(purchaseText)
	v, _ := f.Deserialize(msg)
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := f.Deserialize(msg); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		buf := make([]byte, 0, 256)
		for b.Loop() {
			if _, err := f.Serialize(buf, v); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("std-decode", func(b *testing.B) {
		for b.Loop() {
			var p purchase
			if err := json.Unmarshal(msg, &p); err != nil {
				b.Fatal(err)
			}
		}
	})
}
