package serde

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// What a savepoint of version 1 of an order reads as in version 2.
func TestWhatAnEarlierVersionReadsAs(t *testing.T) {
	type lineV1 struct {
		Item  string
		Count int32
	}
	type orderV1 struct {
		ID     uint32
		Amount float32
		Note   string
		Lines  []lineV1
		ByItem map[int16]lineV1
		Gone   []string
	}
	type line struct {
		Count int64
		Name  string `thalweg:"alias=Item"`
		Unit  string `thalweg:"default=piece, or so"`
	}
	type added struct {
		Tries int `thalweg:"default=3"`
		Left  time.Duration
	}
	type order struct {
		ID       int64
		Total    float64 `thalweg:"alias=Sum,alias=Amount"`
		Note     *string
		Lines    []line
		ByItem   map[int32]line
		Currency string        `thalweg:"default=EUR"`
		Patience time.Duration `thalweg:"default=1m30s"`
		Open     bool          `thalweg:"default=true"`
		Retry    added
		When     time.Time
	}
	old, now := Must[orderV1](), Must[order]()
	c, err := Migrating(now, old.Schema())
	if err != nil {
		t.Fatal(err)
	}
	b := old.Append(nil, orderV1{7, 2.5, "fragile", []lineV1{{"bolt", -4}}, map[int16]lineV1{-3: {"nut", 5}}, []string{"x"}})
	got, n, err := c.Decode(b)
	note := "fragile"
	want := order{ID: 7, Total: 2.5, Note: &note, Lines: []line{{-4, "bolt", "piece, or so"}}, ByItem: map[int32]line{-3: {5, "nut", "piece, or so"}},
		Currency: "EUR", Patience: 90 * time.Second, Open: true, Retry: added{Tries: 3}}
	if err != nil || n != len(b) || !reflect.DeepEqual(got, want) {
		t.Fatalf("%d of %d bytes, %v\n got %+v\nwant %+v", n, len(b), err, got, want)
	}
	again, _, err := now.Decode(c.Append(nil, got))
	if err != nil || !reflect.DeepEqual(again, want) {
		t.Fatalf("written anew: %+v, %v", again, err)
	}
}

// All that does not fit is told at once, by path.
func TestWhatDoesNotFit(t *testing.T) {
	type v1 struct {
		A int64
		B string
		C map[struct{ X, Y int }]string
		D []float64
		E uint64
		F [2]int
	}
	type v2 struct {
		A int32
		G []byte `thalweg:"alias=B"`
		C map[struct{ X int }]string
		D []float32
		E int64
		F [3]int
	}
	err := Compatible(Must[v1]().Schema(), Must[v2]().Schema())
	for _, w := range []string{"A: stored int64, now int32", "B (now G): stored string, now bytes", "C{key}.Y: removed from the key of a map", "D[]: stored float64, now float32",
		"E: stored uint64, now int64", "F: stored [2]int64, now [3]int64"} {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("%v lacks %q", err, w)
		}
	}
	if n := len(err.(*SchemaError).Misfits); n != 6 { //nolint:errorlint // as Compatible makes it
		t.Errorf("%d misfits: %v", n, err)
	}
}

