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
)

// AllDaemons is the whole cluster, in the order of start.
func AllDaemons() []string {
	return []string{NameNode, DataNode, ResourceManager, NodeManager1, NodeManager2, Kafka}
}

func known() []string { return append(AllDaemons(), DataNode2) }

// daemon says how to run one JVM.
type daemon struct {
	name  string
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
		conf := l.conf()
		if ownConf(name) {
			conf = l.confOf(name)
		}
		jvm := append(small(heap), opens...)
		jvm = append(jvm, "-Dlog4j.configuration=file:"+filepath.Join(l.conf(), "log4j-daemon.properties"), "-Dthalweg.rig.log="+l.log(name),
			"-Djava.net.preferIPv4Stack=true")
		return daemon{
			name: name, class: "org.apache.hadoop." + class, jvm: jvm, ports: ports,
			cp:  []string{conf, l.webapps(), c.state.HadoopJars + "/*"},
			env: []string{"HADOOP_CONF_DIR=" + l.conf(), "YARN_CONF_DIR=" + l.conf()},
		}
	}
	switch name {
	case NameNode:
		return hadoop("hdfs.server.namenode.NameNode", "384m", portNameNode, portNameNodeHTTP), nil
	case DataNode:
		return hadoop("hdfs.server.datanode.DataNode", "256m", portDataNode, portDataNodeIPC, portDataNodeHTTP), nil
	case DataNode2:
		return hadoop("hdfs.server.datanode.DataNode", "256m", portDataNode+dn2Shift, portDataNodeIPC+dn2Shift, portDataNodeHTTP+dn2Shift), nil
	case ResourceManager:
		return hadoop("yarn.server.resourcemanager.ResourceManager", "384m", portRM, portRMAdmin, portRMHTTP, portRMScheduler, portRMTracker), nil
	case NodeManager1, NodeManager2:
		i := nmShift(name)
		return hadoop("yarn.server.nodemanager.NodeManager", "256m", portNM+i, portNMLocalizer+i, portNMHTTP+i, portNMCollector+i), nil
	case Kafka:
		return daemon{
			name: name, class: "kafka.Kafka", args: []string{filepath.Join(l.conf(), "kafka.properties")},
			jvm: []string{"-Xmx1g", "-Xms1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35", // as kafka-run-class.sh: its pauses are in every latency
				"-Dlog4j2.configurationFile=" + filepath.Join(l.conf(), "log4j2-daemon.properties"),
				"-Dthalweg.rig.log=" + l.log(name), "-Djava.net.preferIPv4Stack=true"},
			cp:    []string{c.state.KafkaJars + "/*"},
			ports: []int{portKafka, portKafkaController},
		}, nil
	}
	return daemon{}, fmt.Errorf("rig: no daemon %q (there are %s)", name, strings.Join(known(), ", "))
}

// ownConf says that a daemon differs from the others of its kind and has a configuration folder of its own.
func ownConf(name string) bool { return strings.HasPrefix(name, "nodemanager") || name == DataNode2 }

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
	a := []string{filepath.Join(c.state.JavaHome, "bin", "java")}
	a = append(a, d.jvm...)
	a = append(a, "-Djava.io.tmpdir="+c.layout.tmp(d.name), markDir+c.layout.dir, markDaemon+d.name, "-cp", strings.Join(d.cp, ":"), d.class)
	return append(a, d.args...)
}

// checkDaemons refuses unknown names and puts the rest into the order of start.
func checkDaemons(names []string) ([]string, error) {
	if len(names) == 0 {
		return AllDaemons(), nil
	}
	var out []string
	for _, d := range known() {
		if slices.Contains(names, d) {
			out = append(out, d)
		}
	}
	for _, n := range names {
		if !slices.Contains(out, n) {
			return nil, fmt.Errorf("rig: no daemon %q (there are %s)", n, strings.Join(known(), ", "))
		}
	}
	return out, nil
}
