package rig

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// Sizes of a NodeManager, and with them the largest container.
const (
	nodeMemoryMB = 4096
	nodeVcores   = 8
)

// writeConf renders every configuration file and wrapper script. The values follow from the state, so rendering again changes nothing.
func (c *Cluster) writeConf() error {
	l, s := c.layout, c.state
	files := map[string][]byte{
		"core-site.xml":              siteXML(c.coreSite(), s.Core),
		"hdfs-site.xml":              siteXML(c.hdfsSite(), s.HDFS),
		"yarn-site.xml":              siteXML(c.yarnSite(), s.YARN),
		"capacity-scheduler.xml":     siteXML(c.capacityScheduler(), nil),
		"log4j-daemon.properties":    []byte(log4jDaemon),
		"log4j-client.properties":    []byte(log4jClient),
		"log4j2-daemon.properties":   []byte(log4j2Daemon),
		"log4j2-client.properties":   []byte(log4j2Client),
		"kafka.properties":           properties(c.kafkaProperties(), s.KafkaConfig),
		"kafka-client.properties":    properties(map[string]string{"bootstrap.servers": s.addr(portKafka)}, nil),
		"container-log4j.properties": []byte(log4jClient),
	}
	if s.Variant.Kerberos {
		files["ssl-server.xml"], files["ssl-client.xml"] = siteXML(c.sslServer(), nil), siteXML(c.sslClient(), nil)
	}
	if c.has(ZooKeeper) {
		files["zookeeper.properties"] = properties(c.zooKeeperProperties(), nil)
	}
	for name, b := range files {
		if err := writeFile(filepath.Join(l.conf(), name), b, 0o644); err != nil {
			return err
		}
	}
	if _, err := os.Stat(l.excluded()); err != nil {
		if err := writeFile(l.excluded(), nil, 0o644); err != nil {
			return err
		}
	}
	for _, d := range s.Daemons {
		if !c.ownConf(d) {
			continue
		}
		own := map[string][]byte{
			"core-site.xml": files["core-site.xml"],
			"hdfs-site.xml": siteXML(merge(merge(c.hdfsSite(), c.dataNodeSite(d)), c.nameNodeSite(d)), s.HDFS),
			"yarn-site.xml": siteXML(merge(merge(c.yarnSite(), c.nodeManagerSite(d)), c.resourceManagerSite(d)), s.YARN),
		}
		for f, b := range own {
			if err := writeFile(filepath.Join(l.confOf(d), f), b, 0o644); err != nil {
				return err
			}
		}
	}
	// The HDFS jars carry no web applications; the daemons want the folders.
	for _, w := range []string{"hdfs", "datanode", "secondary", "journal", "static"} {
		p := filepath.Join(l.webapps(), "webapps", w, "WEB-INF", "web.xml")
		if err := writeFile(p, []byte(`<web-app xmlns="http://java.sun.com/xml/ns/javaee" version="2.5"/>`+"\n"), 0o644); err != nil {
			return err
		}
	}
	return c.writeWrappers()
}

func (c *Cluster) coreSite() map[string]string {
	m := map[string]string{
		"fs.defaultFS":   c.defaultFS(),
		"hadoop.tmp.dir": c.layout.tmp("hadoop"),
		// The daemons are restarted under the eyes of their clients: try again each second, not each ten.
		"ipc.client.connect.retry.interval": "1000",
	}
	return merge(merge(m, c.coreSecure()), c.coreHA())
}

func (c *Cluster) hdfsSite() map[string]string {
	l, s := c.layout, c.state
	m := map[string]string{
		"dfs.datanode.data.dir":                                "file://" + l.data("datanode"),
		"dfs.datanode.address":                                 s.addr(portDataNode),
		"dfs.datanode.ipc.address":                             s.addr(portDataNodeIPC),
		"dfs.datanode.http.address":                            s.addr(portDataNodeHTTP),
		"dfs.datanode.hostname":                                host,
		"dfs.replication":                                      "1",
		"dfs.permissions.enabled":                              "true",
		"dfs.namenode.safemode.extension":                      "0",
		"dfs.namenode.heartbeat.recheck-interval":              "5000", // a dead DataNode is known after 40 s, not 10 min
		"dfs.datanode.directoryscan.interval":                  "-1",
		"dfs.namenode.fs-limits.min-block-size":                "1048576",
		"dfs.namenode.secondary.http-address":                  "localhost:0",
		"dfs.namenode.datanode.registration.ip-hostname-check": "false",
	}
	return merge(merge(m, c.hdfsSecure()), c.nameNodes())
}

