package kerberos

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jcmturner/gokrb5/v8/config"

	"github.com/thalweg/thalweg/yarnrpc/ipc"
)

// EnvConfig names the configuration files, separated by colons.
const EnvConfig = "KRB5_CONFIG"

// DefaultConfigPath is read when EnvConfig is not set.
const DefaultConfigPath = "/etc/krb5.conf"

// defaultUDPLimit is udp_preference_limit of MIT krb5, bytes: longer requests go by TCP first.
const defaultUDPLimit = 1465

// Config says which realms there are and how to reach their KDCs. It is safe for concurrent use.
type Config struct {
	paths     []string // read from, for messages
	krb       *config.Config
	realms    map[string][]kdc
	domains   map[string]string // host or .domain > realm, lower case
	dnsKDC    bool
	udpLimit  int
	cacheName string // default_ccache_name, may be empty

	mu   sync.Mutex
	last map[string]kdc // that answered last, by realm
}

// LoadConfig reads the files that KRB5_CONFIG names, else /etc/krb5.conf, as MIT krb5 does: include and includedir lines, the
// first of several values. A file that does not exist is skipped, unless none is there.
//
// Errors: ipc.ErrLogin with file and line.
func LoadConfig() (*Config, error) {
	paths := []string{DefaultConfigPath}
	if v := os.Getenv(EnvConfig); v != "" {
		paths = strings.Split(v, ":")
	}
	return LoadConfigFiles(paths...)
}

// LoadConfigFiles is LoadConfig with the given files.
func LoadConfigFiles(paths ...string) (*Config, error) {
	r := profileReader{root: &node{}}
	c := &Config{last: map[string]kdc{}}
	for _, p := range paths {
		err := r.readFile(p)
		switch {
		case err == nil:
			c.paths = append(c.paths, p)
		case errors.Is(err, fs.ErrNotExist) && len(paths) > 1:
		default:
			return nil, fmt.Errorf("kerberos: %w: configuration: %w (%s names the file)", ipc.ErrLogin, err, EnvConfig)
		}
	}
	if len(c.paths) == 0 {
		return nil, fmt.Errorf("kerberos: %w: no configuration: none of %s is there (%s names the files)", ipc.ErrLogin, strings.Join(paths, ", "), EnvConfig)
	}
	if err := c.interpret(r.root); err != nil {
		return nil, fmt.Errorf("kerberos: %w: %s: %w", ipc.ErrLogin, c.where(), err)
	}
	return c, nil
}

func (c *Config) where() string { return strings.Join(c.paths, ", ") }

// DefaultRealm is default_realm, or empty.
func (c *Config) DefaultRealm() string { return c.krb.LibDefaults.DefaultRealm }

// RealmOf is the realm of a host by [domain_realm], else the default realm.
func (c *Config) RealmOf(host string) string {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if r, ok := c.domains[host]; ok {
		return r
	}
	for rest := host; ; {
		i := strings.IndexByte(rest, '.')
		if i < 0 {
			return c.DefaultRealm()
		}
		if r, ok := c.domains[rest[i:]]; ok {
			return r
		}
		rest = rest[i+1:]
	}
}

func (c *Config) interpret(root *node) error {
	lib, realms := root.find("libdefaults"), root.find("realms")
	c.krb = config.New()
	d := &c.krb.LibDefaults
	d.DefaultRealm = first(lib, "default_realm")
	c.cacheName = first(lib, "default_ccache_name")

	var errs []error
	boolean := func(key string, def bool) bool {
		v, err := parseBool(first(lib, key), def)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", key, err))
		}
		return v
	}
	duration := func(key string, def time.Duration) time.Duration {
		v, err := parseDuration(first(lib, key), def)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", key, err))
		}
		return v
	}
	d.Forwardable = boolean("forwardable", false)
	d.Proxiable = boolean("proxiable", false)
	d.Canonicalize = boolean("canonicalize", false)
	d.NoAddresses = boolean("noaddresses", true)
	c.dnsKDC = boolean("dns_lookup_kdc", boolean("dns_fallback", true))
	d.TicketLifetime = duration("ticket_lifetime", 24*time.Hour)
	d.RenewLifetime = duration("renew_lifetime", 0)
	d.Clockskew = duration("clockskew", 5*time.Minute)
	c.udpLimit = defaultUDPLimit
	if v := first(lib, "udp_preference_limit"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 0 {
			errs = append(errs, fmt.Errorf("udp_preference_limit: %q: want a number of bytes", v))
		}
		c.udpLimit = n
	}
	errs = append(errs, c.encryptionTypes(lib))

	c.realms = map[string][]kdc{}
	for _, name := range realmNames(realms) {
		for _, key := range []string{"kdc", "primary_kdc", "master_kdc"} {
			for _, s := range realms {
				for _, r := range s.find(name) {
					for _, n := range r.find(key) {
						if k, err := parseKDC(n.value); err != nil {
							errs = append(errs, fmt.Errorf("realm %s: %w", name, err))
						} else if !slices.Contains(c.realms[name], k) {
							c.realms[name] = append(c.realms[name], k)
						}
					}
				}
			}
		}
	}
	c.domains = map[string]string{}
	for _, s := range root.find("domain_realm") {
		for _, n := range s.sub {
			if k := strings.ToLower(n.key); n.sub == nil && c.domains[k] == "" {
				c.domains[k] = n.value
			}
		}
	}
	return errors.Join(errs...)
}

// parseBool reads what MIT krb5 takes for one; "fallback", of dns_canonicalize_hostname, is never asked for here, since the name
// of a server is the one that Hadoop tells.
func parseBool(s string, def bool) (bool, error) {
	switch strings.ToLower(s) {
	case "":
		return def, nil
	case "y", "yes", "true", "t", "1", "on":
		return true, nil
	case "n", "no", "false", "nil", "0", "off":
		return false, nil
	}
	return def, fmt.Errorf("%q: want true or false", s)
}

// parseDuration reads seconds, h:m[:s], or a sum such as "1d 2h".
//
// Source: MIT krb5 lib/krb5/krb/x-deltat.y.
func parseDuration(s string, def time.Duration) (time.Duration, error) {
	bad := fmt.Errorf("%q: want a time such as 24h, 1d 2h, 86400 or 10:30", s)
	t := strings.ToLower(strings.Join(strings.Fields(s), ""))
	if t == "" {
		return def, nil
	}
	if n, err := strconv.ParseUint(t, 10, 31); err == nil {
		return time.Duration(n) * time.Second, nil //nolint:gosec // 31 bits
	}
	var total time.Duration
	if strings.Contains(t, ":") {
		parts := strings.Split(t, ":")
		if len(parts) > 3 {
			return def, bad
		}
		unit := time.Hour
		for _, p := range parts {
			n, err := strconv.ParseUint(p, 10, 31)
			if err != nil {
				return def, bad
			}
			total += time.Duration(n) * unit //nolint:gosec // 31 bits
			unit /= 60
		}
		return total, nil
	}
	for t != "" {
		i := strings.IndexFunc(t, func(r rune) bool { return r < '0' || r > '9' })
		if i <= 0 {
			return def, bad
		}
		n, err := strconv.ParseUint(t[:i], 10, 31)
		unit, ok := map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour}[t[i]]
		if err != nil || !ok {
			return def, bad
		}
		total += time.Duration(n) * unit //nolint:gosec // 31 bits
		t = t[i+1:]
	}
	return total, nil
}
