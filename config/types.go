package config

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

func stringOption(key, def, doc string) *Option[string] {
	return register(&Option[string]{Key: key, Default: def, Doc: doc, check: printable,
		parse: func(s string) (string, error) { return s, nil }, format: func(s string) string { return s }})
}

func enumOption(key, def, doc string, values ...string) *Option[string] {
	o := &Option[string]{Key: key, Default: def, Doc: doc + " One of: " + strings.Join(values, ", ") + ".",
		parse: func(s string) (string, error) { return strings.ToLower(strings.TrimSpace(s)), nil }, format: func(s string) string { return s }, values: values}
	o.check = func(s string) error {
		if !slices.Contains(values, s) {
			return fmt.Errorf("want one of %s%s", strings.Join(values, ", "), counterpart[key][s])
		}
		return nil
	}
	return register(o)
}

func intOption(key string, def int, doc string, check func(int) error) *Option[int] {
	return register(&Option[int]{Key: key, Default: def, Doc: doc, check: check, format: strconv.Itoa,
		parse: func(s string) (int, error) {
			n, err := strconv.Atoi(strings.TrimSpace(s))
			switch {
			case errors.Is(err, strconv.ErrRange):
				return 0, errors.New("want a smaller number")
			case err != nil:
				return 0, errors.New("want a whole number")
			}
			return n, nil
		}})
}

func floatOption(key string, def float64, doc string, check func(float64) error) *Option[float64] {
	return register(&Option[float64]{Key: key, Default: def, Doc: doc, check: check,
		format: func(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) },
		parse: func(s string) (float64, error) {
			f, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
			if err != nil || math.IsNaN(f) || math.IsInf(f, 0) || strings.ContainsAny(s, "_xX") { // Go's own forms of literals
				return 0, errors.New("want a number, such as 0.5")
			}
			return f, nil
		}})
}

func boolOption(key string, def bool, doc string) *Option[bool] {
	return register(&Option[bool]{Key: key, Default: def, Doc: doc, format: strconv.FormatBool, values: []string{"true", "false"},
		parse: func(s string) (bool, error) {
			switch strings.ToLower(strings.TrimSpace(s)) {
			case "true":
				return true, nil
			case "false":
				return false, nil
			}
			return false, fmt.Errorf("want true or false")
		}})
}

func durationOption(key string, def time.Duration, doc string, check func(time.Duration) error) *Option[time.Duration] {
	return register(&Option[time.Duration]{Key: key, Default: def, Doc: doc, check: check, parse: ParseDuration, format: formatDuration,
		hint: func(s string, d time.Duration) string {
			if _, unit := splitUnit(s); unit != "" {
				return ""
			}
			return fmt.Sprintf("without a unit that is %s; for seconds write %q", formatDuration(d), strings.TrimSpace(s)+" s")
		}})
}

func bytesOption(key string, def Bytes, doc string, check func(Bytes) error) *Option[Bytes] {
	return register(&Option[Bytes]{Key: key, Default: def, Doc: doc, check: check, parse: ParseBytes, format: Bytes.String,
		hint: func(s string, n Bytes) string {
			if _, unit := splitUnit(s); unit != "" {
				return ""
			}
			return fmt.Sprintf("without a unit that is %d bytes; for mebibytes write %q", n, strings.TrimSpace(s)+"m")
		}})
}

func listOption(key string, doc string) *Option[[]string] {
	return register(&Option[[]string]{Key: key, Doc: doc, check: func(v []string) error { return printable(strings.Join(v, "")) }, format: func(v []string) string { return strings.Join(v, ";") },
		parse: func(s string) ([]string, error) {
			var out []string
			for _, p := range strings.FieldsFunc(s, func(r rune) bool { return r == ';' || r == ',' }) {
				if p = strings.TrimSpace(p); p != "" {
					out = append(out, p)
				}
			}
			return out, nil
		}})
}
