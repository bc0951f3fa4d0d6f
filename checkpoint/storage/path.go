package storage

import (
	"fmt"
	"path"
	"strings"
)

// split cuts a URI into scheme and authority ("hdfs://nn:8020", "file://") and a clean absolute path. A plain absolute path is file://.
func split(uri string) (root, p string, err error) {
	if strings.HasPrefix(uri, "/") {
		return "file://", path.Clean(uri), nil
	}
	scheme, rest, ok := strings.Cut(uri, "://")
	if !ok || scheme == "" {
		return "", "", fmt.Errorf("%q is not a URI such as hdfs://host:8020/dir or an absolute path", uri)
	}
	i := strings.IndexByte(rest, '/')
	if i < 0 {
		return scheme + "://" + rest, "/", nil
	}
	return scheme + "://" + rest[:i], path.Clean(rest[i:]), nil
}

// clean normalises a URI: no double or trailing slashes, no dot segments. What does not parse comes back as it is.
func clean(uri string) string {
	root, p, err := split(uri)
	if err != nil {
		return uri
	}
	return root + p
}

// Resolve returns the URI of a file whose name is relative to the directory base.
func Resolve(base, name string) (string, error) {
	root, p, err := split(base)
	if err != nil {
		return "", err
	}
	if strings.HasPrefix(name, "/") || strings.Contains(name, "://") {
		return "", fmt.Errorf("%q is not a relative name", name)
	}
	return root + path.Join(p, name), nil
}

// Relative is the inverse of Resolve: the name of the file uri relative to the directory base. Both must be in one file system.
func Relative(base, uri string) (string, error) {
	root, p, err := split(base)
	if err != nil {
		return "", err
	}
	uroot, up, err := split(uri)
	if err != nil {
		return "", err
	}
	if root != uroot {
		return "", fmt.Errorf("%s and %s are in different file systems", base, uri)
	}
	from, to := segments(p), segments(up)
	n := 0
	for n < len(from) && n < len(to)-1 && from[n] == to[n] {
		n++
	}
	return strings.Repeat("../", len(from)-n) + strings.Join(to[n:], "/"), nil
}

func segments(p string) []string {
	return strings.FieldsFunc(p, func(r rune) bool { return r == '/' })
}
