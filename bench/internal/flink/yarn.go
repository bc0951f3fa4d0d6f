package flink

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/thalweg/thalweg/test/rig"
)

// libs is where Flink's libraries and the Kafka connector are on HDFS.
const libs = "/bench/flink-" + Version

// Yarn submits to the rig's YARN.
type Yarn struct {
	home    *Home
	cluster *rig.Cluster
	dir     string
}

// OnYARN brings Flink's libraries to HDFS, if they are not there, and writes the client's configuration below dir.
func (h *Home) OnYARN(ctx context.Context, c *rig.Cluster, dir string, settings map[string]string) (*Yarn, error) {
	y := &Yarn{home: h, cluster: c, dir: dir}
	if err := os.MkdirAll(filepath.Join(dir, "log"), 0o755); err != nil {
		return nil, fmt.Errorf("flink: %w", err)
	}
	err := writeConf(filepath.Join(dir, "conf"), map[string]string{
		"yarn.provided.lib.dirs": c.DefaultFS + libs, "yarn.file-replication": "1",
	}, settings)
	if err != nil {
		return nil, err
	}
	_, err = c.HdfsCLI(ctx, "dfs", "-test", "-e", libs+"/done")
	var cli *rig.CLIError
	if err == nil || !errors.As(err, &cli) {
		return y, err
	}
	lib, err := filepath.Glob(filepath.Join(h.lib(), "*.jar"))
	if err != nil {
		return nil, fmt.Errorf("flink: libraries: %w", err)
	}
	ext, err := filepath.Glob(filepath.Join(h.Dir, "ext", "*.jar"))
	if err != nil {
		return nil, fmt.Errorf("flink: libraries: %w", err)
	}
	put := append([]string{"dfs", "-put", "-f"}, append(append(lib, ext...), libs+"/lib")...)
	for _, args := range [][]string{{"dfs", "-mkdir", "-p", libs + "/lib", libs + "/plugins"}, put,
		{"dfs", "-put", "-f", filepath.Join(h.Dir, "flink", "plugins", "README.txt"), libs + "/plugins"}, {"dfs", "-touchz", libs + "/done"}} {
		if _, err := c.HdfsCLI(ctx, args...); err != nil {
			return nil, fmt.Errorf("flink: bring the libraries to HDFS: %w", err)
		}
	}
	return y, nil
}

// Submit prepares the client's command that submits a class of the benchmark's jar, detached. name is the application's.
func (y *Yarn) Submit(ctx context.Context, name, class string, settings []string, args ...string) *exec.Cmd {
	argv := []string{"-Xmx512m"}
	argv = append(argv, opens...)
	argv = append(argv, "-Dlog.file="+filepath.Join(y.dir, "log", "client.log"), "-Dlog4j.configurationFile="+filepath.Join(y.dir, "conf", "log4j-cli.properties"),
		"-cp", filepath.Join(y.home.lib(), "*")+":"+y.cluster.HadoopConfDir+":"+filepath.Join(y.cluster.HadoopJars, "*"),
		"org.apache.flink.client.cli.CliFrontend", "run", "-t", "yarn-application", "-d", "-Dyarn.application.name="+name)
	argv = append(argv, settings...)
	argv = append(argv, "-c", class, y.home.Jar)
	cmd := exec.CommandContext(ctx, y.home.Java, append(argv, args...)...)
	cmd.Env = append(append(os.Environ(), y.cluster.Env()...), "FLINK_CONF_DIR="+filepath.Join(y.dir, "conf"), "FLINK_LIB_DIR="+y.home.lib(),
		"FLINK_PLUGINS_DIR="+filepath.Join(y.home.Dir, "flink", "plugins"))
	return cmd
}

// Application is what the ResourceManager says about an application.
type Application struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	State       string `json:"state"`
	FinalStatus string `json:"finalStatus"`
	Diagnostics string `json:"diagnostics"`
	Started     int64  `json:"startedTime"` // milliseconds since the Unix epoch, as the others
	Launched    int64  `json:"launchTime"`
	Finished    int64  `json:"finishedTime"`
}

// Ended says that the application is over.
func (a Application) Ended() bool {
	return a.State == "FINISHED" || a.State == "FAILED" || a.State == "KILLED"
}

// Named finds an application by its name; ok is false when there is none.
func Named(ctx context.Context, c *rig.Cluster, name string) (a Application, ok bool, err error) {
	var r struct {
		Apps struct {
			App []Application `json:"app"`
		} `json:"apps"`
	}
	if err := NewREST(c.ResourceManagerWeb).Get(ctx, "/ws/v1/cluster/apps?deSelects=resourceRequests", &r); err != nil {
		return a, false, err
	}
	for _, a := range r.Apps.App {
		if a.Name == name {
			return a, true, nil
		}
	}
	return a, false, nil
}

// busy lists the applications that the cluster has not finished.
func busy(ctx context.Context, c *rig.Cluster) ([]string, error) {
	var r struct {
		Apps struct {
			App []Application `json:"app"`
		} `json:"apps"`
	}
	if err := NewREST(c.ResourceManagerWeb).Get(ctx, "/ws/v1/cluster/apps?states=NEW,NEW_SAVING,SUBMITTED,ACCEPTED,RUNNING", &r); err != nil {
		return nil, err
	}
	var all []string
	for _, a := range r.Apps.App {
		all = append(all, a.ID+" ("+a.Name+")")
	}
	return all, nil
}

// Idle fails when something runs on the cluster.
func Idle(ctx context.Context, c *rig.Cluster) error {
	all, err := busy(ctx, c)
	if err == nil && len(all) > 0 {
		err = fmt.Errorf("flink: the cluster is not idle, its applications would be measured too: end %s first", strings.Join(all, ", "))
	}
	return err
}

// App reads an application's state.
func App(ctx context.Context, c *rig.Cluster, id string) (Application, error) {
	var r struct {
		App Application `json:"app"`
	}
	err := NewREST(c.ResourceManagerWeb).Get(ctx, "/ws/v1/cluster/apps/"+id, &r)
	return r.App, err
}

// Proxy is the application's own REST interface behind the ResourceManager.
func Proxy(c *rig.Cluster, id string) *REST { return NewREST(c.ResourceManagerWeb + "/proxy/" + id) }

// Kill ends an application through the ResourceManager and waits until it says so.
func Kill(ctx context.Context, c *rig.Cluster, id string) error {
	user := os.Getenv("HADOOP_USER_NAME")
	if user == "" {
		user = os.Getenv("USER")
	}
	if user == "" {
		user = "root"
	}
	body, err := json.Marshal(map[string]string{"state": "KILLED"})
	if err != nil {
		return fmt.Errorf("flink: kill %s: %w", id, err)
	}
	r := NewREST(c.ResourceManagerWeb)
	return until(ctx, 30*time.Second, "the end of "+id, func(ctx context.Context) (bool, error) {
		a, err := App(ctx, c, id)
		if err != nil || a.Ended() {
			return err == nil, err
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPut, r.base+"/ws/v1/cluster/apps/"+id+"/state?user.name="+user, strings.NewReader(string(body)))
		if err != nil {
			return false, err
		}
		req.Header.Set("Content-Type", "application/json")
		return false, r.do(req, nil)
	})
}

// Until polls a condition ten times a second; its error is the last failure of the condition.
func Until(ctx context.Context, limit time.Duration, what string, cond func(context.Context) (bool, error)) error {
	return until(ctx, limit, what, cond)
}