func (c *Cluster) yarnSite() map[string]string {
	l, s := c.layout, c.state
	m := map[string]string{
		"yarn.resourcemanager.am.max-attempts": "4",
		"yarn.resourcemanager.scheduler.class": "org.apache.hadoop.yarn.server.resourcemanager.scheduler.capacity.CapacityScheduler",
		// Applications survive a restart of the ResourceManager.
		"yarn.resourcemanager.recovery.enabled":                 "true",
		"yarn.resourcemanager.work-preserving-recovery.enabled": "true",
		"yarn.resourcemanager.store.class":                      "org.apache.hadoop.yarn.server.resourcemanager.recovery.LeveldbRMStateStore",
		"yarn.resourcemanager.leveldb-state-store.path":         l.data("resourcemanager"),
		"yarn.resourcemanager.connect.retry-interval.ms":        "1000",
		"yarn.nm.liveness-monitor.expiry-interval-ms":           "60000",
		"yarn.resourcemanager.nodes.exclude-path":               l.excluded(),
		// Small containers; a NodeManager of 4 GiB is the largest one.
		"yarn.scheduler.minimum-allocation-mb":     "64",
		"yarn.scheduler.increment-allocation-mb":   "64",
		"yarn.scheduler.maximum-allocation-mb":     strconv.Itoa(nodeMemoryMB),
		"yarn.scheduler.maximum-allocation-vcores": strconv.Itoa(nodeVcores),
		"yarn.nodemanager.resource.memory-mb":      strconv.Itoa(nodeMemoryMB),
		"yarn.nodemanager.resource.cpu-vcores":     strconv.Itoa(nodeVcores),
		"yarn.nodemanager.pmem-check-enabled":      "true",
		// Else the NodeManager leaves it to cgroups, which it does not use here, and kills nobody.
		"yarn.nodemanager.resource.memory.enforced":   "false",
		"yarn.nodemanager.vmem-check-enabled":         "false",
		"yarn.nodemanager.disk-health-checker.enable": "false",
		// The check at the start comes all the same, and would take no container on a disk that is 90 % full.
		"yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "100",
		"yarn.nodemanager.container-executor.class":                                     "org.apache.hadoop.yarn.server.nodemanager.DefaultContainerExecutor",
		"yarn.nodemanager.recovery.enabled":                                             "true",
		"yarn.nodemanager.recovery.supervised":                                          "true", // containers live on while a NodeManager is down
		"yarn.nodemanager.hostname":                                                     host,
		"yarn.log-aggregation-enable":                                                   "true",
		"yarn.nodemanager.remote-app-log-dir":                                           "/app-logs",
		"yarn.log-aggregation.retain-seconds":                                           "604800",
		"yarn.log-aggregation.retain-check-interval-seconds":                            "86400",
		// What Java applications of this cluster (the peer of the benchmarks) need on their class path.
		"yarn.application.classpath": l.conf() + "," + s.HadoopJars + "/*",
	}
	return merge(merge(m, c.yarnSecure()), c.resourceManagers())
}

func (c *Cluster) dataNodeSite(name string) map[string]string {
	if name != DataNode2 {
		return nil
	}
	s := c.state
	return map[string]string{
		"dfs.datanode.data.dir":     "file://" + c.layout.data(name),
		"dfs.datanode.address":      s.addr(portDataNode + dn2Shift),
		"dfs.datanode.ipc.address":  s.addr(portDataNodeIPC + dn2Shift),
		"dfs.datanode.http.address": s.addr(portDataNodeHTTP + dn2Shift),
		// Read in secured clusters alone.
		"dfs.datanode.https.address": s.addr(portDataNodeHTTPS + dn2Shift),
	}
}

func (c *Cluster) nodeManagerSite(name string) map[string]string {
	if name != NodeManager1 && name != NodeManager2 {
		return nil
	}
	l, s := c.layout, c.state
	return map[string]string{
		"yarn.nodemanager.hostname":                  s.hostOf(name),
		"yarn.nodemanager.address":                   s.nodeAddr(name, portNM),
		"yarn.nodemanager.localizer.address":         s.nodeAddr(name, portNMLocalizer),
		"yarn.nodemanager.webapp.address":            s.nodeAddr(name, portNMHTTP),
		"yarn.nodemanager.collector-service.address": s.nodeAddr(name, portNMCollector),
		"yarn.nodemanager.local-dirs":                filepath.Join(l.data(name), "local"),
		"yarn.nodemanager.log-dirs":                  filepath.Join(l.data(name), "logs"),
		"yarn.nodemanager.recovery.dir":              filepath.Join(l.data(name), "recovery"),
	}
}

// capacityScheduler has the queue default, which may use the whole cluster, and small, which is kept to a quarter of it and to
// containers of at most 512 MB.
func (c *Cluster) capacityScheduler() map[string]string {
	q := "yarn.scheduler.capacity."
	m := map[string]string{
		q + "maximum-am-resource-percent":      "1.0",
		q + "maximum-applications":             "1000",
		q + "root.queues":                      "default,small",
		q + "root.default.capacity":            "90",
		q + "root.default.maximum-capacity":    "100",
		q + "root.default.user-limit-factor":   "2",
		q + "root.small.capacity":              "10",
		q + "root.small.maximum-capacity":      "25",
		q + "root.small.user-limit-factor":     "3",
		q + "root.small.maximum-allocation-mb": "512",
	}
	return merge(m, c.queueACLs())
}

