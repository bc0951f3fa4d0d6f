package serde

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
	"unsafe"
)

// jsonReader decodes one message. Its methods return false to hand the message to encoding/json, whatever the reason.
type jsonReader struct {
	data   []byte
	i      int
	shared bool   // strings are views of text
	text   string // one copy of data, made at the first string
}

func (r *jsonReader) message(p *jsonProgram, v unsafe.Pointer) bool {
	return r.object(p, v) && r.space() == 0 && r.i == len(r.data)
}

// space skips white space and returns the next byte, 0 at the end.
func (r *jsonReader) space() byte {
	for r.i < len(r.data) {
		switch c := r.data[r.i]; c {
		case ' ', '\t', '\n', '\r':
			r.i++
		default:
			return c
		}
	}
	return 0
}

func (r *jsonReader) object(p *jsonProgram, v unsafe.Pointer) bool {
	if r.space() != '{' {
		return false
	}
	r.i++
	if r.space() == '}' {
		r.i++
		return true
	}
	for next := 0; ; next++ {
		if r.space() != '"' {
			return false
		}
		start := r.i + 1
		if !r.plainKey() {
			return false
		}
		key := r.data[start : r.i-1]
		if r.space() != ':' {
			return false
		}
		r.i++
		c := r.space()
		if next >= len(p.fields) || string(key) != p.fields[next].name {
			k, ok := p.byName[string(key)]
			if !ok {
				if p.foldsTo(key) || !r.skip(0) {
					return false
				}
				next--
				goto separator
			}
			next = k
		}
		if !r.field(&p.fields[next], v, c) {
			return false
		}
	separator:
		switch r.space() {
		case ',':
			r.i++
		case '}':
			r.i++
			return true
		default:
			return false
		}
	}
}

// plainKey passes over a name of ASCII characters without escapes.
func (r *jsonReader) plainKey() bool {
	for k := r.i + 1; k < len(r.data); k++ {
		c := r.data[k]
		if c == '"' {
			r.i = k + 1
			return true
		}
		if c < ' ' || c == '\\' || c >= utf8.RuneSelf {
			return false
		}
	}
	return false
}

func (p *jsonProgram) foldsTo(key []byte) bool {
	for i := range p.fields {
		if strings.EqualFold(p.fields[i].name, viewString(key)) {
			return true
		}
	}
	return false
}

func (r *jsonReader) field(f *jsonField, v unsafe.Pointer, c byte) bool {
	q := unsafe.Add(v, f.off)
	if f.kind == jsonOpaque {
		start := r.i
		return r.skip(0) && json.Unmarshal(r.data[start:r.i], reflect.NewAt(f.typ, q).Interface()) == nil
	}
	if c == 'n' { // null leaves the value as it is
		return r.literal("null")
	}
	switch f.kind {
	case jsonString:
		s, ok := r.str()
		if ok {
			*(*string)(q) = s
		}
		return ok
	case jsonInt:
		return r.int(q, f.size)
	case jsonUint:
		u, neg, ok := r.integer()
		if !ok || neg {
			return false
		}
		switch {
		case f.size == 8:
			*(*uint64)(q) = u
		case f.size == 4 && u <= 1<<32-1:
			*(*uint32)(q) = uint32(u)
		case f.size == 2 && u <= 1<<16-1:
			*(*uint16)(q) = uint16(u)
		case f.size == 1 && u <= 1<<8-1:
			*(*uint8)(q) = uint8(u)
		default:
			return false
		}
		return true
	case jsonFloat:
		start := r.i
		if !r.number() {
			return false
		}
		x, err := strconv.ParseFloat(viewString(r.data[start:r.i]), int(f.size*8))
		if err != nil {
			return false
		}
		if f.size == 4 {
			*(*float32)(q) = float32(x)
		} else {
			*(*float64)(q) = x
		}
		return true
	case jsonBool:
		if c == 't' && r.literal("true") {
			*(*bool)(q) = true
			return true
		}
		if r.literal("false") {
			*(*bool)(q) = false
			return true
		}
		return false
	case jsonTime:
		return r.time((*time.Time)(q))
	case jsonStruct:
		return r.object(f.sub, q)
	}
	return false
}

func (r *jsonReader) literal(s string) bool {
	if len(r.data)-r.i < len(s) || string(r.data[r.i:r.i+len(s)]) != s {
		return false
	}
	r.i += len(s)
	return true
}

