package submit

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/yarnrpc/conf"
)

// ConfigError says that an option or a flag cannot be used as it is given: one line that names it and says what to do.
type ConfigError struct {
	Key  string
	Text string
	Err  error // the cause, nil where the value alone is the fault
}

func (e *ConfigError) Error() string { return "submit: " + e.Text }
func (e *ConfigError) Unwrap() error { return e.Err }

func refuse(key string, err error, format string, args ...any) error {
	return &ConfigError{Key: key, Text: fmt.Sprintf(format, args...), Err: err}
}

// Folder is the URI that value names in all containers of the cluster. key, an option or a flag, is named in messages. An absolute path
// without scheme is one of the default file system (fs.defaultFS), and so is a URI without authority and of the same scheme.
//
// Errors: *ConfigError for a relative path, and for the local disk of a node (file://), unless the default file system is one.
//
// Source: Hadoop FileSystem.get and Path.makeQualified, Hadoop 3.4.
func Folder(key, value string, hadoop *conf.Configuration) (string, error) {
	def, err := hadoop.DefaultFS()
	if err != nil {
		return "", err
	}
	d, err := url.Parse(def)
	if err != nil {
		return "", fmt.Errorf("submit: %s = %q is no URI: %w", conf.KeyDefaultFS, def, err)
	}
	base := d.Scheme + "://" + d.Host
	if strings.HasPrefix(value, "/") {
		return base + value, nil
	}
	u, err := url.Parse(value)
	switch {
	case err != nil || u.Scheme == "" || !strings.HasPrefix(u.Path, "/"):
		return "", refuse(key, nil, "%s = %q is no folder: give an absolute path (of %s) or a URI such as %s/path", key, value, base, base)
	case u.Scheme == "file" && d.Scheme != "file":
		return "", refuse(key, nil, "%s = %s is on the local disk of each node, which the other containers do not see: give a folder that all share, such as %s%s", key, value, base, u.Path)
	case u.Host == "" && u.Scheme == d.Scheme:
		return base + u.EscapedPath(), nil
	}
	return value, nil
}

// Target is Folder for the folder of a savepoint, and refuses a scheme that files does not know.
//
// Errors: *ConfigError.
func Target(ctx context.Context, key, value string, hadoop *conf.Configuration, files *fs.Registry) (string, error) {
	uri, err := Folder(key, value, hadoop)
	if err != nil {
		return "", err
	}
	return uri, known(ctx, files, key, uri)
}

// known refuses a URI that no file system is for.
func known(ctx context.Context, files *fs.Registry, key, uri string) error {
	f, _, err := files.Resolve(ctx, uri)
	switch {
	case err == nil:
		return f.Close()
	case errors.Is(err, fs.ErrScheme):
		return refuse(key, err, "%s = %s: %v; give an hdfs:// URI", key, uri, fs.ErrScheme)
	}
	return nil // what else is wrong shows when it is used
}

// folders are the options that name folders of all containers.
func folders() []*config.Option[string] {
	return []*config.Option[string]{config.CheckpointDir, config.SavepointDir, config.SavepointPath, config.HADir, config.YarnStaging}
}

// qualify writes the full URI into all options that name folders.
func (s *submission) qualify() error {
	for _, o := range folders() {
		if v := o.Value(s.Config); v != "" {
			uri, err := Folder(o.Key, v, s.Hadoop)
			if err != nil {
				return err
			}
			o.Set(s.Config, uri)
		}
	}
	return nil
}

// Root is the URI of the staging root: yarn.staging-directory, else .thalweg in the user's home of the default file system.
func Root(c config.Configuration, hadoop *conf.Configuration, user string) (string, error) {
	value := config.YarnStaging.Value(c)
	if value == "" {
		value = "/user/" + user + "/.thalweg"
	}
	root, err := Folder(config.YarnStaging.Key, value, hadoop)
	if err != nil {
		return "", err
	}
	if u, err := url.Parse(root); err != nil || u.Path == "/" {
		return "", refuse(config.YarnStaging.Key, nil, "%s = %q is no folder: give a URI such as hdfs://namenode:8020/user/%s/.thalweg", config.YarnStaging.Key, root, user)
	}
	return root, nil
}
