package minicluster

import (
	"context"
	"net"
	"time"

	"github.com/thalweg/thalweg/runtime/rest"
)

func (c *Cluster) startREST(ctx context.Context) error {
	h := rest.New(rest.Options{Dispatcher: c.Dispatcher, TaskManagers: c.Resources, Config: c.conf, Started: time.Now(), Logger: c.opts.Logger,
		Shutdown: func() { _ = c.Dispatcher.Cancel(c.JobID) }}) // ended already is fine
	s, err := rest.Listen(ctx, c.opts.RESTAddress, h, c.opts.Logger)
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
