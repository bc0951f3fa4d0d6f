package serde

import (
	"bytes"
	"math"
	"math/big"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type inner struct {
	A int32
	B string
	C [3]uint16
}

type base struct{ ID uint64 }

type everything struct {
	base
	Bool   bool
	I8     int8
	I16    int16
	I32    int32
	I64    int64
	Int    int
	U8     uint8
	U16    uint16
	U32    uint32
	U64    uint64
	Uint   uint
	F32    float32
	F64    float64
	S      string
	Bytes  []byte
	At     time.Time
	For    time.Duration
	In     inner
	Ptr    *inner
	List   []inner
	Strs   []string
	Longs  []int64
	Arr    [2]inner
	Map    map[string]int64
	Deep   map[inner][]*string
	Addr   netip.Addr
	_      [3]byte
	Nested map[string]map[int8]time.Time
}

func genInner() *rapid.Generator[inner] {
	return rapid.Custom(func(t *rapid.T) inner {
		return inner{rapid.Int32().Draw(t, "a"), rapid.String().Draw(t, "b"), [3]uint16{rapid.Uint16().Draw(t, "c"), 1, 2}}
	})
}

func genTime() *rapid.Generator[time.Time] {
	return rapid.Custom(func(t *rapid.T) time.Time {
		if rapid.Bool().Draw(t, "zero") {
			return time.Time{}
		}
		return time.Unix(rapid.Int64Range(-1<<36, 1<<36).Draw(t, "s"), rapid.Int64Range(0, 999999999).Draw(t, "ns")).UTC()
	})
}

func genEverything() *rapid.Generator[everything] {
	return rapid.Custom(func(t *rapid.T) everything {
		e := everything{
			base: base{rapid.Uint64().Draw(t, "id")}, Bool: rapid.Bool().Draw(t, "bool"), I8: rapid.Int8().Draw(t, "i8"), I16: rapid.Int16().Draw(t, "i16"),
			I32: rapid.Int32().Draw(t, "i32"), I64: rapid.Int64().Draw(t, "i64"), Int: rapid.Int().Draw(t, "int"), U8: rapid.Uint8().Draw(t, "u8"),
			U16: rapid.Uint16().Draw(t, "u16"), U32: rapid.Uint32().Draw(t, "u32"), U64: rapid.Uint64().Draw(t, "u64"), Uint: rapid.Uint().Draw(t, "uint"),
			F32: rapid.Float32().Draw(t, "f32"), F64: rapid.Float64().Draw(t, "f64"), S: rapid.String().Draw(t, "s"),
			At: genTime().Draw(t, "at"), For: time.Duration(rapid.Int64().Draw(t, "for")), In: genInner().Draw(t, "in"),
			Arr: [2]inner{genInner().Draw(t, "a0"), genInner().Draw(t, "a1")},
		}
		if rapid.Bool().Draw(t, "refs") {
			e.Bytes = rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")
			e.Ptr = rapid.Ptr(genInner(), true).Draw(t, "ptr")
			e.List = rapid.SliceOf(genInner()).Draw(t, "list")
			e.Strs = rapid.SliceOf(rapid.String()).Draw(t, "strs")
			e.Longs = rapid.SliceOf(rapid.Int64()).Draw(t, "longs")
			e.Map = rapid.MapOf(rapid.String(), rapid.Int64()).Draw(t, "map")
			e.Deep = rapid.MapOf(genInner(), rapid.SliceOf(rapid.Ptr(rapid.String(), true))).Draw(t, "deep")
			e.Addr = netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "addr")))
			e.Nested = rapid.MapOf(rapid.String(), rapid.MapOf(rapid.Int8(), genTime())).Draw(t, "nested")
		}
		return e
	})
}

var exact = cmp.Options{
	cmp.Exporter(func(reflect.Type) bool { return true }),
	cmp.Comparer(func(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) }),
	cmp.Comparer(func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }),
	cmp.Comparer(func(a, b time.Time) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
}

