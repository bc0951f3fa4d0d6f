package conf

import (
	"net"
	"strconv"
	"strings"
)

// Keys of addresses and security that callers name in messages.
const (
	KeyDefaultFS           = "fs.defaultFS"
	KeyAuthentication      = "hadoop.security.authentication"
	KeyRPCProtection       = "hadoop.rpc.protection"
	KeyRMHostname          = "yarn.resourcemanager.hostname"
	KeyRMAddress           = "yarn.resourcemanager.address"
	KeyRMSchedulerAddress  = "yarn.resourcemanager.scheduler.address"
	KeyRMWebAddress        = "yarn.resourcemanager.webapp.address"
	KeyRMWebHTTPSAddress   = "yarn.resourcemanager.webapp.https.address"
	KeyRMHAEnabled         = "yarn.resourcemanager.ha.enabled"
	KeyRMHAIDs             = "yarn.resourcemanager.ha.rm-ids"
	KeyApplicationClasses  = "yarn.application.classpath"
	KeyNMExpiry            = "yarn.nm.liveness-monitor.expiry-interval-ms"
	KeyAMExpiry            = "yarn.am.liveness-monitor.expiry-interval-ms"
	KeyMinimumAllocationMB = "yarn.scheduler.minimum-allocation-mb"
	KeyPreemptAfter        = "yarn.resourcemanager.monitor.capacity.preemption.max_wait_before_kill"
)

// defaults are the values of core-default.xml, hdfs-default.xml and yarn-default.xml for the keys that Thalweg reads.
func defaults() map[string]property {
	m := map[string]string{
		KeyDefaultFS:                                 "file:///",
		KeyAuthentication:                            "simple",
		KeyRPCProtection:                             "authentication",
		"hadoop.security.authorization":              "false",
		"hadoop.tmp.dir":                             "/tmp/hadoop-${user.name}",
		"ipc.client.connect.timeout":                 "20000",
		"ipc.client.connection.maxidletime":          "10000",
		"ipc.ping.interval":                          "60000",
		"ipc.maximum.response.length":                "134217728",
		"ipc.client.fallback-to-simple-auth-allowed": "false",
		"dfs.replication":                            "3",
		"dfs.blocksize":                              "134217728",
		"dfs.client.use.datanode.hostname":           "false",
		"yarn.acl.enable":                            "false",
		"yarn.admin.acl":                             "*",
		KeyRMHostname:                                "0.0.0.0",
		KeyRMAddress:                                 "${yarn.resourcemanager.hostname}:8032",
		KeyRMSchedulerAddress:                        "${yarn.resourcemanager.hostname}:8030",
		KeyRMWebAddress:                              "${yarn.resourcemanager.hostname}:8088",
		KeyRMWebHTTPSAddress:                         "${yarn.resourcemanager.hostname}:8090",
		KeyRMHAEnabled:                               "false",
		"yarn.http.policy":                           "HTTP_ONLY",
		"yarn.resourcemanager.am.max-attempts":       "2",
		KeyAMExpiry:                                  "600000",
		KeyNMExpiry:                                  "600000",
		KeyMinimumAllocationMB:                       "1024",
		"yarn.scheduler.maximum-allocation-mb":       "8192",
		"yarn.scheduler.minimum-allocation-vcores":   "1",
		"yarn.scheduler.maximum-allocation-vcores":   "4",
		"yarn.client.failover-sleep-base-ms":         "500",
		"yarn.log-aggregation-enable":                "false",
		"yarn.nodemanager.remote-app-log-dir":        "/tmp/logs",
	}
	p := make(map[string]property, len(m))
	for k, v := range m {
		p[k] = property{value: v}
	}
	return p
}

// deprecated maps old names to the ones in use. Source: hadoop-common DeprecatedProperties.
var deprecated = map[string]string{
	"fs.default.name":                     KeyDefaultFS,
	"dfs.block.size":                      "dfs.blocksize",
	"hadoop.native.lib":                   "io.native.lib.available",
	"dfs.federation.nameservices":         "dfs.nameservices",
	"dfs.federation.nameservice.id":       "dfs.nameservice.id",
	"yarn.resourcemanager.am.max-retries": "yarn.resourcemanager.am.max-attempts",
	"dfs.umaskmode":                       "fs.permissions.umask-mode",
}

