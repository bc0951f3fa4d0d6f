// Package shared counts who refers to the files that several checkpoints share. It is layer L2 and pure: no I/O, no clock; the caller
// deletes what is returned as unused.
//
// Main flow: a checkpoint's files are registered when it completes, before those of the checkpoints that it subsumes are unregistered,
// so that a file that both refer to is never unused in between. Source: Flink SharedStateRegistry.
//
// Invariants: a file is returned as unused exactly once, when its last checkpoint is unregistered; a checkpoint counts once per file.
package shared

import (
	"maps"
	"slices"
)

// Registry maps files (URIs) to the checkpoints that refer to them. Not safe for concurrent use; the zero value is empty.
type Registry struct {
	files map[string]map[int64]struct{}
	held  map[int64][]string
}

// Register adds a checkpoint with its shared files; duplicates count once. Registering a checkpoint again adds to its files.
func (r *Registry) Register(checkpoint int64, files []string) {
	if r.files == nil {
		r.files, r.held = map[string]map[int64]struct{}{}, map[int64][]string{}
	}
	if _, ok := r.held[checkpoint]; !ok {
		r.held[checkpoint] = nil
	}
	for _, f := range files {
		if r.files[f] == nil {
			r.files[f] = map[int64]struct{}{}
		}
		if _, dup := r.files[f][checkpoint]; !dup {
			r.files[f][checkpoint] = struct{}{}
			r.held[checkpoint] = append(r.held[checkpoint], f)
		}
	}
}

// Unregister removes a checkpoint and returns the files that no other refers to, sorted. Unknown checkpoints hold nothing.
func (r *Registry) Unregister(checkpoint int64) (unused []string) {
	for _, f := range r.held[checkpoint] {
		delete(r.files[f], checkpoint)
		if len(r.files[f]) == 0 {
			delete(r.files, f)
			unused = append(unused, f)
		}
	}
	delete(r.held, checkpoint)
	slices.Sort(unused)
	return unused
}

// Has reports whether a registered checkpoint refers to the file.
func (r *Registry) Has(file string) bool { return len(r.files[file]) > 0 }

// Files lists all registered files, sorted.
func (r *Registry) Files() []string { return slices.Sorted(maps.Keys(r.files)) }
