// Package logging makes the loggers of all processes, so that their lines have one form: JSON objects with the time in RFC 3339 to the
// millisecond, durations with their unit, each key once; or lines for people, coloured on a terminal only. It is layer L0 and imports nothing of ours. Loggers are
// passed by value; there is no global one.
package logging

import (
	"bytes"
	"io"
	"os"
	"strings"

	"github.com/mattn/go-isatty"
	"github.com/rs/zerolog"
)

// TimeFormat is the form of the time of each line.
const TimeFormat = "2006-01-02T15:04:05.000Z07:00"

// consoleTime is the same for people.
const consoleTime = "15:04:05.000"

func init() { // zerolog knows one form for the whole process
	zerolog.TimeFieldFormat = TimeFormat
	zerolog.DurationFieldFormat = zerolog.DurationFormatString // with the unit: 1.5s
}

// New returns a logger that writes JSON lines to w. A key that a logger was given twice (each part adds its own component to the logger
// that it got) is written once, with its last value.
func New(w io.Writer, level zerolog.Level) zerolog.Logger {
	return zerolog.New(unique{w}).Level(level).With().Timestamp().Logger()
}

// Console returns a logger that writes lines for people to w, with colours when it is a terminal and NO_COLOR is not set.
func Console(w io.Writer, level zerolog.Level) zerolog.Logger {
	return zerolog.New(zerolog.ConsoleWriter{
		Out: w, TimeFormat: consoleTime, NoColor: !colours(w), FieldsExclude: []string{detail}, FormatExtra: paragraph,
	}).Level(level).With().Timestamp().Logger()
}

// detail is the field of texts of several lines, such as stacks.
const detail = "detail"

// paragraph writes the detail below its line, as it is.
func paragraph(fields map[string]any, line *bytes.Buffer) error {
	text, _ := fields[detail].(string)
	for l := range strings.Lines(strings.TrimSpace(text)) {
		line.WriteString("\n    " + strings.TrimRight(l, "\n"))
	}
	return nil
}

func colours(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && isatty.IsTerminal(f.Fd()) && os.Getenv("NO_COLOR") == ""
}

// Level is the level of a name; info when it names none.
func Level(name string) zerolog.Level {
	if l, err := zerolog.ParseLevel(name); err == nil && name != "" {
		return l
	}
	return zerolog.InfoLevel
}

// unique drops fields that are followed by one of the same key. zerolog writes a line with one call.
type unique struct{ w io.Writer }

func (u unique) Write(line []byte) (int, error) {
	out := line
	if strip := repeated(line); len(strip) > 0 {
		out = make([]byte, 0, len(line))
		at := 0
		for _, s := range strip {
			out = append(out, line[at:s.from]...)
			at = s.to
		}
		out = append(out, line[at:]...)
	}
	if _, err := u.w.Write(out); err != nil {
		return 0, err
	}
	return len(line), nil
}

// span is a part of a line.
type span struct{ from, to int }

// repeated finds the fields of the object whose key comes again later, each with the comma behind it, in order. A line that is no JSON
// object has none.
func repeated(line []byte) []span {
	if len(line) == 0 || line[0] != '{' {
		return nil
	}
	var space [24]struct{ key, field span }
	fields := space[:0]
	depth, isKey := 0, false
	for i := 0; i < len(line); i++ {
		switch line[i] {
		case '"':
			start := i + 1
			for i++; i < len(line) && line[i] != '"'; i++ {
				if line[i] == '\\' {
					i++
				}
			}
			if depth == 1 && isKey && i < len(line) {
				fields = append(fields, struct{ key, field span }{span{start, i}, span{from: start - 1}})
				isKey = false
			}
		case '{', '[':
			depth++
			isKey = depth == 1
		case '}', ']':
			depth--
		case ',':
			if depth == 1 {
				if n := len(fields); n > 0 {
					fields[n-1].field.to = i + 1
				}
				isKey = true
			}
		}
	}
	var out []span
	for i, f := range fields {
		for _, later := range fields[i+1:] {
			if f.field.to > 0 && bytes.Equal(line[f.key.from:f.key.to], line[later.key.from:later.key.to]) {
				out = append(out, f.field)
				break
			}
		}
	}
	return out
}
