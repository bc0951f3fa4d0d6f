package rig

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// Names of the daemons, for Options.Daemons, Restart, Kill9 and the rig command.
const (
	NameNode        = "namenode"
	DataNode        = "datanode"
	ResourceManager = "resourcemanager"
	NodeManager1    = "nodemanager-1"
	NodeManager2    = "nodemanager-2"
	Kafka           = "kafka"

	// DataNode2 is not part of AllDaemons: tests of pipelines of two ask for it.
	DataNode2 = "datanode-2"

	KDC              = "kdc"               // of secured clusters
	ZooKeeper        = "zookeeper"         // of clusters with pairs
	ResourceManager2 = "resourcemanager-2" // of a pair
	NameNode2        = "namenode-2"        // of a pair, with all below
	JournalNode      = "journalnode"
	ZKFC             = "zkfc" // failover controller of NameNode
	ZKFC2            = "zkfc-2"
)

// AllDaemons is the whole simple cluster, in the order of start.
func AllDaemons() []string {
	return []string{NameNode, DataNode, ResourceManager, NodeManager1, NodeManager2, Kafka}
}

// Daemons are all that a cluster of this variant has, in the order of start.
func (v Variant) Daemons() []string { return v.withCompanions(AllDaemons()) }

// withCompanions adds what the daemons need beside them in this variant. The order of start is kept.
func (v Variant) withCompanions(names []string) []string {
	want := map[string]bool{KDC: v.Kerberos}
	for _, n := range names {
		want[n] = true
	}
	if v.NNHA && want[NameNode] {
		for _, n := range []string{NameNode2, JournalNode, ZKFC, ZKFC2, ZooKeeper} {
			want[n] = true
		}
	}
	if v.RMHA && want[ResourceManager] {
		want[ResourceManager2], want[ZooKeeper] = true, true
	}
	var out []string
	for _, n := range v.known() {
		if want[n] {
			out = append(out, n)
		}
	}
	return out
}

// known are the names that mean something in this variant, in the order of start.
func (v Variant) known() []string {
	var out []string
	for _, d := range []struct {
		name string
		is   bool
	}{
		{KDC, v.Kerberos}, {ZooKeeper, v.RMHA || v.NNHA}, {JournalNode, v.NNHA}, {NameNode, true}, {NameNode2, v.NNHA}, {ZKFC, v.NNHA}, {ZKFC2, v.NNHA},
		{DataNode, true}, {ResourceManager, true}, {ResourceManager2, v.RMHA}, {NodeManager1, true}, {NodeManager2, true}, {Kafka, true}, {DataNode2, true},
	} {
		if d.is {
			out = append(out, d.name)
		}
	}
	return out
}

// stages are the cluster's daemons in groups that are started one after another: those of the later ones end at once, or ask too often, when they do
// not find those of the earlier ones.
func (c *Cluster) stages() [][]string {
	early := []string{KDC, ZooKeeper}
	groups := [][]string{early, {JournalNode}}
	if c.state.Variant.NNHA {
		groups = append(groups, []string{NameNode, ZKFC}) // the second ones are made from their data
	}
	var out [][]string
	left := c.state.Daemons
	for _, g := range groups {
		var stage, rest []string
		for _, d := range left {
			if slices.Contains(g, d) {
				stage = append(stage, d)
			} else {
				rest = append(rest, d)
			}
		}
		if len(stage) > 0 {
			out = append(out, stage)
		}
		left = rest
	}
	return append(out, left)
}

func (c *Cluster) has(daemon string) bool { return slices.Contains(c.state.Daemons, daemon) }

// daemon says how to run one process, a JVM but for the KDC.
type daemon struct {
	name  string
	exec  []string // the whole command line, for what is no JVM
	class string
	jvm   []string // heap and compiler
	cp    []string
	args  []string
	env   []string
	ports []int // offsets; all must be free before a start
}

// opens is what Hadoop 3.4 needs from a JDK 17.
var opens = []string{
	"--add-opens=java.base/java.lang=ALL-UNNAMED", "--add-opens=java.base/java.util=ALL-UNNAMED",
	"--add-opens=java.base/java.net=ALL-UNNAMED", "--add-opens=java.base/java.nio=ALL-UNNAMED",
	"--add-opens=java.base/java.util.concurrent=ALL-UNNAMED", "--add-opens=java.base/java.util.concurrent.atomic=ALL-UNNAMED",
	"--add-opens=java.base/sun.nio.ch=ALL-UNNAMED", "--add-exports=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
}