func TestFaultsOfTags(t *testing.T) {
	for want, compile := range map[string]func() error{
		`its alias "B" is that of field B, too`: func() error {
			_, err := For[struct {
				A int `thalweg:"alias=B"`
				B int
			}]()
			return err
		},
		`its alias "X" is that of field A, too`: func() error {
			_, err := For[struct {
				A int `thalweg:"alias=X"`
				B int `thalweg:"alias=X"`
			}]()
			return err
		},
		`"was=B" in its tag thalweg: want alias=NAME or default=VALUE`: func() error {
			_, err := For[struct {
				A int `thalweg:"was=B"`
			}]()
			return err
		},
		`A: default "300" is no int8`: func() error {
			_, err := For[struct {
				A int8 `thalweg:"default=300"`
			}]()
			return err
		},
		`A: []string: a default is for bools, numbers, strings and time.Duration`: func() error {
			_, err := For[struct {
				A []string `thalweg:"default=x"`
			}]()
			return err
		},
	} {
		if err := compile(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// evolving is a field of a random struct: its name and type before and after a change, and the value that a stored one becomes.
type evolving struct {
	before, after string // names; "" for a field that was added or removed
	old, now      reflect.Type
	tag           string
	become        func(old reflect.Value) reflect.Value // nil: the zero value or the default
	def           reflect.Value
}

var plainTypes = []reflect.Type{reflect.TypeFor[int8](), reflect.TypeFor[int16](), reflect.TypeFor[int32](), reflect.TypeFor[int64](), reflect.TypeFor[int](), reflect.TypeFor[uint8](),
	reflect.TypeFor[uint16](), reflect.TypeFor[uint32](), reflect.TypeFor[uint64](), reflect.TypeFor[float32](), reflect.TypeFor[float64](), reflect.TypeFor[bool](), reflect.TypeFor[string](),
	reflect.TypeFor[[]byte](), reflect.TypeFor[[]uint16](), reflect.TypeFor[map[string]int32](), reflect.TypeFor[time.Time](), reflect.TypeFor[*int32](), reflect.TypeFor[[3]bool]()}

// drawType draws a type, and one that it may become, with what its values then are.
func drawType(t *rapid.T, depth int) (old, now reflect.Type, become func(reflect.Value) reflect.Value) {
	same := func(v reflect.Value) reflect.Value { return v }
	switch kind := rapid.IntRange(0, 7).Draw(t, "kind"); {
	case kind == 0 && depth > 0:
		return drawStruct(t, depth-1)
	case kind == 1 && depth > 0:
		old, now, elem := drawType(t, depth-1)
		if old.Kind() == reflect.Uint8 || now.Kind() == reflect.Uint8 || old.Size() == 0 || now.Size() == 0 {
			return old, now, elem
		}
		return reflect.SliceOf(old), reflect.SliceOf(now), func(v reflect.Value) reflect.Value {
			if v.IsNil() {
				return reflect.Zero(reflect.SliceOf(now))
			}
			out := reflect.MakeSlice(reflect.SliceOf(now), v.Len(), v.Len())
			for i := range v.Len() {
				out.Index(i).Set(elem(v.Index(i)))
			}
			return out
		}
	case kind == 2: // optional from now on
		old := rapid.SampledFrom(plainTypes).Draw(t, "type")
		if old.Kind() != reflect.Pointer {
			return old, reflect.PointerTo(old), func(v reflect.Value) reflect.Value {
				p := reflect.New(old)
				p.Elem().Set(v)
				return p
			}
		}
		return old, old, same
	case kind <= 4: // a wider number
		old := plainTypes[rapid.IntRange(0, 10).Draw(t, "number")]
		now := plainTypes[rapid.IntRange(0, 10).Draw(t, "wider")]
		if widens(numberOrByte(old), numberOrByte(now)) != notWider {
			return old, now, func(v reflect.Value) reflect.Value { return v.Convert(now) }
		}
		return old, old, same
	}
	old = rapid.SampledFrom(plainTypes).Draw(t, "type")
	return old, old, same
}

func numberOrByte(t reflect.Type) string {
	if k := numberKind(t); k != "" {
		return k
	}
	return t.Kind().String()
}

func drawStruct(t *rapid.T, depth int) (old, now reflect.Type, become func(reflect.Value) reflect.Value) {
	var fields []evolving
	for i := range rapid.IntRange(0, 5).Draw(t, "fields") {
		f := evolving{before: fmt.Sprintf("F%d", i)}
		f.after = f.before
		f.old, f.now, f.become = drawType(t, depth)
		switch rapid.IntRange(0, 5).Draw(t, "change") {
		case 0:
			f.after = ""
		case 1:
			f.before, f.become = "", nil
			if b, err := defaultOf(f.now, "1"); err == nil && rapid.Bool().Draw(t, "default") {
				f.tag = `thalweg:"default=1"`
				f.def = reflect.New(f.now).Elem()
				var c compiler
				pr, _ := c.compile(f.now, nil)
				if _, err := pr.decode(b, 0, f.def.Addr().UnsafePointer()); err != nil {
					t.Fatal(err)
				}
			}
		case 2:
			f.after, f.tag = "N"+f.before, fmt.Sprintf(`thalweg:"alias=Older,alias=%s"`, f.before)
			if i > 0 {
				f.tag = fmt.Sprintf(`thalweg:"alias=%s"`, f.before)
			}
		}
		fields = append(fields, f)
	}
	var was, is []reflect.StructField
	for _, f := range fields {
		if f.before != "" {
			was = append(was, reflect.StructField{Name: f.before, Type: f.old})
		}
		if f.after != "" {
			is = append(is, reflect.StructField{Name: f.after, Type: f.now, Tag: reflect.StructTag(f.tag)})
		}
	}
	if len(is) > 1 {
		is = rapid.Permutation(is).Draw(t, "order")
	}
	old, now = reflect.StructOf(was), reflect.StructOf(is)
	return old, now, func(v reflect.Value) reflect.Value {
		out := reflect.New(now).Elem()
		for _, f := range fields {
			switch {
			case f.after == "":
			case f.become != nil:
				out.FieldByName(f.after).Set(f.become(v.FieldByName(f.before)))
			case f.def.IsValid():
				out.FieldByName(f.after).Set(f.def)
			default:
				out.FieldByName(f.after).Set(defaults(f.now))
			}
		}
		return out
	}
}

// defaults is what a struct that was not stored holds.
func defaults(t reflect.Type) reflect.Value {
	v := reflect.New(t).Elem()
	if t.Kind() != reflect.Struct || t == timeType {
		return v
	}
	for i := range t.NumField() {
		f := t.Field(i)
		if h, _ := historyOf(f); h.def != nil {
			b, _ := defaultOf(f.Type, *h.def)
			var c compiler
			pr, _ := c.compile(f.Type, nil)
			_, _ = pr.decode(b, 0, v.Field(i).Addr().UnsafePointer())
			continue
		}
		v.Field(i).Set(defaults(f.Type))
	}
	return v
}

// fill draws a value.
func fill(t *rapid.T, v reflect.Value) {
	switch k := v.Kind(); {
	case v.Type() == timeType:
		v.Set(reflect.ValueOf(time.Unix(rapid.Int64Range(-1<<40, 1<<40).Draw(t, "s"), rapid.Int64Range(0, 999999999).Draw(t, "ns")).UTC()))
	case k == reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, "b"))
	case v.CanInt():
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], rapid.Uint64().Draw(t, "i"))
		v.SetInt(int64(binary.LittleEndian.Uint64(b[:])) >> (64 - v.Type().Bits()))
	case v.CanUint():
		v.SetUint(rapid.Uint64().Draw(t, "u") >> (64 - v.Type().Bits()))
	case k == reflect.Float32:
		v.SetFloat(float64(rapid.Float32().Draw(t, "f")))
	case k == reflect.Float64:
		v.SetFloat(rapid.Float64().Draw(t, "f"))
	case k == reflect.String:
		v.SetString(rapid.String().Draw(t, "str"))
	case k == reflect.Pointer:
		if rapid.Bool().Draw(t, "there") {
			v.Set(reflect.New(v.Type().Elem()))
			fill(t, v.Elem())
		}
	case k == reflect.Slice:
		if n := rapid.IntRange(-1, 3).Draw(t, "len"); n >= 0 {
			v.Set(reflect.MakeSlice(v.Type(), n, n))
			for i := range n {
				fill(t, v.Index(i))
			}
		}
	case k == reflect.Array:
		for i := range v.Len() {
			fill(t, v.Index(i))
		}
	case k == reflect.Map:
		if n := rapid.IntRange(-1, 3).Draw(t, "len"); n >= 0 {
			v.Set(reflect.MakeMap(v.Type()))
			for range n {
				key, elem := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
				fill(t, key)
				fill(t, elem)
				v.SetMapIndex(key, elem)
			}
		}
	case k == reflect.Struct:
		for i := range v.NumField() {
			fill(t, v.Field(i))
		}
	}
}

// Whatever fields are added, removed, renamed, widened and made optional, at any depth: what was stored reads as the model says.
func TestEvolutionAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		was, is, become := drawStruct(t, 2)
		old, err := boxedFor(was)
		if err != nil {
			t.Skip(err) // elements without bytes
		}
		now, err := boxedFor(is)
		if err != nil {
			t.Skip(err)
		}
		c, err := now.Migrating(old.Schema())
		if err != nil {
			t.Fatalf("%v to %v: %v", was, is, err)
		}
		v := reflect.New(was)
		fill(t, v.Elem())
		b := old.Append(nil, v.Interface())
		got, n, err := c.Decode(b)
		if err != nil || n != len(b) {
			t.Fatalf("%v to %v: %d of %d bytes: %v", was, is, n, len(b), err)
		}
		want := become(v.Elem()).Interface()
		if g := reflect.ValueOf(got).Elem().Interface(); !reflect.DeepEqual(g, want) {
			t.Fatalf("%v to %v\n got %+v\nwant %+v", was, is, g, want)
		}
		if _, _, err := c.Decode(b[:max(len(b)-1, 0)]); err == nil && len(b) > 0 {
			t.Fatal("what ends too early is read")
		}
	})
}
