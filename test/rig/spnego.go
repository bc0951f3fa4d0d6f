package rig

import (
	"fmt"
	"net/http"
	"sync"

	"github.com/jcmturner/gokrb5/v8/client"
	"github.com/jcmturner/gokrb5/v8/config"
	"github.com/jcmturner/gokrb5/v8/keytab"
	"github.com/jcmturner/gokrb5/v8/spnego"
)

// negotiator shows a ticket of the cluster's user to the web pages of a cluster whose pages want SPNEGO.
type negotiator struct {
	c    *Cluster
	next http.RoundTripper
	mu   sync.Mutex
}

// RoundTrip sends the request with a fresh login: few are made, and none is held between them.
func (n *negotiator) RoundTrip(req *http.Request) (*http.Response, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	cl, err := n.c.login(n.c.state.User)
	if err != nil {
		return nil, err
	}
	defer cl.Destroy()
	req = req.Clone(req.Context())
	if err := spnego.SetSPNEGOHeader(cl, req, "HTTP/"+host); err != nil {
		return nil, fmt.Errorf("rig: SPNEGO: %w", err)
	}
	return n.next.RoundTrip(req)
}

// login is a client of the realm with a ticket of the user.
func (c *Cluster) login(user string) (*client.Client, error) {
	conf, err := config.Load(c.krb5Config())
	if err != nil {
		return nil, fmt.Errorf("rig: SPNEGO: %w", err)
	}
	keys, err := keytab.Load(c.Keytab(user))
	if err != nil {
		return nil, fmt.Errorf("rig: SPNEGO: %w", err)
	}
	cl := client.NewWithKeytab(user, realm, keys, conf, client.DisablePAFXFAST(true))
	if err := cl.Login(); err != nil {
		return nil, fmt.Errorf("rig: SPNEGO: %w", err)
	}
	return cl, nil
}
