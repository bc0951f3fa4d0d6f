package rig

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

// storePassword protects the key stores of a test cluster: the same keys lie beside them as plain files.
const storePassword = "changeit"

// Users of secured clusters, beside the one that runs the rig. Gateway may act for alice (proxy user).
const (
	Alice   = "alice"
	Bob     = "bob"
	Gateway = "gateway"
)

// services are the first parts of the service principals, each NAME/localhost. The short names are hdfs for HDFS's and yarn for YARN's.
func services() []string { return []string{"nn", "dn", "jn", "rm", "nm", "HTTP", "kafka"} }

func (c *Cluster) service(name string) string { return name + "/" + host + "@" + realm }

// coreSecure is core-site.xml's part of security; nil in a simple cluster, as with those below.
func (c *Cluster) coreSecure() map[string]string {
	l, v := c.layout, c.state.Variant
	if !v.Kerberos {
		return nil
	}
	m := map[string]string{
		"hadoop.security.authentication": "kerberos",
		"hadoop.security.authorization":  "true",
		"hadoop.rpc.protection":          v.RPC,
		"hadoop.security.auth_to_local": strings.Join([]string{
			"RULE:[2:$1@$0]([ndj]n@" + realm + ")s/.*/hdfs/",
			"RULE:[2:$1@$0]([rn]m@" + realm + ")s/.*/yarn/",
			"RULE:[2:$1@$0](HTTP@" + realm + ")s/.*/HTTP/",
			"DEFAULT"}, "\n"),
		// Users need no account on the machine.
		"hadoop.user.group.static.mapping.overrides": fmt.Sprintf("hdfs=hadoop;yarn=hadoop;HTTP=hadoop;%s=users;%s=users;%s=users;%s=users;dr.who=",
			Alice, Bob, Gateway, c.state.User),
		"hadoop.proxyuser.yarn.hosts":                      "*", // the ResourceManager gets new tokens for applications
		"hadoop.proxyuser.yarn.groups":                     "*",
		"hadoop.proxyuser." + Gateway + ".hosts":           "*",
		"hadoop.proxyuser." + Gateway + ".users":           Alice,
		"hadoop.http.authentication.signature.secret.file": filepath.Join(l.tls(), "http.secret"),
		"hadoop.ssl.server.conf":                           "ssl-server.xml",
		"hadoop.ssl.client.conf":                           "ssl-client.xml",
	}
	if !v.SPNEGO {
		return m
	}
	return merge(m, map[string]string{
		"hadoop.http.filter.initializers":                     "org.apache.hadoop.security.AuthenticationFilterInitializer",
		"hadoop.http.authentication.type":                     "kerberos",
		"hadoop.http.authentication.simple.anonymous.allowed": "false",
		"hadoop.http.authentication.kerberos.principal":       c.service("HTTP"),
		"hadoop.http.authentication.kerberos.keytab":          l.keytab("HTTP"),
	})
}

func (c *Cluster) hdfsSecure() map[string]string {
	l, s := c.layout, c.state
	v := s.Variant
	if !v.Kerberos {
		return nil
	}
	m := map[string]string{
		"dfs.permissions.superusergroup":                     "hadoop",
		"dfs.http.policy":                                    "HTTPS_ONLY",
		"dfs.datanode.https.address":                         s.addr(portDataNodeHTTPS),
		"dfs.block.access.token.enable":                      "true",
		"dfs.data.transfer.protection":                       v.Data,
		"dfs.encrypt.data.transfer":                          strconv.FormatBool(v.Encrypt),
		"dfs.namenode.kerberos.principal":                    c.service("nn"),
		"dfs.namenode.keytab.file":                           l.keytab("nn"),
		"dfs.datanode.kerberos.principal":                    c.service("dn"),
		"dfs.datanode.keytab.file":                           l.keytab("dn"),
		"dfs.journalnode.kerberos.principal":                 c.service("jn"),
		"dfs.journalnode.keytab.file":                        l.keytab("jn"),
		"dfs.journalnode.kerberos.internal.spnego.principal": c.service("HTTP"),
		"dfs.namenode.kerberos.internal.spnego.principal":    c.service("HTTP"),
		"dfs.web.authentication.kerberos.principal":          c.service("HTTP"),
		"dfs.web.authentication.kerberos.keytab":             l.keytab("HTTP"),
	}
	if v.AES {
		m["dfs.encrypt.data.transfer.cipher.suites"] = "AES/CTR/NoPadding"
	}
	if !v.ShortTokens {
		return m
	}
	return merge(m, map[string]string{
		"dfs.namenode.delegation.token.renew-interval": "60000",
		"dfs.namenode.delegation.token.max-lifetime":   "120000",
		"dfs.namenode.delegation.key.update-interval":  "60000",
		"dfs.block.access.key.update.interval":         "1", // minutes
		"dfs.block.access.token.lifetime":              "2",
	})
}

