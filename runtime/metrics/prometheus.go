package metrics

import (
	"bufio"
	"cmp"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// ContentType is that of WritePrometheus's output.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// WritePrometheus prints samples in Prometheus's text format under the names and labels of Flink's reporter, so that its dashboards and
// alerts work. Samples of one name stand together, as the format demands.
//
// **Source:** Prometheus text exposition format 0.0.4; Flink AbstractPrometheusReporter.
func WritePrometheus(w io.Writer, samples []Sample) error {
	type line struct {
		name string
		s    *Sample
	}
	lines := make([]line, len(samples))
	for i := range samples {
		lines[i] = line{samples[i].Scope.prefix() + clean(samples[i].Name), &samples[i]}
	}
	slices.SortStableFunc(lines, func(a, b line) int { return cmp.Compare(a.name, b.name) })
	b := bufio.NewWriter(w)
	last := ""
	for _, l := range lines {
		if l.name != last {
			kind := "gauge"
			if l.s.Counter {
				kind = "counter"
			}
			writeAll(b, "# TYPE ", l.name, " ", kind, "\n")
			last = l.name
		}
		writeAll(b, l.name, "{")
		for i, kv := range l.s.Scope.labels() {
			if i > 0 {
				writeAll(b, ",")
			}
			writeAll(b, kv[0], `="`, escape.Replace(kv[1]), `"`)
		}
		writeAll(b, "} ", number(l.s.Value), "\n")
	}
	return b.Flush()
}

var escape = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

func writeAll(b *bufio.Writer, parts ...string) {
	for _, p := range parts {
		_, _ = b.WriteString(p) // the error sticks and comes back from Flush
	}
}

func number(v float64) string {
	switch {
	case math.IsInf(v, 1):
		return "+Inf"
	case math.IsInf(v, -1):
		return "-Inf"
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

// clean maps a name to what Prometheus allows.
func clean(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' {
			return r
		}
		return '_'
	}, name)
}
