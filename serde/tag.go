package serde

import (
	"encoding/binary"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Tag is the key of the struct tag that says how a field is read from values that were stored by an earlier version of its type:
//
//	Cents int64 `thalweg:"alias=Amount"`        // was called Amount; several: alias=Amount,alias=Sum
//	Currency string `thalweg:"default=EUR"`     // what it is in values that were stored without it; the zero value otherwise
//
// A default is the rest of the tag, so it comes last. It is for bools, numbers, strings and time.Duration. Source: Avro's aliases and defaults.
const Tag = "thalweg"

// history is what the tag of a field says.
type history struct {
	aliases []string
	def     *string
}

func historyOf(f reflect.StructField) (h history, err error) {
	rest := f.Tag.Get(Tag)
	for rest != "" {
		if d, ok := strings.CutPrefix(rest, "default="); ok {
			h.def = &d
			return h, nil
		}
		var item string
		item, rest, _ = strings.Cut(rest, ",")
		name, ok := strings.CutPrefix(item, "alias=")
		if !ok || name == "" {
			return h, fmt.Errorf("%q in its tag %s: want alias=NAME or default=VALUE", item, Tag)
		}
		h.aliases = append(h.aliases, name)
	}
	return h, nil
}

// match finds, for each field of the present type (its name, then its aliases), which stored field it is read from: the one of its name, else that of
// its first alias that is there; -1 for none.
func match(stored []SchemaField, fields [][]string) []int {
	at := make([]int, len(fields))
	for i, names := range fields {
		at[i] = -1
		for _, name := range names {
			if j := slices.IndexFunc(stored, func(f SchemaField) bool { return f.Name == name }); j >= 0 {
				at[i] = j
				break
			}
		}
	}
	return at
}

// names are those of match.
func (s *Schema) names() [][]string {
	all := make([][]string, len(s.Fields))
	for i := range s.Fields {
		all[i] = append([]string{s.Fields[i].Name}, s.Fields[i].Aliases...)
	}
	return all
}

// checkHistory checks the tags of a struct's fields: an alias belongs to one field, and is not the name of another.
func (c *compiler) checkHistory(path string, fields []SchemaField) {
	owner := map[string]string{}
	for _, f := range fields {
		owner[f.Name] = f.Name
	}
	for _, f := range fields {
		for _, a := range f.Aliases {
			if o, taken := owner[a]; taken {
				c.fail(path+"."+f.Name, "its alias %q is that of field %s, too", a, o)
			}
			owner[a] = f.Name
		}
	}
}

// defaultOf encodes the default of a field, as a codec of its type does.
func defaultOf(t reflect.Type, text string) ([]byte, error) {
	v := reflect.New(t).Elem()
	if _, ok := registered(t); ok {
		return nil, fmt.Errorf("%s has a codec of its own: a default is for bools, numbers, strings and time.Duration", t)
	}
	var err error
	switch k := t.Kind(); {
	case t == reflect.TypeFor[time.Duration]():
		var d time.Duration
		d, err = time.ParseDuration(text)
		v.SetInt(int64(d))
	case k == reflect.Bool:
		var b bool
		b, err = strconv.ParseBool(text)
		v.SetBool(b)
	case v.CanInt():
		var n int64
		n, err = strconv.ParseInt(text, 10, t.Bits())
		v.SetInt(n)
	case v.CanUint():
		var n uint64
		n, err = strconv.ParseUint(text, 10, t.Bits())
		v.SetUint(n)
	case v.CanFloat():
		var x float64
		x, err = strconv.ParseFloat(text, t.Bits())
		v.SetFloat(x)
	case k == reflect.String:
		v.SetString(text)
	default:
		return nil, fmt.Errorf("%s: a default is for bools, numbers, strings and time.Duration", t)
	}
	if err != nil {
		return nil, fmt.Errorf("default %q is no %s", text, t)
	}
	var c compiler
	pr, _ := c.compile(t, nil)
	return pr.append(nil, v.Addr().UnsafePointer()), nil
}

// widening is how a stored number becomes one of a wider type, without loss.
type widening uint8

const (
	notWider widening = iota
	fromUnsigned
	fromSigned
	unsignedToFloat
	signedToFloat
	floatToDouble
)

type numeric struct {
	bits            int // of the value that it holds exactly
	signed, isFloat bool
}

var numbers = map[string]numeric{
	"int8": {8, true, false}, "int16": {16, true, false}, "int32": {32, true, false}, "int64": {64, true, false},
	"uint8": {8, false, false}, "uint16": {16, false, false}, "uint32": {32, false, false}, "uint64": {64, false, false},
	"float32": {24, true, true}, "float64": {53, true, true},
}

// widens says how stored values of one kind are read as another: notWider when some would not be the same.
func widens(stored, now string) widening {
	a, ok := numbers[stored]
	b, ok2 := numbers[now]
	switch {
	case !ok || !ok2 || stored == now || a.bits > b.bits || a.bits == b.bits:
		return notWider
	case a.isFloat && b.isFloat:
		return floatToDouble
	case a.isFloat || a.signed && !b.signed:
		return notWider
	case b.isFloat && a.signed:
		return signedToFloat
	case b.isFloat:
		return unsignedToFloat
	case a.signed:
		return fromSigned
	}
	return fromUnsigned
}

// widen reads n bytes of a stored number as the bits of one of size bytes.
func (w widening) widen(b []byte, size uintptr) uint64 {
	var raw [8]byte
	copy(raw[:], b)
	u := binary.LittleEndian.Uint64(raw[:])
	shift := uint(64 - 8*len(b))
	signed := int64(u<<shift) >> shift
	real := 0.0
	switch w {
	case fromSigned:
		return uint64(signed)
	case signedToFloat:
		real = float64(signed)
	case unsignedToFloat:
		real = float64(u)
	case floatToDouble:
		real = float64(math.Float32frombits(uint32(u)))
	default:
		return u
	}
	if size == 4 {
		return uint64(math.Float32bits(float32(real)))
	}
	return math.Float64bits(real)
}