// small starts fast and stays small: serial collector, first compiler only.
func small(heap string) []string {
	return []string{"-Xmx" + heap, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"}
}

func (c *Cluster) daemon(name string) (daemon, error) {
	l := c.layout
	hadoop := func(class string, heap string, ports ...int) daemon {
		cp := []string{l.conf(), l.webapps(), c.state.HadoopJars + "/*"}
		if c.ownConf(name) {
			cp = append([]string{l.confOf(name)}, cp...) // what it lacks is taken from the common folder
		}
		jvm := append(small(heap), opens...)
		jvm = append(jvm, c.krb5Option()...)
		jvm = append(jvm, "-Dlog4j.configuration=file:"+filepath.Join(l.conf(), "log4j-daemon.properties"), "-Dthalweg.rig.log="+l.log(name),
			"-Djava.net.preferIPv4Stack=true")
		return daemon{
			name: name, class: "org.apache.hadoop." + class, jvm: jvm, ports: ports,
			cp:  cp,
			env: []string{"HADOOP_CONF_DIR=" + l.conf(), "YARN_CONF_DIR=" + l.conf()},
		}
	}
	switch name {
	case KDC:
		k, err := c.KDC()
		if err != nil {
			return daemon{}, err
		}
		return daemon{name: name, exec: k.Argv(), env: k.ServerEnv(), ports: []int{portKDC}}, nil
	case ZooKeeper:
		d := hadoop("", "128m", portZooKeeper)
		d.class, d.args = "org.apache.zookeeper.server.ZooKeeperServerMain", []string{filepath.Join(l.conf(), "zookeeper.properties")}
		return d, nil
	case JournalNode:
		return hadoop("hdfs.qjournal.server.JournalNode", "128m", portJournalNode, portJournalNodeHTTP, portJournalNodeHTTPS), nil
	case ZKFC:
		return hadoop("hdfs.tools.DFSZKFailoverController", "128m", portZKFC), nil
	case ZKFC2:
		return hadoop("hdfs.tools.DFSZKFailoverController", "128m", portZKFC2), nil
	case NameNode:
		return hadoop("hdfs.server.namenode.NameNode", "384m", portNameNode, portNameNodeHTTP, portNameNodeHTTPS), nil
	case NameNode2:
		return hadoop("hdfs.server.namenode.NameNode", "384m", portNameNode+nn2Shift, portNameNode2HTTP, portNameNode2HTTPS), nil
	case DataNode:
		return hadoop("hdfs.server.datanode.DataNode", "256m", portDataNode, portDataNodeIPC, portDataNodeHTTP, portDataNodeHTTPS), nil
	case DataNode2:
		return hadoop("hdfs.server.datanode.DataNode", "256m", portDataNode+dn2Shift, portDataNodeIPC+dn2Shift, portDataNodeHTTP+dn2Shift, portDataNodeHTTPS+dn2Shift), nil
	case ResourceManager:
		return hadoop("yarn.server.resourcemanager.ResourceManager", "384m", portRM, portRMAdmin, portRMHTTP, portRMScheduler, portRMTracker), nil
	case ResourceManager2:
		return hadoop("yarn.server.resourcemanager.ResourceManager", "384m", portRM+rm2Shift, portRMAdmin+rm2Shift, portRM2HTTP, portRMScheduler+rm2Shift, portRMTracker+rm2Shift), nil
	case NodeManager1, NodeManager2:
		i := nmShift(name)
		d := hadoop("yarn.server.nodemanager.NodeManager", "256m", portNM+i, portNMLocalizer+i, portNMHTTP+i, portNMCollector+i)
		c.secureNodeManager(&d)
		return d, nil
	case Kafka:
		d := daemon{
			name: name, class: "kafka.Kafka", args: []string{filepath.Join(l.conf(), "kafka.properties")},
			jvm: []string{"-Xmx1g", "-Xms1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35", // as kafka-run-class.sh: its pauses are in every latency
				"-Dlog4j2.configurationFile=" + filepath.Join(l.conf(), "log4j2-daemon.properties"),
				"-Dthalweg.rig.log=" + l.log(name), "-Djava.net.preferIPv4Stack=true"},
			cp:    []string{c.state.KafkaJars + "/*"},
			ports: []int{portKafka, portKafkaController, portKafkaSASL, portKafkaTLS},
		}
		d.jvm = append(append(d.jvm, c.krb5Option()...), c.kafkaSecureOptions()...)
		return d, nil
	}
	return daemon{}, fmt.Errorf("rig: no daemon %q (there are %s)", name, strings.Join(c.state.Variant.known(), ", "))
}

// ownConf says that a daemon differs from the others of its kind and has a configuration folder of its own.
func (c *Cluster) ownConf(name string) bool {
	switch name {
	case NodeManager1, NodeManager2, DataNode2:
		return true
	case NameNode, NameNode2, ZKFC, ZKFC2:
		return c.state.Variant.NNHA
	case ResourceManager, ResourceManager2:
		return c.state.Variant.RMHA
	}
	return false
}

// dn2Shift is added to the ports of the first DataNode.
const dn2Shift = 10

// nmShift is added to the ports of the first NodeManager.
func nmShift(name string) int {
	if name == NodeManager2 {
		return 10
	}
	return 0
}

// argv is the whole command line, with the marks that tell our processes from others.
func (c *Cluster) argv(d daemon) []string {
	if d.exec != nil {
		return d.exec
	}
	a := []string{filepath.Join(c.state.JavaHome, "bin", "java")}
	a = append(a, d.jvm...)
	a = append(a, "-Djava.io.tmpdir="+c.layout.tmp(d.name), markDir+c.layout.dir, markDaemon+d.name, "-cp", strings.Join(d.cp, ":"), d.class)
	return append(a, d.args...)
}

// checkDaemons refuses unknown names and puts the rest, with their companions, into the order of start.
func (v Variant) checkDaemons(names []string) ([]string, error) {
	if len(names) == 0 {
		return v.Daemons(), nil
	}
	for _, n := range names {
		if !slices.Contains(v.known(), n) {
			return nil, fmt.Errorf("rig: no daemon %q (there are %s)", n, strings.Join(v.known(), ", "))
		}
	}
	return v.withCompanions(names), nil
}
