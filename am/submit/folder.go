package submit

import (
	"context"
	"errors"
	"fmt"

	"github.com/thalweg/thalweg/am/folder"
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

// Folder is folder.Of.
//
// Errors: *ConfigError.
func Folder(key, value string, hadoop *conf.Configuration) (string, error) {
	uri, err := folder.Of(key, value, hadoop)
	return uri, configError(err)
}

// Target is folder.Target.
//
// Errors: *ConfigError.
func Target(ctx context.Context, key, value string, hadoop *conf.Configuration, files *fs.Registry) (string, error) {
	uri, err := folder.Target(ctx, key, value, hadoop, files)
	return uri, configError(err)
}

func known(ctx context.Context, files *fs.Registry, key, uri string) error {
	return configError(folder.Known(ctx, files, key, uri))
}

func configError(err error) error {
	var f *folder.Error
	if errors.As(err, &f) {
		return &ConfigError{Key: f.Key, Text: f.Text, Err: f.Err}
	}
	return err
}

// folders are the options that name folders of all containers.
func folders() []*config.Option[string] {
	return []*config.Option[string]{config.CheckpointDir, config.SavepointDir, config.SavepointPath, config.HADir, config.YarnStaging, config.ArchiveDir}
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
	if u, err := fs.Parse(root); err != nil || u.Path == "/" {
		return "", refuse(config.YarnStaging.Key, nil, "%s = %q is no folder: give a URI such as hdfs://namenode:8020/user/%s/.thalweg", config.YarnStaging.Key, root, user)
	}
	return root, nil
}
