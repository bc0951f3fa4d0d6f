package kerberos

import (
	"context"
	"fmt"
	"net"
	"path"
	"slices"
	"strings"

	"github.com/thalweg/thalweg/yarnrpc/ipc"
)

// ServerPrincipal is whom a client wants to talk to.
type ServerPrincipal = ipc.ServerPrincipal

// checkServer compares what the server says it is with what it shall be, and returns the realm to ask for a ticket in.
//
// Source: hadoop-common SaslRpcClient.getServerPrincipal.
func (c *Config) checkServer(ctx context.Context, s ServerPrincipal, o ipc.Offer) (realm string, err error) {
	if o.Protocol == "" || o.ServerID == "" {
		return "", fmt.Errorf("kerberos: %w: the server does not say which principal it is", ipc.ErrMalformed)
	}
	says := o.Protocol + "/" + o.ServerID
	realm = c.RealmOf(o.ServerID)
	if s.Pattern != "" {
		if ok, err := path.Match(strings.ReplaceAll(s.Pattern, "/", "\x00"), strings.ReplaceAll(says+"@"+realm, "/", "\x00")); err != nil || !ok {
			return "", loginError("server at %s is %s@%s, which %s.pattern = %s does not allow", o.Addr, says, realm, s.Key, s.Pattern)
		}
		return realm, nil
	}
	if s.Name == "" {
		return "", loginError("server at %s is %s: set %s, so that no other server can take its place", o.Addr, says, s.Key)
	}
	name, wantRealm, _ := strings.Cut(s.Name, "@")
	service, host, ok := strings.Cut(name, "/")
	if !ok {
		return "", loginError("%s = %s: want service/host@REALM or service/_HOST@REALM", s.Key, s.Name)
	}
	if wantRealm != "" {
		realm = wantRealm
	}
	var hosts []string
	if host == ipc.HostPattern {
		hosts = hostNames(ctx, o.Addr)
	} else {
		hosts = []string{strings.ToLower(host)}
	}
	if service != o.Protocol || !slices.Contains(hosts, strings.ToLower(o.ServerID)) {
		return "", loginError("server at %s is %s, not %s, as %s = %s wants it", o.Addr, says, service+"/"+strings.Join(hosts, " or "), s.Key, s.Name)
	}
	return realm, nil
}

// hostNames are the names of a host:port that was dialed: as it was written, else what its address resolves to.
func hostNames(ctx context.Context, addr string) []string {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		host = addr
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	names := []string{host}
	ips := []string{host}
	if net.ParseIP(host) == nil { // Java takes the name that the address resolves to, so that short names and aliases work
		if ips, err = net.DefaultResolver.LookupHost(ctx, host); err != nil {
			return names
		}
	}
	for _, ip := range ips {
		back, _ := net.DefaultResolver.LookupAddr(ctx, ip)
		for _, n := range back {
			if n = strings.ToLower(strings.TrimSuffix(n, ".")); !slices.Contains(names, n) {
				names = append(names, n)
			}
		}
	}
	return names
}
