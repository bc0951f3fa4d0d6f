package conf

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// String returns a value with ${} resolved and surrounding white space removed, or def when the key has no value or an
// empty one.
//
// Errors: *KeyError.
func (c *Configuration) String(key, def string) (string, error) {
	v, ok, err := c.Lookup(key)
	if err != nil {
		return "", err
	}
	if v = strings.TrimSpace(v); !ok || v == "" {
		return def, nil
	}
	return v, nil
}

// Strings returns a comma-separated list without empty elements; nil when unset.
//
// Errors: *KeyError.
func (c *Configuration) Strings(key string) ([]string, error) {
	v, err := c.String(key, "")
	if err != nil {
		return nil, err
	}
	var out []string
	for s := range strings.SplitSeq(v, ",") {
		if s = strings.TrimSpace(s); s != "" {
			out = append(out, s)
		}
	}
	return out, nil
}

// Bool returns true or false; case does not matter.
//
// Errors: *KeyError for any other word.
func (c *Configuration) Bool(key string, def bool) (bool, error) {
	v, err := c.String(key, "")
	switch {
	case err != nil:
		return false, err
	case v == "":
		return def, nil
	case strings.EqualFold(v, "true"):
		return true, nil
	case strings.EqualFold(v, "false"):
		return false, nil
	}
	return false, c.keyError(key, "want true or false")
}

// Int returns a decimal or 0x number.
//
// Errors: *KeyError.
func (c *Configuration) Int(key string, def int64) (int64, error) {
	v, err := c.String(key, "")
	if err != nil || v == "" {
		return def, err
	}
	base := 10
	s := v
	if h, ok := strings.CutPrefix(strings.ToLower(v), "0x"); ok {
		base, s = 16, h
	}
	n, err := strconv.ParseInt(s, base, 64)
	if err != nil {
		return 0, c.keyError(key, "want a whole number")
	}
	return n, nil
}

// Size returns a number of bytes; k, m, g, t, p, e are binary multiples, in either case.
//
// Errors: *KeyError. Source: hadoop-common StringUtils.TraditionalBinaryPrefix.
func (c *Configuration) Size(key string, def int64) (int64, error) {
	v, err := c.String(key, "")
	if err != nil || v == "" {
		return def, err
	}
	shift := 0
	s := strings.ToLower(v)
	if i := strings.IndexByte("kmgtpe", s[len(s)-1]); i >= 0 {
		shift = 10 * (i + 1)
		s = s[:len(s)-1]
	}
	n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
	if err != nil {
		return 0, c.keyError(key, "want a number of bytes, or one with k, m, g, t, p or e behind it")
	}
	if n > math.MaxInt64>>shift || n < math.MinInt64>>shift {
		return 0, c.keyError(key, "size out of range")
	}
	return n << shift, nil
}

var units = []struct {
	suffix string
	d      time.Duration
}{
	{"ns", time.Nanosecond}, {"us", time.Microsecond}, {"ms", time.Millisecond},
	{"s", time.Second}, {"m", time.Minute}, {"h", time.Hour}, {"d", 24 * time.Hour},
}

// Duration returns a time with one of the suffixes ns, us, ms, s, m, h, d. A plain number counts in unit, which for most
// of Hadoop's older keys is the one in their name (".ms", "-secs").
//
// Errors: *KeyError. Source: hadoop-common Configuration.getTimeDuration.
func (c *Configuration) Duration(key string, def, unit time.Duration) (time.Duration, error) {
	v, err := c.String(key, "")
	if err != nil || v == "" {
		return def, err
	}
	s := strings.ToLower(v)
	for _, u := range units {
		if rest, ok := strings.CutSuffix(s, u.suffix); ok {
			s, unit = rest, u.d
			break
		}
	}
	n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
	if err != nil {
		return 0, c.keyError(key, "want a whole number with one of ns, us, ms, s, m, h, d behind it")
	}
	if n > math.MaxInt64/int64(unit) || n < math.MinInt64/int64(unit) {
		return 0, c.keyError(key, "duration out of range")
	}
	return time.Duration(n) * unit, nil
}