func canonical(key string) string {
	if k, ok := deprecated[key]; ok {
		return k
	}
	return key
}

// Kerberos reports whether the cluster authenticates with Kerberos.
//
// Errors: *KeyError for another word than simple and kerberos.
func (c *Configuration) Kerberos() (bool, error) {
	v, err := c.String(KeyAuthentication, "simple")
	switch {
	case err != nil:
		return false, err
	case strings.EqualFold(v, "kerberos"):
		return true, nil
	case strings.EqualFold(v, "simple"):
		return false, nil
	}
	return false, c.keyError(KeyAuthentication, "want simple or kerberos")
}

// DefaultFS is the URI of the default file system.
//
// Errors: *KeyError.
func (c *Configuration) DefaultFS() (string, error) { return c.String(KeyDefaultFS, "file:///") }

// ResourceManagers are the addresses of the ResourceManager's client port: one, or one per id of
// yarn.resourcemanager.ha.rm-ids when HA is on.
//
// Errors: *KeyError.
func (c *Configuration) ResourceManagers() ([]string, error) {
	return c.rmAddresses(KeyRMAddress, 8032)
}

// Schedulers are the addresses of the ResourceManager's scheduler port, where ApplicationMasters register.
//
// Errors: *KeyError.
func (c *Configuration) Schedulers() ([]string, error) {
	return c.rmAddresses(KeyRMSchedulerAddress, 8030)
}

// WebAddresses are the host:port of the ResourceManager's web pages, those for HTTPS when yarn.http.policy says so.
//
// Errors: *KeyError.
func (c *Configuration) WebAddresses() (addrs []string, https bool, err error) {
	p, err := c.String("yarn.http.policy", "HTTP_ONLY")
	if err != nil {
		return nil, false, err
	}
	if p == "HTTPS_ONLY" {
		addrs, err = c.rmAddresses(KeyRMWebHTTPSAddress, 8090)
		return addrs, true, err
	}
	addrs, err = c.rmAddresses(KeyRMWebAddress, 8088)
	return addrs, false, err
}

func (c *Configuration) rmAddresses(key string, port int) ([]string, error) {
	ha, err := c.Bool(KeyRMHAEnabled, false)
	if err != nil {
		return nil, err
	}
	if !ha {
		a, err := c.Address(key, port)
		return []string{a}, err
	}
	ids, err := c.Strings(KeyRMHAIDs)
	if err != nil {
		return nil, err
	}
	if len(ids) == 0 {
		return nil, c.keyError(KeyRMHAIDs, KeyRMHAEnabled+" is true: list the ids of the ResourceManagers, for example rm1,rm2")
	}
	var out []string
	for _, id := range ids {
		k := key + "." + id
		if _, ok := c.Raw(k); !ok {
			k = KeyRMHostname + "." + id
			if _, ok := c.Raw(k); !ok {
				return nil, c.keyError(k, "set it, or "+key+"."+id+": "+KeyRMHAIDs+" lists "+id)
			}
		}
		a, err := c.Address(k, port)
		if err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	return out, nil
}

// Address returns a host:port; a host alone gets port. The wildcard host means this machine, as for Hadoop's clients.
//
// Errors: *KeyError.
func (c *Configuration) Address(key string, port int) (string, error) {
	v, err := c.String(key, "")
	if err != nil {
		return "", err
	}
	if v == "" {
		return "", c.keyError(key, "want host:port")
	}
	host, p := v, strconv.Itoa(port)
	if strings.Contains(v, ":") {
		if host, p, err = net.SplitHostPort(v); err != nil {
			return "", c.keyError(key, "want host:port")
		}
	}
	n, err := strconv.Atoi(p)
	if err != nil || n < 1 || n > 65535 || host == "" || strings.ContainsAny(host, " /${}") {
		return "", c.keyError(key, "want host:port, got "+strconv.Quote(v))
	}
	if host == "0.0.0.0" || host == "::" {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, p), nil
}
