// Package folder says which folder a path or URI of a user names in all containers of a cluster. It is part of layer L5; the client, the submission and
// the application master's REST interface ask it, so that all of them refuse the same.
package folder

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/yarnrpc/conf"
)

// Error says that a folder cannot be used: one line that names the option, flag or field it came from, and says what to do.
type Error struct {
	Key  string
	Text string
	Err  error // the cause, nil where the value alone is the fault
}

func (e *Error) Error() string { return "folder: " + e.Text }
func (e *Error) Unwrap() error { return e.Err }

func refuse(key string, err error, format string, args ...any) error {
	return &Error{Key: key, Text: fmt.Sprintf(format, args...), Err: err}
}

// Of is the URI that value names in all containers of the cluster. key, an option or a flag, is named in messages. An absolute path
// without scheme is one of the default file system (fs.defaultFS), and so is a URI without authority and of the same scheme.
//
// Errors: *Error for a relative path, and for the local disk of a node (file://), unless the default file system is one.
//
// Source: Hadoop FileSystem.get and Path.makeQualified, Hadoop 3.4.
func Of(key, value string, hadoop *conf.Configuration) (string, error) {
	def, err := hadoop.DefaultFS()
	if err != nil {
		return "", err
	}
	d, err := url.Parse(def)
	if err != nil {
		return "", fmt.Errorf("folder: %s = %q is no URI: %w", conf.KeyDefaultFS, def, err)
	}
	base := d.Scheme + "://" + d.Host
	if strings.HasPrefix(value, "/") {
		return base + value, nil
	}
	u, err := fs.Parse(value)
	switch {
	case err != nil || u.Scheme == "" || !strings.HasPrefix(u.Path, "/"):
		return "", refuse(key, nil, "%s = %q is no folder: give an absolute path (of %s) or a URI such as %s/path", key, value, base, base)
	case u.Scheme == "file" && d.Scheme != "file":
		return "", refuse(key, nil, "%s = %s is on the local disk of each node, which the other containers do not see: give a folder that all share, such as %s%s", key, value, base, u.Path)
	case u.Host == "" && u.Scheme == d.Scheme:
		return base + u.Path, nil
	}
	return value, nil
}

// Target is Of for the folder of a savepoint, and refuses a scheme that files does not know.
//
// Errors: *Error.
func Target(ctx context.Context, key, value string, hadoop *conf.Configuration, files *fs.Registry) (string, error) {
	uri, err := Of(key, value, hadoop)
	if err != nil {
		return "", err
	}
	return uri, Known(ctx, files, key, uri)
}

// Known refuses a URI that no file system is for. What else may be wrong with it shows when it is used.
//
// Errors: *Error.
func Known(ctx context.Context, files *fs.Registry, key, uri string) error {
	f, _, err := files.Resolve(ctx, uri)
	switch {
	case err == nil:
		return f.Close()
	case errors.Is(err, fs.ErrScheme):
		return refuse(key, err, "%s = %s: %v; give an hdfs:// URI", key, uri, fs.ErrScheme)
	}
	return nil
}
