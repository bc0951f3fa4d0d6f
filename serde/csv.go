package serde

import (
	"bytes"
	"encoding"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"
)

// CSV is the format of lines of separated fields (RFC 4180), one record a line: a field in double quotes may hold the separator, and quotes
// doubled, but no end of a line. T is []string, whatever the number of fields, or a struct whose exported fields are the line's, in their
// order: strings, booleans, numbers, and types that implement encoding.TextMarshaler and TextUnmarshaler (time.Time in RFC 3339).
// Fields with the tag `csv:"-"` are left out. A line with more or fewer fields than the struct, or with one that does not parse, is an error
// that names the field. Blanks belong to strings and are dropped around numbers and booleans. An empty field is "", and an error for all else.
//
// Any other T is an error, which file.Source and file.Sink report when the graph is built (Validate).
func CSV[T any](opts ...CSVOption) Format[T] {
	c := csvFormat[T]{csvConfig: csvConfig{comma: ','}}
	for _, o := range opts {
		o(&c.csvConfig)
	}
	if r := c.comma; r == '"' || r == '\r' || r == '\n' || r == 0 || !utf8.ValidRune(r) || r == utf8.RuneError {
		c.err = fmt.Errorf("serde.Comma: %q cannot separate fields", r)
		return c
	}
	t := reflect.TypeFor[T]()
	switch {
	case t == reflect.TypeFor[[]string]():
	case t.Kind() == reflect.Struct:
		for _, f := range reflect.VisibleFields(t) {
			if len(f.Index) > 1 || f.Tag.Get("csv") == "-" || f.PkgPath != "" {
				continue
			}
			if f.Anonymous {
				c.err = errors.Join(c.err, fmt.Errorf("serde.CSV: %v: the embedded field %s: name it, or leave it out with `csv:\"-\"`", t, f.Name))
				continue
			}
			k, ok := csvKindOf(f.Type)
			if !ok {
				c.err = errors.Join(c.err, fmt.Errorf("serde.CSV: %v: a %v cannot be a field of a line (field %s): leave it out with `csv:\"-\"`", t, f.Type, f.Name))
			}
			c.fields = append(c.fields, csvField{f.Name, f.Index[0], k})
		}
		if len(c.fields) == 0 && c.err == nil {
			c.err = fmt.Errorf("serde.CSV: %v has no exported fields", t)
		}
	default:
		c.err = fmt.Errorf("serde.CSV: a line is a struct or a []string, not a %v", t)
	}
	return c
}

// CSVOption configures CSV.
type CSVOption func(*csvConfig)

// Comma sets what separates fields, ',' by default.
func Comma(r rune) CSVOption { return func(c *csvConfig) { c.comma = r } }

type csvConfig struct {
	comma rune
}

type csvFormat[T any] struct {
	csvConfig
	fields []csvField // of a struct
	err    error
}

type csvField struct {
	name  string
	index int
	kind  csvKind
}

type csvKind int

const (
	csvString csvKind = iota
	csvBool
	csvInt
	csvUint
	csvFloat
	csvText
)

func csvKindOf(t reflect.Type) (csvKind, bool) {
	if p := reflect.PointerTo(t); p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) && p.Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
		return csvText, true
	}
	switch t.Kind() {
	case reflect.String:
		return csvString, true
	case reflect.Bool:
		return csvBool, true
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return csvInt, true
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return csvUint, true
	case reflect.Float32, reflect.Float64:
		return csvFloat, true
	}
	return 0, false
}

func (c csvFormat[T]) Name() string { return "csv" }

// Validate reports a T that cannot be a line.
func (c csvFormat[T]) Validate() error { return c.err }

func (c csvFormat[T]) Deserialize(data []byte) (v T, err error) {
	if c.err != nil {
		return v, c.err
	}
	r := csv.NewReader(bytes.NewReader(data))
	r.Comma, r.FieldsPerRecord = c.comma, -1
	line, err := r.Read()
	if err != nil {
		if errors.Is(err, io.EOF) {
			return v, errors.New("the line is empty")
		}
		var p *csv.ParseError
		if errors.As(err, &p) {
			return v, fmt.Errorf("column %d: %w", p.Column, p.Err)
		}
		return v, err
	}
	if r.InputOffset() < int64(len(bytes.TrimRight(data, "\r\n"))) {
		return v, errors.New("it holds more than one line")
	}
	if s, ok := any(&v).(*[]string); ok {
		*s = line
		return v, nil
	}
	if len(line) != len(c.fields) {
		return v, fmt.Errorf("%d fields, want the %d of %T", len(line), len(c.fields), v)
	}
	at := reflect.ValueOf(&v).Elem()
	for i, f := range c.fields {
		if err := f.set(at.Field(f.index), line[i]); err != nil {
			return v, fmt.Errorf("field %d (%s): %w", i+1, f.name, err)
		}
	}
	return v, nil
}

func (f csvField) set(to reflect.Value, text string) error {
	if f.kind != csvString && f.kind != csvText {
		text = strings.TrimSpace(text)
	}
	var err error
	switch f.kind {
	case csvString:
		to.SetString(text)
	case csvBool:
		var b bool
		if b, err = strconv.ParseBool(text); err == nil {
			to.SetBool(b)
		}
	case csvInt:
		var n int64
		if n, err = strconv.ParseInt(text, 10, to.Type().Bits()); err == nil {
			to.SetInt(n)
		}
	case csvUint:
		var n uint64
		if n, err = strconv.ParseUint(text, 10, to.Type().Bits()); err == nil {
			to.SetUint(n)
		}
	case csvFloat:
		var n float64
		if n, err = strconv.ParseFloat(text, to.Type().Bits()); err == nil {
			to.SetFloat(n)
		}
	case csvText:
		return to.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(text))
	}
	var n *strconv.NumError
	if errors.As(err, &n) {
		return fmt.Errorf("%.100q is no %v: %w", text, to.Type(), n.Err)
	}
	return err
}

func (c csvFormat[T]) Serialize(dst []byte, v T) ([]byte, error) {
	if c.err != nil {
		return dst, c.err
	}
	line, ok := any(v).([]string)
	if !ok {
		at := reflect.ValueOf(&v).Elem()
		line = make([]string, len(c.fields))
		for i, f := range c.fields {
			text, err := f.get(at.Field(f.index))
			if err != nil {
				return dst, fmt.Errorf("field %d (%s): %w", i+1, f.name, err)
			}
			line[i] = text
		}
	}
	if len(line) == 0 {
		return dst, errors.New("a line has one field at least")
	}
	if len(line) == 1 && line[0] == "" { // an empty line is no record
		return append(dst, `""`...), nil
	}
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	w.Comma = c.comma
	if err := w.Write(line); err != nil {
		return dst, err
	}
	w.Flush()
	return append(dst, bytes.TrimSuffix(b.Bytes(), []byte("\n"))...), w.Error()
}

func (f csvField) get(from reflect.Value) (string, error) {
	switch f.kind {
	case csvBool:
		return strconv.FormatBool(from.Bool()), nil
	case csvInt:
		return strconv.FormatInt(from.Int(), 10), nil
	case csvUint:
		return strconv.FormatUint(from.Uint(), 10), nil
	case csvFloat:
		return strconv.FormatFloat(from.Float(), 'g', -1, from.Type().Bits()), nil
	case csvText:
		b, err := from.Addr().Interface().(encoding.TextMarshaler).MarshalText()
		return string(b), err
	}
	return from.String(), nil
}