// What is encoded comes back, nil-ness included; the same value always has the same bytes; a clone shares nothing with the buffer.
func TestRoundTrip(t *testing.T) {
	c, err := For[everything]()
	if err != nil {
		t.Fatal(err)
	}
	if !c.Views() || !c.Pointers() || !Mutable(c) {
		t.Fatal("views, pointers or mutable not reported")
	}
	rapid.Check(t, func(t *rapid.T) {
		v := genEverything().Draw(t, "v")
		b := c.Append([]byte("x"), v)[1:]
		if !bytes.Equal(b, c.(InPlace[everything]).AppendFrom(nil, &v)) {
			t.Fatal("encoding is not deterministic")
		}
		padded := append(append([]byte{}, b...), 0xff, 0xff)
		got, n, err := c.Decode(padded)
		if err != nil || n != len(b) {
			t.Fatalf("decode: n %d of %d, %v", n, len(b), err)
		}
		if d := cmp.Diff(v, got, exact); d != "" {
			t.Fatal(d)
		}
		cl := c.Clone(got)
		for i := range padded {
			padded[i] = 0xa5
		}
		if d := cmp.Diff(v, cl, exact); d != "" {
			t.Fatalf("clone shares memory with the buffer: %s", d)
		}
		for cut := range b {
			if _, _, err := c.Decode(b[:cut:cut]); err == nil {
				t.Fatalf("truncated at %d of %d: no error", cut, len(b))
			}
		}
	})
}

func roundTrip[T any](t *testing.T, v T, kind string) {
	t.Helper()
	c, err := For[T]()
	if err != nil {
		t.Fatal(err)
	}
	b := c.Append(nil, v)
	got, n, err := c.Decode(append(b, 1))
	if err != nil || n != len(b) {
		t.Fatalf("%T: n %d of %d, %v", v, n, len(b), err)
	}
	if d := cmp.Diff(v, got, exact); d != "" {
		t.Fatal(d)
	}
	if d := cmp.Diff(v, c.Clone(got), exact); d != "" {
		t.Fatal(d)
	}
	if c.Schema().Kind != kind {
		t.Fatalf("%T: schema kind %q", v, c.Schema().Kind)
	}
	if len(b) > 0 {
		if _, _, err := c.Decode(b[:len(b)-1]); err == nil {
			t.Fatalf("%T: truncated input accepted", v)
		}
	}
}

type (
	named  string
	number int32
	wrap   struct{ S string }
	pair   struct{ A, B int64 }
	empty  struct{}
)

func TestWholeTypes(t *testing.T) {
	roundTrip(t, "text", "string")
	roundTrip(t, strings.Repeat("long", 100), "string")
	roundTrip(t, "", "string")
	roundTrip(t, named("n"), "string")
	roundTrip(t, int64(-5), "int64")
	roundTrip(t, uint64(1<<63), "uint64")
	roundTrip(t, int(-5), "int64")
	roundTrip(t, number(-5), "int32")
	roundTrip(t, 3.5, "float64")
	roundTrip(t, float32(3.5), "float32")
	roundTrip(t, true, "bool")
	roundTrip(t, int8(-1), "int8")
	roundTrip(t, time.Minute, "int64")
	roundTrip(t, time.Unix(1, 2).UTC(), "time")
	roundTrip(t, []byte{}, "bytes")
	roundTrip(t, []byte(nil), "bytes")
	roundTrip(t, wrap{"x"}, "struct")
	roundTrip(t, pair{1, 2}, "struct")
	roundTrip(t, empty{}, "struct")
	roundTrip(t, []empty{{}, {}}, "slice")
	roundTrip(t, [4]bool{true, false, true, true}, "array")
	roundTrip(t, map[bool]string{true: "a", false: "b"}, "map")
	roundTrip(t, new(int32), "pointer")
	roundTrip(t, (*int32)(nil), "pointer")
	roundTrip(t, [][]int8{nil, {}, {1, 2}}, "slice")
}

func TestMonotonicAndZone(t *testing.T) {
	c := Must[time.Time]()
	now := time.Now()
	got, _, err := c.Decode(c.Append(nil, now.In(time.FixedZone("x", 3600))))
	if err != nil || !got.Equal(now) || got != now.Round(0).UTC() {
		t.Fatalf("%v, %v: want UTC of %v", got, err, now)
	}
}

type cycle struct{ Next *cycle }
type viaSlice struct{ Kids []viaSlice }
type sneaky struct {
	time.Time
	Name   string
	hidden int
}

func TestRefused(t *testing.T) {
	check := func(err error, want ...string) {
		t.Helper()
		if err == nil {
			t.Fatal("accepted")
		}
		for _, w := range want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%v: does not say %q", err, w)
			}
		}
	}
	_ = sneaky{}.hidden
	_, err := For[struct {
		A struct{ B []chan int }
		F func()
		G map[string]any
		C complex128
		h int
	}]()
	check(err, "A.B[]", "chan int", "F:", "G{}", "C:", "h: unexported")
	_, err = For[cycle]()
	check(err, "Next", "contains itself")
	_, err = For[viaSlice]()
	check(err, "Kids[]", "contains itself")
	_, err = For[sneaky]()
	check(err, "hidden")
	_, err = For[any]()
	check(err, "interface", "take a concrete type", "serde.Register")
	_, err = ForKey[struct{ At time.Time }]()
	check(err, "At", "UnixMilli")
	_, err = ForKey[struct{ P *int }]()
	check(err, "P", "pointer")
	if _, err = ForKey[struct{ S string }](); err != nil {
		t.Fatal(err)
	}
}

