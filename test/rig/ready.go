package rig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ready returns nil when the daemon serves requests, else what is still missing.
func (c *Cluster) ready(ctx context.Context, name string) error {
	s := c.state
	switch name {
	case KDC:
		k, err := c.KDC()
		if err != nil {
			return err
		}
		return k.Ready(ctx)
	case ZooKeeper:
		return c.zooKeeperReady(ctx)
	case JournalNode:
		var bean struct{ Version string }
		return c.jmx(ctx, name, "Hadoop:service=JournalNode,name=JournalNodeInfo", &bean)
	case ZKFC, ZKFC2:
		_, err := c.Active(ctx, NameNode)
		return err
	case NameNode, NameNode2:
		// Without a DataNode it stays in safe mode as soon as it has blocks: that is DataNode's readiness, not this one.
		var bean struct{ Version string }
		return c.jmx(ctx, name, "Hadoop:service=NameNode,name=NameNodeInfo", &bean)
	case DataNode, DataNode2:
		var dn struct{ BPServiceActorInfo string }
		if err := c.jmx(ctx, name, "Hadoop:service=DataNode,name=DataNodeInfo", &dn); err != nil {
			return err
		}
		if !strings.Contains(dn.BPServiceActorInfo, "RUNNING") {
			return errors.New("not registered with the NameNode")
		}
		active, err := c.Active(ctx, NameNode)
		if err != nil {
			return err
		}
		var fsn struct{ NumLiveDataNodes int }
		if err := c.jmx(ctx, active, "Hadoop:service=NameNode,name=FSNamesystemState", &fsn); err != nil {
			return err
		}
		if fsn.NumLiveDataNodes < 1 {
			return errors.New("the NameNode sees no live DataNode")
		}
		var nn struct{ Safemode string }
		if err := c.jmx(ctx, active, "Hadoop:service=NameNode,name=NameNodeInfo", &nn); err != nil {
			return err
		}
		if nn.Safemode != "" {
			return errors.New(nn.Safemode)
		}
		return nil
	case ResourceManager, ResourceManager2:
		if _, err := c.role(ctx, name); err != nil {
			return err
		}
		_, err := c.Active(ctx, ResourceManager)
		return err
	case NodeManager1, NodeManager2:
		var node struct {
			NodeInfo struct {
				ID      string `json:"id"`
				Healthy bool   `json:"nodeHealthy"`
			} `json:"nodeInfo"`
		}
		if err := c.getJSON(ctx, c.webURL(name)+"/ws/v1/node/info", &node); err != nil {
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
	active, err := c.ActiveWeb(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.getJSON(ctx, active+"/ws/v1/cluster/nodes?states=RUNNING", &nodes); err != nil {
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
func (c *Cluster) jmx(ctx context.Context, daemon, bean string, into any) error {
	var page struct {
		Beans []json.RawMessage `json:"beans"`
	}
	if err := c.getJSON(ctx, c.webURL(daemon)+"/jmx?qry="+url.QueryEscape(bean), &page); err != nil {
		return err
	}
	if len(page.Beans) == 0 {
		return fmt.Errorf("no bean %s yet", bean)
	}
	return json.Unmarshal(page.Beans[0], into)
}

func (c *Cluster) getJSON(ctx context.Context, u string, into any) error {
	web, err := c.web()
	if err != nil {
		return err
	}
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
	if c.state.Variant.Kerberos {
		return c.makeSecureFolders(ctx)
	}
	me := c.state.User
	folders := []struct{ path, perm, owner string }{
		{"/tmp", "1777", ""},
		{"/app-logs", "1777", ""},
		{"/user", "755", ""},
		{"/user/" + me, "755", me},
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
				return c.webHDFS(ctx, f.path, op+"&user.name="+url.QueryEscape(me))
			})
			if err != nil {
				return fmt.Errorf("rig: make folder %s in HDFS: %w", f.path, err)
			}
		}
	}
	return nil
}

// makeSecureFolders does it by the stock client as HDFS's administrator: WebHDFS wants SPNEGO there.
func (c *Cluster) makeSecureFolders(ctx context.Context) error {
	me := c.state.User
	run := func(args ...string) error {
		_, err := c.CLIAs(ctx, "nn", "hdfs", append([]string{"dfs"}, args...)...)
		return err
	}
	homes := []string{me, Alice, Bob}
	folders := []string{"/tmp", "/app-logs"}
	for _, u := range homes {
		folders = append(folders, "/user/"+u)
	}
	mine := []string{"/checkpoints", "/savepoints", "/moved", "/batch"} // where tests have jobs keep and find things; who runs the jobs is no administrator here
	folders = append(folders, mine...)
	if err := run(append([]string{"-mkdir", "-p"}, folders...)...); err != nil {
		return err
	}
	todo := [][]string{{"-chmod", "1777", "/tmp", "/app-logs"}, {"-chown", "yarn:hadoop", "/app-logs"}}
	for _, u := range homes {
		of := []string{"/user/" + u}
		if u == me {
			of = append(of, mine...)
		}
		todo = append(todo, append([]string{"-chown", u + ":users"}, of...))
	}
	errs := make([]error, len(todo))
	var wg sync.WaitGroup
	for i, args := range todo {
		wg.Go(func() { errs[i] = run(args...) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// zooKeeperReady asks by the four-letter word ruok.
func (c *Cluster) zooKeeperReady(ctx context.Context) error {
	d := net.Dialer{Timeout: time.Second}
	conn, err := d.DialContext(ctx, "tcp", c.state.addr(portZooKeeper))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(3 * time.Second))
	if _, err := conn.Write([]byte("ruok")); err != nil {
		return err
	}
	b, err := io.ReadAll(io.LimitReader(conn, 16))
	if err == nil && string(b) != "imok" {
		err = fmt.Errorf("it said %q", b)
	}
	return err
}

func (c *Cluster) webHDFS(ctx context.Context, path, query string) error {
	active, err := c.Active(ctx, NameNode)
	if err != nil {
		return err
	}
	web, err := c.web()
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, c.webURL(active)+"/webhdfs/v1"+path+"?"+query, http.NoBody)
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
