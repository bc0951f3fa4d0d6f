package kerberos

import (
	"errors"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/jcmturner/gokrb5/v8/credentials"
	"github.com/jcmturner/gokrb5/v8/messages"
)

// EnvCache names the ticket cache.
const EnvCache = "KRB5CCNAME"

// cachePath finds the file of a ticket cache: name, else KRB5CCNAME, else default_ccache_name, else /tmp/krb5cc_UID.
//
// Source: MIT krb5 doc, ccache types FILE and DIR.
func (c *Config) cachePath(name string) (string, error) {
	if name == "" {
		name = os.Getenv(EnvCache)
	}
	uid := strconv.Itoa(os.Getuid())
	if name == "" && c.cacheName != "" {
		login := ""
		if u, err := user.Current(); err == nil {
			login = u.Username
		}
		name = strings.NewReplacer("%{uid}", uid, "%{euid}", strconv.Itoa(os.Geteuid()), "%{USERID}", uid, "%{username}", login,
			"%{TEMP}", os.TempDir(), "%{null}", "").Replace(c.cacheName)
	}
	if name == "" {
		name = "FILE:/tmp/krb5cc_" + uid
	}
	kind, path, typed := strings.Cut(name, ":")
	switch {
	case !typed || strings.HasPrefix(name, "/"):
		return name, nil
	case kind == "FILE":
		return path, nil
	case kind == "DIR" && strings.HasPrefix(path, ":"):
		return path[1:], nil
	case kind == "DIR":
		primary, err := os.ReadFile(filepath.Join(path, "primary"))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return filepath.Join(path, "tkt"), nil
		case err != nil:
			return "", loginError("ticket cache %s: %w", name, err)
		}
		return filepath.Join(path, filepath.Base(strings.TrimSpace(string(primary)))), nil
	}
	return "", loginError("ticket cache %s: caches of this kind belong to other processes and cannot be read: set %s=FILE:/tmp/krb5cc_%s and run kinit, or use %s",
		name, EnvCache, uid, KeyKeytab)
}

// readCache reads the tickets of a cache file. tgt is the ticket-granting ticket of the owner's realm that lasts longest.
func readCache(path string) (owner principal, tgt ticket, services []ticket, err error) {
	b, err := os.ReadFile(path) //nolint:gosec // the user's choice
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return owner, tgt, nil, loginError("there is no ticket cache at %s: run kinit, or set %s", path, KeyKeytab)
	case err != nil:
		return owner, tgt, nil, loginError("ticket cache: %w: run kinit as the user of this process, or set %s", err, EnvCache)
	}
	defer func() {
		if recover() != nil { // gokrb5 does not check lengths
			err = loginError("%s is no ticket cache, or a damaged one: run kinit", path)
		}
	}()
	var cache credentials.CCache
	if err := cache.Unmarshal(b); err != nil {
		return owner, tgt, nil, loginError("%s is no ticket cache: %w: run kinit", path, err)
	}
	owner = principal{cache.DefaultPrincipal.PrincipalName, cache.DefaultPrincipal.Realm}
	granting := "krbtgt/" + owner.realm
	for _, e := range cache.GetEntries() {
		t := ticket{key: e.Key, start: e.StartTime, end: e.EndTime, renewTill: e.RenewTill}
		if t.start.Unix() == 0 {
			t.start = e.AuthTime
		}
		var raw messages.Ticket
		if err := raw.Unmarshal(e.Ticket); err != nil {
			continue // of a kind that MIT krb5 alone knows
		}
		t.raw = raw
		switch {
		case raw.SName.PrincipalNameString() != granting:
			services = append(services, t)
		case t.end.After(tgt.end):
			tgt = t
		}
	}
	if tgt.end.IsZero() {
		return owner, tgt, nil, loginError("ticket cache %s of %s holds no ticket-granting ticket: run kinit", path, owner)
	}
	return owner, tgt, services, nil
}
