package rig

import (
	"context"
	"errors"
	"fmt"
	"strconv"
)

// Names of a pair of NameNodes (the logical file system is hdfs://rig) and of ResourceManagers.
const (
	nameService = "rig"
	nn1, nn2    = "nn1", "nn2"
	rm1, rm2    = "rm1", "rm2"

	// haTimeout is how long a ZooKeeper session lives without a sign of its owner: about the time to a failover after a kill. Hadoop's default is 10 s.
	haTimeout = "6000"
)

func (c *Cluster) defaultFS() string {
	if c.state.Variant.NNHA {
		return "hdfs://" + nameService
	}
	return "hdfs://" + c.state.addr(portNameNode)
}

func (c *Cluster) coreHA() map[string]string {
	if !c.state.Variant.NNHA && !c.state.Variant.RMHA {
		return nil
	}
	zk := c.state.addr(portZooKeeper)
	return map[string]string{
		"hadoop.zk.address":               zk,
		"hadoop.zk.timeout-ms":            haTimeout,
		"ha.zookeeper.quorum":             zk,
		"ha.zookeeper.session-timeout.ms": haTimeout,
	}
}

// nameNodes are the addresses of the one or the two.
func (c *Cluster) nameNodes() map[string]string {
	l, s := c.layout, c.state
	if !s.Variant.NNHA {
		m := map[string]string{
			"dfs.namenode.rpc-address":  s.addr(portNameNode),
			"dfs.namenode.http-address": s.addr(portNameNodeHTTP),
			"dfs.namenode.name.dir":     "file://" + l.data(NameNode),
		}
		if s.Variant.Kerberos {
			m["dfs.namenode.https-address"] = s.addr(portNameNodeHTTPS)
		}
		return m
	}
	m := map[string]string{
		"dfs.nameservices":                                  nameService,
		"dfs.ha.namenodes." + nameService:                   nn1 + "," + nn2,
		"dfs.client.failover.proxy.provider." + nameService: "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider",
		"dfs.ha.automatic-failover.enabled":                 "true",
		"dfs.ha.fencing.methods":                            "shell(/bin/true)", // the JournalNode refuses the former one's edits
		"dfs.ha.tail-edits.in-progress":                     "true",
		"dfs.ha.tail-edits.period":                          "1s",
		"dfs.namenode.shared.edits.dir":                     "qjournal://" + s.addr(portJournalNode) + "/" + nameService,
		"dfs.journalnode.edits.dir":                         l.data(JournalNode),
		"dfs.journalnode.rpc-address":                       s.addr(portJournalNode),
		"dfs.journalnode.http-address":                      s.addr(portJournalNodeHTTP),
		"dfs.journalnode.https-address":                     s.addr(portJournalNodeHTTPS),
		"dfs.ha.zkfc.port." + nameService + "." + nn1:       strconv.Itoa(s.PortBase + portZKFC),
		"dfs.ha.zkfc.port." + nameService + "." + nn2:       strconv.Itoa(s.PortBase + portZKFC2),
	}
	for _, n := range []struct {
		id, daemon       string
		rpc, http, https int
	}{
		{nn1, NameNode, portNameNode, portNameNodeHTTP, portNameNodeHTTPS},
		{nn2, NameNode2, portNameNode + nn2Shift, portNameNode2HTTP, portNameNode2HTTPS},
	} {
		at := "." + nameService + "." + n.id
		m["dfs.namenode.rpc-address"+at] = s.addr(n.rpc)
		m["dfs.namenode.http-address"+at] = s.addr(n.http)
		m["dfs.namenode.https-address"+at] = s.addr(n.https)
		m["dfs.namenode.name.dir"+at] = "file://" + l.data(n.daemon)
	}
	return m
}

// nameNodeSite tells one of a pair, and its failover controller, which it is: both are on one host.
func (c *Cluster) nameNodeSite(daemon string) map[string]string {
	id := map[string]string{NameNode: nn1, ZKFC: nn1, NameNode2: nn2, ZKFC2: nn2}[daemon]
	if id == "" || !c.state.Variant.NNHA {
		return nil
	}
	return map[string]string{"dfs.nameservice.id": nameService, "dfs.ha.namenode.id": id}
}