func (r *jsonReader) int(q unsafe.Pointer, size uintptr) bool {
	u, neg, ok := r.integer()
	if !ok || u > 1<<63 || u == 1<<63 && !neg {
		return false
	}
	x := int64(u)
	if neg {
		x = -x
	}
	switch {
	case size == 8:
		*(*int64)(q) = x
	case size == 4 && x == int64(int32(x)):
		*(*int32)(q) = int32(x)
	case size == 2 && x == int64(int16(x)):
		*(*int16)(q) = int16(x)
	case size == 1 && x == int64(int8(x)):
		*(*int8)(q) = int8(x)
	default:
		return false
	}
	return true
}

// integer reads a number without fraction and exponent.
func (r *jsonReader) integer() (u uint64, neg, ok bool) {
	d, i := r.data, r.i
	if i < len(d) && d[i] == '-' {
		neg = true
		i++
	}
	start := i
	for ; i < len(d) && d[i]-'0' <= 9; i++ {
		u = u*10 + uint64(d[i]-'0')
	}
	n := i - start
	if n == 0 || n > 19 || d[start] == '0' && n > 1 || i < len(d) && (d[i] == '.' || d[i] == 'e' || d[i] == 'E') {
		return 0, false, false
	}
	r.i = i
	return u, neg, true
}

// number passes over a number.
func (r *jsonReader) number() bool {
	d, i := r.data, r.i
	digits := func() bool {
		s := i
		for i < len(d) && d[i]-'0' <= 9 {
			i++
		}
		return i > s
	}
	if i < len(d) && d[i] == '-' {
		i++
	}
	switch {
	case i < len(d) && d[i] == '0':
		i++
	case !digits():
		return false
	}
	if i < len(d) && d[i] == '.' {
		i++
		if !digits() {
			return false
		}
	}
	if i < len(d) && (d[i] == 'e' || d[i] == 'E') {
		i++
		if i < len(d) && (d[i] == '+' || d[i] == '-') {
			i++
		}
		if !digits() {
			return false
		}
	}
	r.i = i
	return true
}

// str reads a string; it is a copy, or a view of the copy that all strings of the message share.
func (r *jsonReader) str() (string, bool) {
	d := r.data
	if r.i >= len(d) || d[r.i] != '"' {
		return "", false
	}
	start := r.i + 1
	ascii := true
	for k := start; k < len(d); k++ {
		switch c := d[k]; {
		case c == '"':
			if !ascii && !utf8.Valid(d[start:k]) {
				return "", false
			}
			r.i = k + 1
			if !r.shared {
				return string(d[start:k]), true
			}
			if r.text == "" {
				r.text = string(d)
			}
			return r.text[start:k], true
		case c == '\\':
			return r.escaped(start)
		case c < ' ':
			return "", false
		case c >= utf8.RuneSelf:
			ascii = false
		}
	}
	return "", false
}

// escaped reads a string with escapes; surrogates are left to encoding/json.
func (r *jsonReader) escaped(start int) (string, bool) {
	d := r.data
	var b []byte
	for k := start; k < len(d); k++ {
		c := d[k]
		if c == '"' {
			r.i = k + 1
			return string(b), utf8.Valid(b)
		}
		if c < ' ' {
			return "", false
		}
		if c != '\\' {
			b = append(b, c)
			continue
		}
		k++
		if k >= len(d) {
			return "", false
		}
		switch d[k] {
		case '"', '\\', '/':
			b = append(b, d[k])
		case 'b':
			b = append(b, '\b')
		case 'f':
			b = append(b, '\f')
		case 'n':
			b = append(b, '\n')
		case 'r':
			b = append(b, '\r')
		case 't':
			b = append(b, '\t')
		case 'u':
			x, ok := hex4(d[k+1:])
			if !ok || x >= 0xd800 && x < 0xe000 {
				return "", false
			}
			b = utf8.AppendRune(b, x)
			k += 4
		default:
			return "", false
		}
	}
	return "", false
}

func hex4(d []byte) (rune, bool) {
	if len(d) < 4 {
		return 0, false
	}
	var x rune
	for _, c := range d[:4] {
		switch {
		case c >= '0' && c <= '9':
			x = x<<4 | rune(c-'0')
		case c >= 'a' && c <= 'f':
			x = x<<4 | rune(c-'a'+10)
		case c >= 'A' && c <= 'F':
			x = x<<4 | rune(c-'A'+10)
		default:
			return 0, false
		}
	}
	return x, true
}

