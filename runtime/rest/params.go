package rest

import (
	"net/http"
	"regexp"
	"strconv"
	"strings"
)

// intParam reads an optional whole number within bounds.
func intParam(r *http.Request, name string, def, lo, hi int) (int, error) {
	s := r.URL.Query().Get(name)
	if s == "" {
		return def, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < lo || n > hi {
		return 0, bad("Query parameter %s = %q: want a whole number from %d to %d.", name, clip(s), lo, hi)
	}
	return n, nil
}

// listParam reads a comma-separated list of at most 1000 names.
func listParam(r *http.Request, name string) ([]string, error) {
	var out []string
	for _, s := range strings.Split(r.URL.Query().Get(name), ",") {
		if s = strings.TrimSpace(s); s != "" {
			out = append(out, s)
		}
	}
	if len(out) > 1000 {
		return nil, bad("Query parameter %s holds more than 1000 names.", name)
	}
	return out, nil
}

var hex32 = regexp.MustCompile(`^[0-9a-fA-F]{32}$`)

// triggerID checks a caller's trigger id; "" is fine.
func triggerID(id string) (string, error) {
	if id != "" && !hex32.MatchString(id) {
		return "", bad("triggerId %q: want 32 hex digits.", clip(id))
	}
	return strings.ToLower(id), nil
}
