package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Bytes is a size in bytes, written as Flink does: "64m", "1 gb", "1048576".
type Bytes int64

// MiB is the size in mebibytes, rounded down.
func (b Bytes) MiB() int64 { return int64(b) >> 20 }

func (b Bytes) String() string {
	for _, u := range []struct {
		n int64
		s string
	}{{1 << 30, "gb"}, {1 << 20, "mb"}, {1 << 10, "kb"}} {
		if b != 0 && int64(b)%u.n == 0 {
			return strconv.FormatInt(int64(b)/u.n, 10) + u.s
		}
	}
	return strconv.FormatInt(int64(b), 10) + "b"
}

// ParseBytes parses a size with an optional unit (b, k, kb, m, mb, g, gb, t, tb, also written out); no unit means bytes.
func ParseBytes(s string) (Bytes, error) {
	num, unit := splitUnit(s)
	n, err := strconv.ParseInt(num, 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("not a size (want e.g. 512mb)")
	}
	shift, ok := map[string]uint{"": 0, "b": 0, "bytes": 0, "k": 10, "kb": 10, "kib": 10, "m": 20, "mb": 20, "mib": 20, "g": 30, "gb": 30, "gib": 30, "t": 40, "tb": 40, "tib": 40}[unit]
	if !ok {
		return 0, fmt.Errorf("unknown unit %q (want b, kb, mb, gb or tb)", unit)
	}
	if n > math.MaxInt64>>shift {
		return 0, fmt.Errorf("too large (want e.g. 512mb)")
	}
	return Bytes(n << shift), nil
}

// ParseDuration parses a duration with a unit as Flink does ("30 s", "100ms", "1 min", "2 h", "1 d"); no unit means milliseconds.
// Go's own forms ("1m30s") are understood too; "m" alone means minutes.
func ParseDuration(s string) (time.Duration, error) {
	s = strings.TrimSpace(s)
	num, unit := splitUnit(s)
	units := map[string]time.Duration{
		"": time.Millisecond, "ns": 1, "nano": 1, "us": time.Microsecond, "micro": time.Microsecond,
		"ms": time.Millisecond, "milli": time.Millisecond, "s": time.Second, "sec": time.Second, "second": time.Second,
		"m": time.Minute, "min": time.Minute, "minute": time.Minute, "h": time.Hour, "hour": time.Hour, "d": 24 * time.Hour, "day": 24 * time.Hour,
	}
	if len(unit) > 2 {
		unit = strings.TrimSuffix(unit, "s")
	}
	if n, err := strconv.ParseInt(num, 10, 64); err == nil {
		if u, ok := units[unit]; ok {
			if n < 0 && n != -1 || n > int64(math.MaxInt64/u) {
				return 0, fmt.Errorf("out of range (want e.g. 30 s, 100 ms, 1 min)")
			}
			return time.Duration(n) * u, nil
		}
	}
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		return d, nil
	}
	return 0, fmt.Errorf("not a duration (want e.g. 30 s, 100 ms, 1 min)")
}

func splitUnit(s string) (num, unit string) {
	s = strings.ToLower(strings.TrimSpace(s))
	i := 0
	for i < len(s) && (s[i] == '-' || s[i] >= '0' && s[i] <= '9') {
		i++
	}
	return s[:i], strings.TrimSpace(s[i:])
}

func formatDuration(d time.Duration) string {
	switch {
	case d == 0:
		return "0 ms"
	case d%time.Hour == 0:
		return fmt.Sprintf("%d h", d/time.Hour)
	case d%time.Minute == 0:
		return fmt.Sprintf("%d min", d/time.Minute)
	case d%time.Second == 0:
		return fmt.Sprintf("%d s", d/time.Second)
	case d%time.Millisecond == 0:
		return fmt.Sprintf("%d ms", d/time.Millisecond)
	}
	return d.String()
}
