package serde

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

type csvRecord struct {
	Name   string
	N      int32
	Size   uint16
	Ratio  float64
	Good   bool
	At     time.Time
	Hidden []int `csv:"-"`
}

func TestCSVLines(t *testing.T) {
	f := CSV[csvRecord]()
	line := `"a ""b"", c", 7 ,3,0.5,true,2026-01-02T03:04:05Z`
	got, err := f.Deserialize([]byte(line + "\r"))
	if err != nil {
		t.Fatal(err)
	}
	want := csvRecord{Name: `a "b", c`, N: 7, Size: 3, Ratio: 0.5, Good: true, At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if b, err := f.Serialize([]byte(">"), got); err != nil || string(b) != `>"a ""b"", c",7,3,0.5,true,2026-01-02T03:04:05Z` {
		t.Errorf("%s %v", b, err)
	}
	if b, err := CSV[[]string](Comma(';')).Serialize(nil, []string{"a,b", "c;d", ""}); err != nil || string(b) != `a,b;"c;d";` {
		t.Errorf("%s %v", b, err)
	}
}

// What does not fit is an error that names the place.
func TestCSVErrors(t *testing.T) {
	f := CSV[csvRecord]()
	for line, want := range map[string]string{
		"a,1":                                 "2 fields, want the 6",
		"a,x,3,0.5,true,2026-01-02T03:04:05Z": `field 2 (N): "x" is no int32`,
		"a,3000000000,3,0.5,true,2026-01-02T03:04:05Z": "field 2 (N)",
		"a,1,-3,0.5,true,2026-01-02T03:04:05Z":         "field 3 (Size)",
		"a,1,3,,true,2026-01-02T03:04:05Z":             "field 4 (Ratio)",
		"a,1,3,1,yes,2026-01-02T03:04:05Z":             "field 5 (Good)",
		"a,1,3,1,true,yesterday":                       "field 6 (At)",
		`a"b,1,3,1,true,x`:                             "column 2",
		`"a`:                                           "column",
		"":                                             "empty",
		"a\nb":                                         "more than one line",
	} {
		if v, err := f.Deserialize([]byte(line)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %+v, %v; want %q", line, v, err, want)
		}
	}
	for name, f := range map[string]any{
		"a line is a struct": CSV[int](), "field Inner": CSV[struct{ Inner []int }](), "no exported fields": CSV[struct{ a int }](),
		"embedded": CSV[struct{ csvRecord }](), "cannot separate": CSV[[]string](Comma('"')),
	} {
		err := f.(interface{ Validate() error }).Validate()
		if name == "embedded" { // of an unexported type: nothing of it is seen
			name = "no exported fields"
		}
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v; want %q", err, name)
		}
	}
}

// What is written is read back, whatever the fields hold but ends of lines.
func TestCSVRoundTrip(t *testing.T) {
	lines := CSV[[]string](Comma('|'))
	f := CSV[csvRecord]()
	text := rapid.StringOf(rapid.RuneFrom([]rune("ab,|;\" \t'\\#x"), nil...))
	rapid.Check(t, func(t *rapid.T) {
		in := rapid.SliceOfN(text, 1, 5).Draw(t, "line")
		b, err := lines.Serialize(nil, in)
		if err != nil {
			t.Fatal(err)
		}
		if out, err := lines.Deserialize(b); err != nil || !cmp.Equal(in, out) {
			t.Fatalf("%q is written %q, and read %q, %v", in, b, out, err)
		}
		r := csvRecord{Name: text.Draw(t, "name"), N: rapid.Int32().Draw(t, "n"), Size: rapid.Uint16().Draw(t, "size"),
			Ratio: rapid.Float64().Draw(t, "ratio"), Good: rapid.Bool().Draw(t, "good"), At: time.Unix(rapid.Int64Range(0, 1<<32).Draw(t, "at"), 0).UTC()}
		if b, err = f.Serialize(nil, r); err != nil {
			t.Fatal(err)
		}
		if out, err := f.Deserialize(b); err != nil || !cmp.Equal(r, out) {
			t.Fatalf("%+v is written %q, and read %+v, %v", r, b, out, err)
		}
	})
}

// Whatever a line holds, it is read or refused; what is read is written and read again as the same.
func FuzzCSV(f *testing.F) {
	f.Add([]byte(`a,"b",c`))
	f.Add([]byte("\"\r\n"))
	lines := CSV[[]string]()
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := lines.Deserialize(data)
		if err != nil || bytes.ContainsAny([]byte(strings.Join(v, "")), "\r\n") {
			return
		}
		b, err := lines.Serialize(nil, v)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := lines.Deserialize(b); err != nil || !cmp.Equal(v, again) {
			t.Fatalf("%q: %q, then %q, %v", data, v, again, err)
		}
	})
}
