package task

import (
	"strings"
	"testing"

	"github.com/thalweg/thalweg/runtime/graph"
)

// The log names a vertex in full, unless its chain is long.
func TestVertexNamesInTheLog(t *testing.T) {
	long := "Source: numbers" + strings.Repeat(" -> Map", 10_000)
	for name, want := range map[string]string{
		"Source: numbers -> Map": "Source: numbers -> Map",
		long:                     "Source: numbers" + strings.Repeat(" -> Map", 25) + " -> ... (10001 operators)",
		strings.Repeat("é", 150): strings.Repeat("é", 100) + " -> ... (1 operators)",
	} {
		v := &graph.Vertex{Name: name, Operators: make([]graph.Operator, strings.Count(name, " -> ")+1)}
		if got := brief(v); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
