package task

import (
	"fmt"
	"strings"

	"github.com/thalweg/thalweg/runtime/graph"
)

// longestName is how many bytes of a vertex's name stand in each line of the log.
const longestName = 200

// brief is the name of a vertex for the log, which each operator's logger holds: of a long chain the first operators.
func brief(v *graph.Vertex) string {
	if len(v.Name) <= longestName {
		return v.Name
	}
	name := v.Name[:longestName]
	if i := strings.LastIndex(name, " -> "); i > 0 {
		name = name[:i]
	}
	return fmt.Sprintf("%s -> ... (%d operators)", strings.ToValidUTF8(name, ""), len(v.Operators))
}
