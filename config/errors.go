package config

import (
	"errors"
	"fmt"
	"strings"
)

// UnknownKeyError is a key that no option has.
type UnknownKeyError struct {
	Key     string
	Nearest string // "" when nothing is near
	Renamed string // the present key, for an older one of Flink's
	Reason  string // why there is none, for a key of Flink's
}

func (e *UnknownKeyError) Error() string {
	switch {
	case e.Renamed != "":
		return fmt.Sprintf("config: unknown option %q: it is %s now", e.Key, e.Renamed)
	case e.Reason != "":
		return fmt.Sprintf("config: unknown option %q: leave it out: %s", e.Key, e.Reason)
	case e.Nearest == "":
		return fmt.Sprintf("config: unknown option %q (thalweg config lists all)", e.Key)
	}
	return fmt.Sprintf("config: unknown option %q, did you mean %q?", e.Key, e.Nearest)
}

type problems []error

func (p problems) err() error { return errors.Join(p...) }

func hasPrefix(k string, prefixes []string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(k, p) {
			return true
		}
	}
	return false
}

func unknownKey(k string) error {
	if present, reason := flinks(k); present != "" || reason != "" {
		return &UnknownKeyError{Key: k, Renamed: present, Reason: reason}
	}
	const longest = 128 // what is longer is no misspelt key
	if len(k) > longest {
		return &UnknownKeyError{Key: k}
	}
	best, bestDist := "", typos(k)+1
	for _, known := range Keys() {
		if d := distance(k, known); d < bestDist {
			best, bestDist = known, d
		}
	}
	return &UnknownKeyError{Key: k, Nearest: best}
}

// typos is how many letters of a key may be wrong, missing or too many for it to be another one misspelt. More would take a key of Flink's
// that is not here for the next best one that is.
func typos(k string) int { return 1 + min(len(k)/10, 3) }

// distance is the Levenshtein distance.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		prev := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			prev, row[j] = row[j], min(row[j]+1, row[j-1]+1, prev+cost)
		}
	}
	return row[len(b)]
}