func TestMarshalerFallback(t *testing.T) {
	type withAddr struct {
		Name string
		Addr netip.AddrPort
	}
	roundTrip(t, netip.MustParseAddr("fe80::1%eth0"), "custom")
	c := Must[withAddr]()
	v := withAddr{"n", netip.MustParseAddrPort("1.2.3.4:5")}
	got, _, err := c.Decode(c.Append(nil, v))
	if err != nil || got != v {
		t.Fatal(got, err)
	}
}

type money struct{ v *big.Int }

type moneyCodec struct{}

func (moneyCodec) Append(dst []byte, m money) []byte { return appendBytes(dst, m.v.Bytes()) }
func (moneyCodec) Decode(src []byte) (money, int, error) {
	b, n, err := Must[[]byte]().Decode(src)
	return money{new(big.Int).SetBytes(b)}, n, err
}
func (moneyCodec) Clone(m money) money { return money{new(big.Int).Set(m.v)} }
func (moneyCodec) Views() bool         { return false }
func (moneyCodec) Pointers() bool      { return true }
func (moneyCodec) Schema() Schema      { return Schema{Kind: "custom", Name: "money/1"} }

func TestRegister(t *testing.T) {
	if err := Register[money](moneyCodec{}); err != nil {
		t.Fatal(err)
	}
	if Register[money](moneyCodec{}) == nil || Register[int64](Must[int64]()) == nil {
		t.Fatal("registered twice, or after compilation")
	}
	type bill struct {
		Name  string
		Sums  []money
		Total money
	}
	c := Must[bill]()
	v := bill{"n", []money{{big.NewInt(5)}, {big.NewInt(1 << 40)}}, money{big.NewInt(77)}}
	got, _, err := c.Decode(c.Append(nil, v))
	if err != nil || got.Total.v.Int64() != 77 || got.Sums[1].v.Int64() != 1<<40 {
		t.Fatal(got, err)
	}
	cl := c.Clone(got)
	got.Sums[1].v.SetInt64(0)
	if cl.Sums[1].v.Int64() != 1<<40 {
		t.Fatal("clone shares a registered value")
	}
}

type bid struct {
	Auction, Bidder, Price int64
	Channel, URL           string
	At                     time.Time
	Extra                  string
}

type flat96 struct {
	A, B, C, D int64
	E, F, G, H float64
	I, J       int32
	K, L       uint64
	M          [8]uint8
}

var sampleBid = bid{1000, 2000, 300, "channel-4711", "https://www.nexmark.com/abcdefgh/ijklmnop/item.htm?query=1&channel_id=4711", time.Unix(1700000000, 5).UTC(), strings.Repeat("x", 50)}

