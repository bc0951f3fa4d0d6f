package rig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/user"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// web asks the daemons' own pages whether they serve; no connection is kept.
var web = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// ready returns nil when the daemon serves requests, else what is still missing.
func (c *Cluster) ready(ctx context.Context, name string) error {
	s := c.state
	switch name {
	case NameNode:
		// Without a DataNode it stays in safe mode as soon as it has blocks: that is DataNode's readiness, not this one.
		var bean struct{ Version string }
		return c.jmx(ctx, portNameNodeHTTP, "Hadoop:service=NameNode,name=NameNodeInfo", &bean)
	case DataNode, DataNode2:
		port := portDataNodeHTTP
		if name == DataNode2 {
			port += dn2Shift
		}
		var dn struct{ BPServiceActorInfo string }
		if err := c.jmx(ctx, port, "Hadoop:service=DataNode,name=DataNodeInfo", &dn); err != nil {
			return err
		}
		if !strings.Contains(dn.BPServiceActorInfo, "RUNNING") {
			return errors.New("not registered with the NameNode")
		}
		var fsn struct{ NumLiveDataNodes int }
		if err := c.jmx(ctx, portNameNodeHTTP, "Hadoop:service=NameNode,name=FSNamesystemState", &fsn); err != nil {
			return err
		}
		if fsn.NumLiveDataNodes < 1 {
			return errors.New("the NameNode sees no live DataNode")
		}
		var nn struct{ Safemode string }
		if err := c.jmx(ctx, portNameNodeHTTP, "Hadoop:service=NameNode,name=NameNodeInfo", &nn); err != nil {
			return err
		}
		if nn.Safemode != "" {
			return errors.New(nn.Safemode)
		}
		return nil
	case ResourceManager:
		var info struct {
			ClusterInfo struct {
				State   string `json:"state"`
				HAState string `json:"haState"`
			} `json:"clusterInfo"`
		}
		if err := getJSON(ctx, c.ResourceManagerWeb+"/ws/v1/cluster/info", &info); err != nil {
			return err
		}
		if info.ClusterInfo.State != "STARTED" || info.ClusterInfo.HAState != "ACTIVE" {
			return fmt.Errorf("state %s, %s", info.ClusterInfo.State, info.ClusterInfo.HAState)
		}
		return nil
	case NodeManager1, NodeManager2:
		var node struct {
			NodeInfo struct {
				ID      string `json:"id"`
				Healthy bool   `json:"nodeHealthy"`
			} `json:"nodeInfo"`
		}
		if err := getJSON(ctx, "http://"+s.nodeAddr(name, portNMHTTP)+"/ws/v1/node/info", &node); err != nil {
			return err
		}
		if !node.NodeInfo.Healthy {
			return errors.New("unhealthy")
		}
		running, err := c.runningNodes(ctx)
		if err != nil {
			return err
		}
		if !contains(running, s.nodeAddr(name, portNM)) {
			return errors.New("not registered with the ResourceManager")
		}
		return nil
	case Kafka:
		return kafkaReady(ctx, c.KafkaBootstrap)
	}
	return fmt.Errorf("no daemon %q", name)
}

// runningNodes returns the ids of the NodeManagers that the ResourceManager counts as running.
func (c *Cluster) runningNodes(ctx context.Context) ([]string, error) {
	var nodes struct {
		Nodes struct {
			Node []struct {
				ID string `json:"id"`
			} `json:"node"`
		} `json:"nodes"`
	}
	if err := getJSON(ctx, c.ResourceManagerWeb+"/ws/v1/cluster/nodes?states=RUNNING", &nodes); err != nil {
		return nil, err
	}
	var ids []string
	for _, n := range nodes.Nodes.Node {
		ids = append(ids, n.ID)
	}
	return ids, nil
}

func kafkaReady(ctx context.Context, bootstrap string) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.RequestRetries(0))
	if err != nil {
		return err
	}
	defer cl.Close()
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{} // brokers only
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return err
	}
	if len(resp.Brokers) == 0 {
		return errors.New("the broker is not yet part of the cluster")
	}
	return nil
}

// jmx reads one bean from a daemon's /jmx page.
func (c *Cluster) jmx(ctx context.Context, port int, bean string, into any) error {
	var page struct {
		Beans []json.RawMessage `json:"beans"`
	}
	if err := getJSON(ctx, "http://"+c.state.addr(port)+"/jmx?qry="+url.QueryEscape(bean), &page); err != nil {
		return err
	}
	if len(page.Beans) == 0 {
		return fmt.Errorf("no bean %s yet", bean)
	}
	return json.Unmarshal(page.Beans[0], into)
}

func getJSON(ctx context.Context, u string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := web.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", u, resp.Status)
	}
	return json.NewDecoder(io.LimitReader(resp.Body, 16<<20)).Decode(into)
}

// makeFolders creates the first folders of a new file system through WebHDFS: the rig must not depend on the client under test, and a
// JVM per folder would cost seconds.
func (c *Cluster) makeFolders(ctx context.Context) error {
	me, err := user.Current()
	if err != nil {
		return fmt.Errorf("rig: who am I: %w", err)
	}
	folders := []struct{ path, perm, owner string }{
		{"/tmp", "1777", ""},
		{"/app-logs", "1777", ""},
		{"/user", "755", ""},
		{"/user/" + me.Username, "755", me.Username},
		{"/user/alice", "755", "alice"},
		{"/user/bob", "755", "bob"},
	}
	for _, f := range folders {
		ops := []string{"op=MKDIRS&permission=" + f.perm, "op=SETPERMISSION&permission=" + f.perm}
		if f.owner != "" {
			ops = append(ops, "op=SETOWNER&owner="+url.QueryEscape(f.owner)+"&group="+url.QueryEscape(f.owner))
		}
		for _, op := range ops {
			// The first request lets the NameNode load its web service, which takes seconds on a busy machine.
			err := poll(ctx, restartWait, 100*time.Millisecond, func() error {
				return c.webHDFS(ctx, f.path, op+"&user.name="+url.QueryEscape(me.Username))
			})
			if err != nil {
				return fmt.Errorf("rig: make folder %s in HDFS: %w", f.path, err)
			}
		}
	}
	return nil
}

func (c *Cluster) webHDFS(ctx context.Context, path, query string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://"+c.state.addr(portNameNodeHTTP)+"/webhdfs/v1"+path+"?"+query, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := web.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
		return fmt.Errorf("%s: %s", resp.Status, firstLine(b))
	}
	return nil
}
