package serde

import (
	"encoding/json"
	"math"
	"reflect"
	"strconv"
	"time"
	"unsafe"
)

// append writes the struct at v. false hands the value to encoding/json.
func (p *jsonProgram) append(dst []byte, v unsafe.Pointer) ([]byte, bool) {
	dst = append(dst, '{')
	empty := true
	for i := range p.fields {
		f := &p.fields[i]
		q := unsafe.Add(v, f.off)
		if f.omitEmpty && f.isEmpty(q) {
			continue
		}
		if !empty {
			dst = append(dst, ',')
		}
		empty = false
		dst = append(dst, f.quoted...)
		ok := true
		switch f.kind {
		case jsonString:
			dst = appendJSONString(dst, *(*string)(q))
		case jsonInt:
			dst = strconv.AppendInt(dst, f.loadInt(q), 10)
		case jsonUint:
			dst = strconv.AppendUint(dst, f.loadUint(q), 10)
		case jsonFloat:
			dst, ok = f.appendFloat(dst, q)
		case jsonBool:
			dst = strconv.AppendBool(dst, *(*bool)(q))
		case jsonTime:
			dst, ok = appendJSONTime(dst, (*time.Time)(q))
		case jsonStruct:
			dst, ok = f.sub.append(dst, q)
		case jsonOpaque:
			dst, ok = f.appendOpaque(dst, q)
		}
		if !ok {
			return dst, false
		}
	}
	return append(dst, '}'), true
}

func (f *jsonField) loadInt(q unsafe.Pointer) int64 {
	switch f.size {
	case 1:
		return int64(*(*int8)(q))
	case 2:
		return int64(*(*int16)(q))
	case 4:
		return int64(*(*int32)(q))
	}
	return *(*int64)(q)
}

func (f *jsonField) loadUint(q unsafe.Pointer) uint64 {
	switch f.size {
	case 1:
		return uint64(*(*uint8)(q))
	case 2:
		return uint64(*(*uint16)(q))
	case 4:
		return uint64(*(*uint32)(q))
	}
	return *(*uint64)(q)
}

func (f *jsonField) loadFloat(q unsafe.Pointer) float64 {
	if f.size == 4 {
		return float64(*(*float32)(q))
	}
	return *(*float64)(q)
}

// appendFloat writes as encoding/json does: the shortest form, with an exponent below 1e-6 and from 1e21.
func (f *jsonField) appendFloat(dst []byte, q unsafe.Pointer) ([]byte, bool) {
	x := f.loadFloat(q)
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return dst, false
	}
	abs, form := math.Abs(x), byte('f')
	if abs != 0 {
		if f.size == 8 && (abs < 1e-6 || abs >= 1e21) || f.size == 4 && (float32(abs) < 1e-6 || float32(abs) >= 1e21) {
			form = 'e'
		}
	}
	dst = strconv.AppendFloat(dst, x, form, -1, int(f.size*8))
	if n := len(dst); form == 'e' && n >= 4 && dst[n-4] == 'e' && dst[n-3] == '-' && dst[n-2] == '0' {
		dst[n-2] = dst[n-1]
		dst = dst[:n-1]
	}
	return dst, true
}

// plainJSON marks the ASCII characters that stand for themselves in a string, HTML characters excluded.
var plainJSON = func() (t [256]bool) {
	for c := ' '; c < 0x7f; c++ {
		t[c] = c != '"' && c != '\\' && c != '<' && c != '>' && c != '&'
	}
	t[0x7f] = true
	return t
}()

func appendJSONString(dst []byte, s string) []byte {
	for i := range len(s) {
		if !plainJSON[s[i]] {
			b, err := json.Marshal(s)
			if err != nil { // cannot happen: every string has a JSON form
				b = []byte(`""`)
			}
			return append(dst, b...)
		}
	}
	dst = append(dst, '"')
	dst = append(dst, s...)
	return append(dst, '"')
}

func appendJSONTime(dst []byte, t *time.Time) ([]byte, bool) {
	dst = append(dst, '"')
	dst, err := t.AppendText(dst)
	return append(dst, '"'), err == nil
}

// appendOpaque lets encoding/json write a copy of the field (see unsafe.go, rule 2).
func (f *jsonField) appendOpaque(dst []byte, q unsafe.Pointer) ([]byte, bool) {
	cell := reflect.New(f.typ)
	cell.Elem().Set(reflect.NewAt(f.typ, q).Elem())
	b, err := json.Marshal(cell.Elem().Interface())
	if err != nil {
		return dst, false
	}
	return append(dst, b...), true
}

func (f *jsonField) isEmpty(q unsafe.Pointer) bool {
	switch f.kind {
	case jsonString:
		return *(*string)(q) == ""
	case jsonInt:
		return f.loadInt(q) == 0
	case jsonUint:
		return f.loadUint(q) == 0
	case jsonFloat:
		return f.loadFloat(q) == 0
	case jsonBool:
		return !*(*bool)(q)
	case jsonOpaque:
		v := reflect.NewAt(f.typ, q).Elem()
		switch v.Kind() {
		case reflect.Slice, reflect.Map, reflect.Array, reflect.String:
			return v.Len() == 0
		case reflect.Pointer, reflect.Interface, reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint,
			reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr, reflect.Float32, reflect.Float64:
			return v.IsZero()
		}
	}
	return false
}
