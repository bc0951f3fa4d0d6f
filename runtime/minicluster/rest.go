package minicluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/thalweg/thalweg/checkpoint/coordinator"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/runtime/rest"
)

// checkFolder refuses folders that no file system is for.
func (c *Cluster) checkFolder(ctx context.Context, field, uri string) (string, error) {
	f, _, err := c.opts.FS.Resolve(ctx, uri)
	if err == nil {
		return uri, f.Close()
	}
	if errors.Is(err, fs.ErrScheme) {
		return "", fmt.Errorf("%s = %s: %w; give an absolute path, a file:// or an hdfs:// URI", field, uri, fs.ErrScheme)
	}
	return uri, nil // what else is wrong shows when it is used
}

func (c *Cluster) startREST(ctx context.Context) error {
	h := rest.New(rest.Options{Dispatcher: c.Dispatcher, TaskManagers: c.Resources, Config: c.conf, Started: time.Now(), Logger: c.opts.Logger, CheckFolder: c.checkFolder,
		TryFolder: func(ctx context.Context, uri string) error { return coordinator.TryFolder(ctx, c.opts.FS, uri) },
		Shutdown:  func() { _ = c.Dispatcher.Cancel(c.JobID) }}) // ended already is fine
	s, err := listen(ctx, c.opts.RESTAddress, h, c.opts.Logger)
	if err != nil {
		return err
	}
	c.stopREST = s.Close
	host, _, err := net.SplitHostPort(c.opts.RESTAddress)
	if err != nil || host == "" {
		host = "localhost"
	}
	_, port, err := net.SplitHostPort(s.Addr.String())
	if err != nil {
		return err
	}
	c.RESTURL = "http://" + net.JoinHostPort(host, port)
	return nil
}

// listen takes the first free port of an address, which may name a range of them.
func listen(ctx context.Context, address string, h http.Handler, log zerolog.Logger) (*rest.Server, error) {
	host, ports, err := net.SplitHostPort(address)
	first, last, ranged := strings.Cut(ports, "-")
	if err != nil || !ranged {
		return rest.Listen(ctx, address, h, log)
	}
	from, err := strconv.Atoi(first)
	to, lerr := strconv.Atoi(last)
	if err = errors.Join(err, lerr); err != nil || from > to {
		return nil, fmt.Errorf("minicluster: REST address %s: no range of ports (%w)", address, err)
	}
	for port := from; ; port++ {
		s, err := rest.Listen(ctx, net.JoinHostPort(host, strconv.Itoa(port)), h, log)
		if port == to || !errors.Is(err, syscall.EADDRINUSE) {
			return s, err
		}
	}
}
