package resourcemanager

import (
	"fmt"
	"strings"

	"github.com/thalweg/thalweg/config"
)

// memory says what the processes of a TaskManager take, by its last heartbeat, such as "the TaskManager 31mb, the worker of job 0a1b 480mb, of
// 512mb"; "" before the first one.
func (i TaskManagerInfo) memory() string {
	if i.RSSBytes == 0 && len(i.Workers) == 0 {
		return ""
	}
	mb := func(n int64) config.Bytes { return config.Bytes(n >> 20 << 20) }
	parts := []string{fmt.Sprintf("the TaskManager %s", mb(i.RSSBytes))}
	for _, w := range i.Workers {
		parts = append(parts, fmt.Sprintf("the worker of job %s %s", w.GetJobId(), mb(w.GetRssBytes())))
	}
	return fmt.Sprintf("%s, of %s", strings.Join(parts, ", "), mb(i.MemoryBytes))
}