// resourceManagers are the addresses of the one or the two.
func (c *Cluster) resourceManagers() map[string]string {
	s := c.state
	m := map[string]string{}
	add := func(suffix string, shift, web int) {
		rm := "yarn.resourcemanager."
		m[rm+"hostname"+suffix] = host
		m[rm+"address"+suffix] = s.addr(portRM + shift)
		m[rm+"scheduler.address"+suffix] = s.addr(portRMScheduler + shift)
		m[rm+"resource-tracker.address"+suffix] = s.addr(portRMTracker + shift)
		m[rm+"admin.address"+suffix] = s.addr(portRMAdmin + shift)
		m[rm+"webapp.address"+suffix] = s.addr(web)
	}
	if !s.Variant.RMHA {
		add("", 0, portRMHTTP)
		return m
	}
	add("."+rm1, 0, portRMHTTP)
	add("."+rm2, rm2Shift, portRM2HTTP)
	return merge(m, map[string]string{
		"yarn.resourcemanager.ha.enabled":    "true",
		"yarn.resourcemanager.cluster-id":    nameService,
		"yarn.resourcemanager.ha.rm-ids":     rm1 + "," + rm2,
		"yarn.resourcemanager.store.class":   "org.apache.hadoop.yarn.server.resourcemanager.recovery.ZKRMStateStore",
		"yarn.client.failover-sleep-base-ms": "200",
		"yarn.client.failover-sleep-max-ms":  "1000",
	})
}

func (c *Cluster) resourceManagerSite(daemon string) map[string]string {
	id := map[string]string{ResourceManager: rm1, ResourceManager2: rm2}[daemon]
	if id == "" || !c.state.Variant.RMHA {
		return nil
	}
	return map[string]string{"yarn.resourcemanager.ha.id": id}
}

func (c *Cluster) zooKeeperProperties() map[string]string {
	return map[string]string{
		"dataDir":                c.layout.data(ZooKeeper),
		"clientPort":             strconv.Itoa(c.state.PortBase + portZooKeeper),
		"clientPortAddress":      "127.0.0.1",
		"tickTime":               "1000",
		"maxClientCnxns":         "0",
		"admin.enableServer":     "false",
		"4lw.commands.whitelist": "ruok",
	}
}

// Active names the ResourceManager or the NameNode (give ResourceManager or NameNode) that is active: itself, or the second one of a pair.
// While a failover is under way there is none, which is an error.
func (c *Cluster) Active(ctx context.Context, daemon string) (string, error) {
	pair := map[string]string{ResourceManager: ResourceManager2, NameNode: NameNode2}
	second, ok := pair[daemon]
	if !ok {
		return "", fmt.Errorf("rig: active %s: there are no pairs of it", daemon)
	}
	var errs []error
	for _, name := range []string{daemon, second} {
		if !c.has(name) {
			continue
		}
		state, err := c.role(ctx, name)
		if err == nil && state == "active" {
			return name, nil
		}
		if err == nil {
			err = errors.New(state)
		}
		errs = append(errs, fmt.Errorf("%s: %w", name, err))
	}
	return "", fmt.Errorf("rig: no active %s (%w)", daemon, errors.Join(errs...))
}

// role is active or standby.
func (c *Cluster) role(ctx context.Context, name string) (string, error) {
	switch name {
	case NameNode, NameNode2:
		var bean struct{ State string }
		err := c.jmx(ctx, name, "Hadoop:service=NameNode,name=NameNodeStatus", &bean)
		return bean.State, err
	}
	var info struct {
		ClusterInfo struct {
			State   string `json:"state"`
			HAState string `json:"haState"`
		} `json:"clusterInfo"`
	}
	if err := c.getJSON(ctx, c.webURL(name)+"/ws/v1/cluster/info", &info); err != nil {
		return "", err
	}
	switch i := info.ClusterInfo; {
	case i.State == "STARTED" && i.HAState == "ACTIVE":
		return "active", nil
	case i.State == "STARTED" && i.HAState == "STANDBY":
		return "standby", nil
	default:
		return "", fmt.Errorf("state %s, %s", i.State, i.HAState)
	}
}

// webURL is where a daemon has its web pages: http://host:port, or https of HDFS's daemons in a secured cluster.
func (c *Cluster) webURL(name string) string {
	s := c.state
	hdfs := func(http, https int) string {
		if s.Variant.Kerberos {
			return "https://" + s.addr(https)
		}
		return "http://" + s.addr(http)
	}
	switch name {
	case NameNode:
		return hdfs(portNameNodeHTTP, portNameNodeHTTPS)
	case NameNode2:
		return hdfs(portNameNode2HTTP, portNameNode2HTTPS)
	case JournalNode:
		return hdfs(portJournalNodeHTTP, portJournalNodeHTTPS)
	case DataNode:
		return hdfs(portDataNodeHTTP, portDataNodeHTTPS)
	case DataNode2:
		return hdfs(portDataNodeHTTP+dn2Shift, portDataNodeHTTPS+dn2Shift)
	case ResourceManager:
		return "http://" + s.addr(portRMHTTP)
	case ResourceManager2:
		return "http://" + s.addr(portRM2HTTP)
	}
	return "http://" + s.nodeAddr(name, portNMHTTP)
}

// ActiveWeb is the web address (http://host:port) of the active ResourceManager, as ResourceManagerWeb is that of the first one.
func (c *Cluster) ActiveWeb(ctx context.Context) (string, error) {
	name, err := c.Active(ctx, ResourceManager)
	if err != nil {
		return "", err
	}
	return c.webURL(name), nil
}