func (c *Cluster) kafkaProperties() map[string]string {
	l, s := c.layout, c.state
	m := map[string]string{
		"process.roles":                                    "broker,controller",
		"node.id":                                          "1",
		"controller.quorum.voters":                         "1@" + s.addr(portKafkaController),
		"listeners":                                        "PLAINTEXT://" + s.addr(portKafka) + ",CONTROLLER://" + s.addr(portKafkaController),
		"advertised.listeners":                             "PLAINTEXT://" + s.addr(portKafka),
		"listener.security.protocol.map":                   "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"controller.listener.names":                        "CONTROLLER",
		"inter.broker.listener.name":                       "PLAINTEXT",
		"log.dirs":                                         l.data("kafka"),
		"auto.create.topics.enable":                        "false",
		"num.partitions":                                   "1",
		"offsets.topic.replication.factor":                 "1",
		"offsets.topic.num.partitions":                     "8",
		"transaction.state.log.replication.factor":         "1",
		"transaction.state.log.min.isr":                    "1",
		"transaction.state.log.num.partitions":             "8",
		"share.coordinator.state.topic.replication.factor": "1",
		"share.coordinator.state.topic.min.isr":            "1",
		"group.initial.rebalance.delay.ms":                 "0",
		"log.retention.ms":                                 "-1", // records of tests carry old timestamps
	}
	return merge(m, c.kafkaSecure())
}

// siteXML is Hadoop's configuration file format; over replaces values of base.
func siteXML(base, over map[string]string) []byte {
	all := merge(base, over)
	var b bytes.Buffer
	b.WriteString("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<configuration>\n")
	for _, k := range slices.Sorted(maps.Keys(all)) {
		b.WriteString("  <property><name>")
		_ = xml.EscapeText(&b, []byte(k))
		b.WriteString("</name><value>")
		_ = xml.EscapeText(&b, []byte(all[k]))
		b.WriteString("</value></property>\n")
	}
	b.WriteString("</configuration>\n")
	return b.Bytes()
}

func properties(base, over map[string]string) []byte {
	all := merge(base, over)
	var b bytes.Buffer
	for _, k := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&b, "%s=%s\n", k, all[k])
	}
	return b.Bytes()
}

func merge(base, over map[string]string) map[string]string {
	all := maps.Clone(base)
	maps.Copy(all, over)
	return all
}

const log4jDaemon = `log4j.rootLogger=INFO,f
log4j.appender.f=org.apache.log4j.RollingFileAppender
log4j.appender.f.File=${thalweg.rig.log}
log4j.appender.f.MaxFileSize=64MB
log4j.appender.f.MaxBackupIndex=2
log4j.appender.f.layout=org.apache.log4j.PatternLayout
log4j.appender.f.layout.ConversionPattern=%d{ISO8601} %p %c: %m%n
log4j.logger.org.apache.hadoop.util.NativeCodeLoader=ERROR
`

const log4jClient = `log4j.rootLogger=WARN,c
log4j.appender.c=org.apache.log4j.ConsoleAppender
log4j.appender.c.target=System.err
log4j.appender.c.layout=org.apache.log4j.PatternLayout
log4j.appender.c.layout.ConversionPattern=%d{ISO8601} %p %c{1}: %m%n
log4j.logger.org.apache.hadoop.util.NativeCodeLoader=ERROR
`

const log4j2Daemon = `status=error
appender.f.type=RollingFile
appender.f.name=f
appender.f.fileName=${sys:thalweg.rig.log}
appender.f.filePattern=${sys:thalweg.rig.log}.%i
appender.f.layout.type=PatternLayout
appender.f.layout.pattern=%d{ISO8601} %p %c: %m%n
appender.f.policies.type=Policies
appender.f.policies.size.type=SizeBasedTriggeringPolicy
appender.f.policies.size.size=64MB
appender.f.strategy.type=DefaultRolloverStrategy
appender.f.strategy.max=2
rootLogger.level=info
rootLogger.appenderRef.f.ref=f
`

const log4j2Client = `status=error
appender.c.type=Console
appender.c.name=c
appender.c.target=SYSTEM_ERR
appender.c.layout.type=PatternLayout
appender.c.layout.pattern=%d{ISO8601} %p %c{1}: %m%n
rootLogger.level=error
rootLogger.appenderRef.c.ref=c
`

// remove deletes what the rig has made, but the jars. The description goes last, so that a removal that was cut short can be repeated, and
// the lock, which the caller holds, after it. The folder itself goes when nothing else is in it.
func (l layout) remove() error {
	names := []string{"data", "tmp", "log", "pid", "bin", "conf", "webroot", "kdc", "tls", "keytabs", "tickets"}
	more, err := filepath.Glob(l.confOf("*"))
	if err != nil {
		return fmt.Errorf("rig: remove: %w", err)
	}
	for _, m := range more {
		names = append(names, filepath.Base(m))
	}
	names = append(names, filepath.Base(l.auto()), "users", filepath.Base(l.state()), filepath.Base(l.lock()))
	for _, n := range names {
		if err := os.RemoveAll(filepath.Join(l.dir, n)); err != nil {
			return fmt.Errorf("rig: remove %s: %w", n, err)
		}
	}
	_ = os.Remove(l.dir) // there may be jars
	return nil
}
