package main

import (
	"fmt"
	"strings"
)

// longestLine bounds what oneLine returns, in bytes: a record's value in an error can be of any size.
const longestLine = 1000

// oneLine says in one line what a text says: its first line, or, where that only announces what follows ("the graph has mistakes:"), also
// the first that follows it and how many more there are. What is too long loses its middle: the end tends to say what to do.
func oneLine(s string) string {
	line, rest, _ := strings.Cut(strings.TrimSpace(s), "\n")
	line = strings.TrimSpace(line)
	for strings.HasSuffix(line, ":") {
		var next string
		next, rest, _ = strings.Cut(strings.TrimLeft(rest, "\n"), "\n")
		text := strings.TrimSpace(next)
		if text == "" {
			break
		}
		line += " " + text
		if n := alike(rest, indentation(next)); n > 0 {
			line += fmt.Sprintf(" (and %d more)", n)
		}
	}
	if len(line) > longestLine {
		const tail = longestLine / 3
		line = strings.ToValidUTF8(line[:longestLine-tail], "") + " ... " + strings.ToValidUTF8(line[len(line)-tail:], "")
	}
	return line
}

// alike counts the lines that a list goes on with: those of the same indentation, which a list has and a stack has not.
func alike(rest, indent string) int {
	n := 0
	for line := range strings.Lines(rest) {
		if indent != "" && strings.TrimSpace(line) != "" && indentation(line) == indent {
			n++
		}
	}
	return n
}

func indentation(line string) string { return line[:len(line)-len(strings.TrimLeft(line, " \t"))] }
