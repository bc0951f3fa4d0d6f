package state

import (
	"path"
	"strings"
)

// Path is where the file stands: its URI when Base is known, else Name. It is "" for inline content.
func (r FileRef) Path() string {
	if r.Name == "" || r.Base == "" {
		return r.Name
	}
	scheme, rest, ok := strings.Cut(r.Base, "://")
	if !ok {
		return path.Join(r.Base, r.Name)
	}
	authority, dir, _ := strings.Cut(rest, "/")
	return scheme + "://" + authority + path.Join("/", dir, r.Name)
}
