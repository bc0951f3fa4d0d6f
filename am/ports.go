package am

import (
	"iter"
	"strconv"
	"strings"
)

// portsOf yields the ports of "8081", "50100-50200" or a comma list of both, in order. What is no port is left out.
func portsOf(list string) iter.Seq[int] {
	return func(yield func(int) bool) {
		for _, part := range strings.Split(list, ",") {
			lo, hi, isRange := strings.Cut(strings.TrimSpace(part), "-")
			first, err := strconv.Atoi(strings.TrimSpace(lo))
			if err != nil {
				continue
			}
			last := first
			if isRange {
				if last, err = strconv.Atoi(strings.TrimSpace(hi)); err != nil {
					continue
				}
			}
			for p := max(first, 0); p <= min(last, 65535); p++ {
				if !yield(p) {
					return
				}
			}
		}
	}
}