func TestNoAllocations(t *testing.T) {
	buf := make([]byte, 0, 1024)
	noAlloc := func(name string, f func()) {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
	bc, fc, sc := Must[bid](), Must[flat96](), Must[string]()
	noAlloc("bid", func() {
		b := bc.Append(buf[:0], sampleBid)
		if v, _, err := bc.Decode(b); err != nil || v.Price != 300 {
			t.Fatal(err)
		}
	})
	noAlloc("flat", func() {
		b := fc.Append(buf[:0], flat96{A: 1})
		if v, _, err := fc.Decode(b); err != nil || v.A != 1 {
			t.Fatal(err)
		}
	})
	noAlloc("string", func() {
		b := sc.Append(buf[:0], "key")
		if v, _, err := sc.Decode(b); err != nil || v != "key" {
			t.Fatal(err)
		}
	})
}

type v1 struct {
	Name string
	Old  map[string][]inner
	N    int64
	In   struct{ X, Y int32 }
	List []struct{ A, B string }
	Addr netip.Addr
}
type v2 struct {
	N     int64
	Added []string
	In    struct{ Y, Z int32 }
	Name  string
	List  []struct{ B, C string }
}

func TestMigration(t *testing.T) {
	oldC := Must[v1]()
	o := v1{Name: "n", Old: map[string][]inner{"k": {{1, "x", [3]uint16{}}}}, N: 5, Addr: netip.MustParseAddr("1.2.3.4")}
	o.In.X, o.In.Y = 1, 2
	o.List = []struct{ A, B string }{{"a", "b"}, {"c", "d"}}
	m, err := Migrating(Must[v2](), oldC.Schema())
	if err != nil {
		t.Fatal(err)
	}
	b := oldC.Append(nil, o)
	got, n, err := m.Decode(b)
	if err != nil || n != len(b) {
		t.Fatal(n, len(b), err)
	}
	want := v2{N: 5, Name: "n", List: []struct{ B, C string }{{B: "b"}, {B: "d"}}}
	want.In.Y = 2
	if d := cmp.Diff(want, got); d != "" {
		t.Fatal(d)
	}
	for cut := range b {
		if _, _, err := m.Decode(b[:cut]); err == nil {
			t.Fatalf("cut at %d accepted", cut)
		}
	}
	if _, _, err := Must[v2]().Decode(m.Append(nil, got)); err != nil {
		t.Fatal("a migrating codec writes the new form", err)
	}
	_, err = Migrating(Must[struct {
		N    string
		Name string
		In   struct{ X int16 }
	}](), oldC.Schema())
	if err == nil || !strings.Contains(err.Error(), "N: stored int64, now string") || !strings.Contains(err.Error(), "In.X: stored int32, now int16") {
		t.Fatal(err)
	}
}

// Whatever the bytes, Decode neither panics nor allocates out of proportion, and what it accepts encodes again.
func FuzzDecode(f *testing.F) {
	c := Must[everything]()
	f.Add(c.Append(nil, everything{S: "x", Map: map[string]int64{"a": 1}, List: []inner{{1, "b", [3]uint16{}}}, Addr: netip.MustParseAddr("1.2.3.4")}))
	f.Add([]byte{})
	m, err := Migrating(Must[v2](), Must[v1]().Schema())
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if v, _, err := c.Decode(b); err == nil {
			x := c.Append(nil, v)
			w, _, err := c.Decode(x)
			if err != nil || !bytes.Equal(x, c.Append(nil, w)) {
				t.Fatal("accepted value does not encode again", err)
			}
		}
		_, _, _ = m.Decode(b)
	})
}

func BenchmarkCodec(b *testing.B) {
	bench(b, "flat96", flat96{A: 1, M: [8]uint8{1}})
	bench(b, "bid", sampleBid)
	bench(b, "string", "customer-1234")
	bench(b, "int64", int64(5))
}

var sink []byte

func bench[T any](b *testing.B, name string, v T) {
	c := Must[T]()
	enc := c.Append(nil, v)
	b.Run(name+"/append", func(b *testing.B) {
		b.ReportAllocs()
		buf := make([]byte, 0, 1024)
		for b.Loop() {
			buf = c.Append(buf[:0], v)
		}
		sink = buf
		b.ReportMetric(float64(len(enc)), "bytes")
	})
	b.Run(name+"/decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, _, err := c.Decode(enc); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// Values behind any are encoded as the values themselves, in any version of their type.
func TestBoxed(t *testing.T) {
	type old struct {
		Name string
		N    int64
	}
	type now struct {
		N    int64
		List []string
	}
	plain, box := Must[now](), must(ForBoxed[now]())
	v := now{7, []string{"a", "b"}}
	enc := box.Append(nil, &v)
	if !bytes.Equal(enc, plain.Append(nil, v)) || !Same(box.Schema(), plain.Schema()) {
		t.Fatalf("boxed %x, plain %x", enc, plain.Append(nil, v))
	}
	if !bytes.Equal(box.Append(nil, nil), plain.Append(nil, now{})) {
		t.Error("nil is not the zero value")
	}
	back, n, err := box.Decode(enc)
	if err != nil || n != len(enc) || !reflect.DeepEqual(back, &v) {
		t.Fatalf("decoded %v, %d bytes, %v", back, n, err)
	}
	c := box.Clone(back).(*now)
	back.(*now).List[0] = "changed"
	clear(enc)
	if !reflect.DeepEqual(c, &v) {
		t.Errorf("clone %v shares memory", c)
	}
	m := must(box.Migrating(Must[old]().Schema()))
	got, _, err := m.Decode(Must[old]().Append(nil, old{"x", 5}))
	if err != nil || !reflect.DeepEqual(got, &now{N: 5}) {
		t.Errorf("migrated %v, %v", got, err)
	}
	if _, err := box.Migrating(Must[string]().Schema()); err == nil {
		t.Error("a string was taken for a struct")
	}
	if _, _, err := box.Decode([]byte{1}); err == nil || !strings.Contains(err.Error(), "now") {
		t.Errorf("short input: %v", err)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
