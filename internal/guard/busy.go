package guard

import (
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// Busy is where the program's code is at work in goroutines that a package of this module has called it from, such as "runtime/task": file:line
// of the innermost of it, sorted, each once.
func Busy(pkg string) (sites []string) {
	buf := make([]byte, 1<<20)
	buf = buf[:runtime.Stack(buf, true)]
	for g := range strings.SplitSeq(string(buf), "\n\n") {
		if !strings.Contains(g, "\n"+ours+pkg+".") {
			continue
		}
		lines := strings.Split(g, "\n")
		for i := 1; i+1 < len(lines); i += 2 {
			if f, ok := frameOf(lines[i], lines[i+1]); ok && userCode(f) {
				sites = append(sites, filepath.Base(f.File)+":"+strconv.Itoa(f.Line))
				break
			}
		}
	}
	slices.Sort(sites)
	return slices.Compact(sites)
}

// frameOf reads the two lines of a frame, such as "main.work(0x1)" and "\t/src/main.go:12 +0x1b".
func frameOf(function, place string) (f runtime.Frame, ok bool) {
	place, _, _ = strings.Cut(strings.TrimSpace(place), " ")
	colon := strings.LastIndexByte(place, ':')
	paren := strings.LastIndexByte(function, '(')
	if colon < 0 || paren < 0 || strings.HasPrefix(function, "created by ") {
		return f, false
	}
	line, err := strconv.Atoi(place[colon+1:])
	return runtime.Frame{Function: function[:paren], File: place[:colon], Line: line}, err == nil
}