func (c *Cluster) yarnSecure() map[string]string {
	l, v := c.layout, c.state.Variant
	if !v.Kerberos {
		return nil
	}
	m := map[string]string{
		"yarn.acl.enable":                                     "true",
		"yarn.admin.acl":                                      "yarn",
		"yarn.resourcemanager.principal":                      c.service("rm"),
		"yarn.resourcemanager.keytab":                         l.keytab("rm"),
		"yarn.nodemanager.principal":                          c.service("nm"),
		"yarn.nodemanager.keytab":                             l.keytab("nm"),
		"yarn.resourcemanager.proxy-user-privileges.enabled":  "true",
		"yarn.nodemanager.env-whitelist":                      "JAVA_HOME,HADOOP_CONF_DIR,PATH,LANG,TZ,JDK_JAVA_OPTIONS,KRB5_CONFIG",
		"yarn.resourcemanager.webapp.spnego-principal":        c.service("HTTP"),
		"yarn.resourcemanager.webapp.spnego-keytab-file":      l.keytab("HTTP"),
		"yarn.nodemanager.webapp.spnego-principal":            c.service("HTTP"),
		"yarn.nodemanager.webapp.spnego-keytab-file":          l.keytab("HTTP"),
		"yarn.resourcemanager.delegation.key.update-interval": "86400000",
	}
	if !v.ShortTokens {
		return m
	}
	return merge(m, map[string]string{
		"yarn.resourcemanager.delegation.token.renew-interval": "60000",
		"yarn.resourcemanager.delegation.token.max-lifetime":   "120000",
		"yarn.resourcemanager.delegation.key.update-interval":  "60000",
		// A key must live for more than three times this limit.
		"yarn.am.liveness-monitor.expiry-interval-ms":                        "18000",
		"yarn.resourcemanager.am-rm-tokens.master-key-rolling-interval-secs": "60",
	})
}

// queueACLs leave the queues to all, and their administration to YARN's administrator; a queue named alice takes alice's applications alone.
func (c *Cluster) queueACLs() map[string]string {
	if !c.state.Variant.Kerberos {
		return nil
	}
	q := "yarn.scheduler.capacity.root."
	return map[string]string{
		q + "queues":                          "default,small,alice",
		q + "default.capacity":                "85",
		q + "alice.capacity":                  "5",
		q + "alice.maximum-capacity":          "100",
		q + "alice.user-limit-factor":         "20",
		q + "acl_submit_applications":         " ", // one that is allowed in a queue is so in those below it
		q + "acl_administer_queue":            " ",
		q + "default.acl_submit_applications": "*",
		q + "small.acl_submit_applications":   "*",
		q + "alice.acl_submit_applications":   Alice,
		q + "default.acl_administer_queue":    " ",
		q + "small.acl_administer_queue":      " ",
		q + "alice.acl_administer_queue":      " ",
	}
}

func (c *Cluster) sslServer() map[string]string {
	m := map[string]string{}
	for k, v := range map[string]string{"keystore": "server.jks", "truststore": "trust.jks"} {
		m["ssl.server."+k+".location"] = filepath.Join(c.layout.tls(), v)
		m["ssl.server."+k+".password"] = storePassword
		m["ssl.server."+k+".type"] = "jks"
	}
	m["ssl.server.keystore.keypassword"] = storePassword
	return m
}

func (c *Cluster) sslClient() map[string]string {
	return map[string]string{
		"ssl.client.truststore.location": filepath.Join(c.layout.tls(), "trust.jks"),
		"ssl.client.truststore.password": storePassword,
		"ssl.client.truststore.type":     "jks",
	}
}

// secureNodeManager gives it what it needs to read its containers' logs (libhadoop.so), and their environment what Java needs to run in them.
func (c *Cluster) secureNodeManager(d *daemon) {
	if !c.state.Variant.Kerberos {
		return
	}
	d.jvm = append(d.jvm, "-Djava.library.path="+c.state.Native)
	d.env = append(d.env, "KRB5_CONFIG="+c.krb5Config(), "JDK_JAVA_OPTIONS="+strings.Join(append(c.krb5Option(), opens...), " "))
}
