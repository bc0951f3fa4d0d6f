package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/thalweg/thalweg/test/kdc"
)

const realm = kdc.DefaultRealm

// KDC is the realm of a secured cluster: its krb5.conf, principals, keytabs and tickets. The rig runs the KDC itself, as the daemon named KDC.
func (c *Cluster) KDC() (*kdc.KDC, error) {
	if !c.state.Variant.Kerberos {
		return nil, fmt.Errorf("rig: the cluster in %s has no KDC: it is %q", c.layout.dir, c.state.Variant)
	}
	return kdc.New(kdc.Options{Dir: c.layout.kdc(), Port: c.state.PortBase + portKDC})
}

// Principal is the full name of a user of the realm.
func (c *Cluster) Principal(user string) string { return user + "@" + realm }

// User is who runs the daemons and, in a secured cluster, has a principal of the same name: containers run as this user, and logs are collected of this
// user's applications alone, since YARN's container executor here cannot change users.
func (c *Cluster) User() string { return c.state.User }

// Keytab is the keytab of a user (User, Alice, Bob, Gateway) or of a service (nn, dn, jn, rm, nm, HTTP, kafka).
func (c *Cluster) Keytab(name string) string { return c.layout.keytab(name) }

// TicketCache is a file with a ticket of User, hdfs (HDFS's administrator) or yarn (YARN's), made when the cluster started, valid for a day.
func (c *Cluster) TicketCache(name string) string { return c.layout.ticket(name) }

func (c *Cluster) krb5Config() string { return filepath.Join(c.layout.kdc(), "krb5.conf") }

// krb5Option points a JVM to the realm.
func (c *Cluster) krb5Option() []string {
	if !c.state.Variant.Kerberos {
		return nil
	}
	return []string{"-Djava.security.krb5.conf=" + c.krb5Config()}
}

// makeRealm makes the realm, its principals and keytabs, and the certificates, as far as they are missing. The KDC need not run.
func (c *Cluster) makeRealm(ctx context.Context) error {
	if err := errors.Join(c.makeCerts(), c.makeTokenKey()); err != nil {
		return err
	}
	k, err := c.KDC()
	if err != nil {
		return err
	}
	if err := k.Create(ctx); err != nil {
		return err
	}
	for _, dir := range []string{filepath.Dir(c.layout.keytab("x")), filepath.Dir(c.layout.ticket("x"))} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("rig: make %s: %w", dir, err)
		}
	}
	names := map[string]string{} // keytab to principal
	for _, s := range services() {
		names[s] = s + "/" + host
	}
	for _, u := range []string{Alice, Bob, Gateway, c.state.User} {
		names[u] = u
	}
	for name, principal := range names {
		if _, err := os.Stat(c.layout.keytab(name)); err == nil {
			continue
		}
		if err := k.AddPrincipal(ctx, principal, ""); err != nil {
			return err
		}
		if err := k.Keytab(ctx, c.layout.keytab(name), principal); err != nil {
			return err
		}
	}
	return nil
}

// tickets gets those that stock clients use; the KDC runs.
func (c *Cluster) tickets(ctx context.Context) error {
	k, err := c.KDC()
	if err != nil {
		return err
	}
	return errors.Join(
		k.Kinit(ctx, c.state.User, c.Keytab(c.state.User), c.layout.ticket(c.state.User)),
		k.Kinit(ctx, "nn/"+host, c.Keytab("nn"), c.layout.ticket("hdfs")),
		k.Kinit(ctx, "rm/"+host, c.Keytab("rm"), c.layout.ticket("yarn")),
	)
}

// CLIAs is CLI for another identity of a secured cluster: a user or service with a keytab, whose ticket is got for this call, or "" for nobody.
func (c *Cluster) CLIAs(ctx context.Context, name, tool string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, cliTimeout)
	defer cancel()
	dir, err := os.MkdirTemp("", "thalweg-rig-ticket")
	if err != nil {
		return "", fmt.Errorf("rig: ticket of %s: %w", name, err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	cache := filepath.Join(dir, "cache")
	if name != "" {
		k, err := c.KDC()
		if err != nil {
			return "", err
		}
		principal := name
		for _, s := range services() {
			if s == name {
				principal += "/" + host
			}
		}
		if err := k.Kinit(ctx, principal, c.Keytab(name), cache); err != nil {
			return "", err
		}
	}
	cmd := c.Command(ctx, tool, args...)
	cmd.Env = append(cmd.Env, "KRB5CCNAME=FILE:"+cache)
	return c.runCLI(ctx, cmd, "", tool, args)
}
