package submit

import (
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"github.com/thalweg/thalweg/am/container"
	"github.com/thalweg/thalweg/am/login"
	"github.com/thalweg/thalweg/config"
)

// sendKeytab puts the keytab, and a krb5.conf that is not the machine's own, into the application's folder, which its owner alone can read.
func (s *submission) sendKeytab(ctx context.Context, app *container.Application) error {
	keytab := config.KerberosKeytab.Value(s.Config)
	secure, err := s.Hadoop.Kerberos()
	if err != nil || !secure || keytab == "" || !config.ShipKeytab.Value(s.Config) {
		return err
	}
	if strings.Contains(config.LocalKeytab.Value(s.Config), "/") {
		return fmt.Errorf("submit: %s = %s: want the name of a file, or %s=false for a path that is on each node",
			config.LocalKeytab.Key, config.LocalKeytab.Value(s.Config), config.ShipKeytab.Key)
	}
	if app.Keytab, err = s.sendPrivate(ctx, keytab, config.LocalKeytab.Value(s.Config)); err != nil {
		return err
	}
	if conf := s.KerberosConf; conf != "" && !strings.Contains(conf, ":") {
		app.KerberosConf, err = s.sendPrivate(ctx, conf, login.ConfName)
	}
	return err
}

// sendPrivate sends a file that the owner alone may read.
func (s *submission) sendPrivate(ctx context.Context, from, name string) (*container.File, error) {
	in, err := os.Open(strings.TrimPrefix(from, "FILE:")) //nolint:gosec // the user's choice
	if err != nil {
		return nil, fmt.Errorf("submit: %w", err)
	}
	defer func() { _ = in.Close() }()
	f, dir, err := s.FS.Resolve(ctx, s.res.Staging)
	if err != nil {
		return nil, fmt.Errorf("submit: send %s: %w", from, err)
	}
	defer func() { _ = f.Close() }()
	to := path.Join(dir, name)
	w, err := f.Create(ctx, to, false)
	if err != nil {
		return nil, fmt.Errorf("submit: send %s: %w", from, err)
	}
	if err = f.Chmod(ctx, to, 0o600); err == nil { // before there is anything in it
		_, err = io.Copy(w, in)
	}
	if err != nil {
		_ = w.Abort()
		return nil, fmt.Errorf("submit: send %s: %w", from, err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("submit: send %s: %w", from, err)
	}
	info, err := f.Stat(ctx, to)
	if err != nil {
		return nil, fmt.Errorf("submit: send %s: %w", from, err)
	}
	return &container.File{Name: name, URI: s.res.Staging + "/" + name, Size: info.Size, ModTime: info.ModTime}, nil
}