// skip passes over any value, and accepts what encoding/json accepts.
func (r *jsonReader) skip(depth int) bool {
	if depth > 100 {
		return false
	}
	switch c := r.space(); c {
	case '"':
		return r.skipString()
	case 't':
		return r.literal("true")
	case 'f':
		return r.literal("false")
	case 'n':
		return r.literal("null")
	case '{', '[':
		end := c + 2 // ']' and '}' in ASCII
		r.i++
		if r.space() == end {
			r.i++
			return true
		}
		for {
			if c == '{' {
				if r.space() != '"' || !r.skipString() || r.space() != ':' {
					return false
				}
				r.i++
			}
			if !r.skip(depth + 1) {
				return false
			}
			switch r.space() {
			case ',':
				r.i++
			case end:
				r.i++
				return true
			default:
				return false
			}
		}
	default:
		return r.number()
	}
}

func (r *jsonReader) skipString() bool {
	d := r.data
	for k := r.i + 1; k < len(d); k++ {
		switch c := d[k]; {
		case c == '"':
			r.i = k + 1
			return true
		case c < ' ':
			return false
		case c == '\\':
			k++
			if k >= len(d) {
				return false
			}
			switch d[k] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			case 'u':
				if _, ok := hex4(d[k+1:]); !ok {
					return false
				}
				k += 4
			default:
				return false
			}
		}
	}
	return false
}

// time reads an RFC 3339 time: the form with Z at once, others through time.Time.
func (r *jsonReader) time(t *time.Time) bool {
	start := r.i
	if r.i >= len(r.data) || r.data[r.i] != '"' || !r.plainKey() {
		return false
	}
	if utcTime(r.data[start+1:r.i-1], t) {
		return true
	}
	var x time.Time
	if x.UnmarshalJSON(r.data[start:r.i]) != nil {
		return false
	}
	*t = x
	return true
}

// utcTime parses yyyy-mm-ddThh:mm:ss[.fraction]Z.
func utcTime(b []byte, t *time.Time) bool {
	if len(b) < 20 || len(b) > 30 || b[4] != '-' || b[7] != '-' || b[10] != 'T' || b[13] != ':' || b[16] != ':' || b[len(b)-1] != 'Z' {
		return false
	}
	y1, ok1 := two(b, 0)
	y2, ok2 := two(b, 2)
	mo, ok3 := two(b, 5)
	d, ok4 := two(b, 8)
	h, ok5 := two(b, 11)
	mi, ok6 := two(b, 14)
	s, ok7 := two(b, 17)
	y := y1*100 + y2
	if !(ok1 && ok2 && ok3 && ok4 && ok5 && ok6 && ok7) || mo < 1 || mo > 12 || d < 1 || d > daysIn(mo, y) || h > 23 || mi > 59 || s > 59 {
		return false
	}
	ns := 0
	if len(b) > 20 {
		if b[19] != '.' || len(b) < 22 {
			return false
		}
		for k := 20; k < 29; k++ {
			ns *= 10
			if k < len(b)-1 {
				if b[k]-'0' > 9 {
					return false
				}
				ns += int(b[k] - '0')
			}
		}
	}
	*t = time.Unix(daysBefore(y, mo, d)*86400+int64(h*3600+mi*60+s), int64(ns)).UTC()
	return true
}

func two(b []byte, i int) (int, bool) {
	x, y := b[i]-'0', b[i+1]-'0'
	return int(x)*10 + int(y), x <= 9 && y <= 9
}

func daysIn(m, y int) int {
	switch m {
	case 4, 6, 9, 11:
		return 30
	case 2:
		if y%4 == 0 && (y%100 != 0 || y%400 == 0) {
			return 29
		}
		return 28
	}
	return 31
}

// daysBefore is the number of days from 1970-01-01 to the date, in the proleptic Gregorian calendar: years are taken to start in
// March, so that the leap day is their last.
func daysBefore(y, m, d int) int64 {
	if m <= 2 {
		y--
		m += 12
	}
	return int64(365*y+floorDiv(y, 4)-floorDiv(y, 100)+floorDiv(y, 400)+(153*(m-3)+2)/5+d) - 719469
}

func floorDiv(a, b int) int {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
