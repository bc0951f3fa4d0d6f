package container

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rs/zerolog"
	"gopkg.in/natefinch/lumberjack.v2"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/internal/logging"
	"github.com/thalweg/thalweg/yarnrpc/conf"
	"github.com/thalweg/thalweg/yarnrpc/token"
)

// Names of the log files, without suffix.
const (
	MasterLog      = "jobmanager"
	TaskManagerLog = "taskmanager"
)

// Container is what YARN tells a process about its container.
//
// Source: hadoop-yarn-api ApplicationConstants.Environment, Hadoop 3.4.
type Container struct {
	ID              string   // container_<timestamp>_<application>_<attempt>_<number>
	Host            string   // of the NodeManager
	NodeHTTPAddress string   // of the NodeManager's pages
	LogDir          string   // the first of LOG_DIRS
	LocalDirs       []string // of the application, one per disk; those that can be written
	WorkDir         string
	Credentials     *token.Credentials
	App             *Application
}

// Read reads the environment that YARN sets and the credentials file.
//
// Errors: ErrNoApplication when the process was not started by Thalweg on YARN.
func Read(getenv func(string) string) (*Container, error) {
	if getenv("CONTAINER_ID") == "" || getenv(token.EnvFile) == "" {
		return nil, ErrNoApplication
	}
	creds, err := token.ReadFile(getenv(token.EnvFile))
	if err != nil {
		return nil, fmt.Errorf("container: %w", err)
	}
	app, err := FromCredentials(creds)
	if err != nil {
		return nil, err
	}
	c := &Container{ID: getenv("CONTAINER_ID"), Host: getenv("NM_HOST"), NodeHTTPAddress: getenv("NM_HOST") + ":" + getenv("NM_HTTP_PORT"), Credentials: creds, App: app}
	if c.WorkDir, err = os.Getwd(); err != nil {
		return nil, fmt.Errorf("container: %w", err)
	}
	logs := splitDirs(getenv("LOG_DIRS"))
	c.LogDir = c.WorkDir
	if len(logs) > 0 {
		c.LogDir = logs[0]
	}
	if c.LocalDirs, err = LocalDirs(getenv("LOCAL_DIRS")); err != nil {
		return nil, err
	}
	return c, nil
}

func splitDirs(list string) []string {
	var out []string
	for _, d := range strings.Split(list, ",") {
		if d = strings.TrimSpace(d); d != "" {
			out = append(out, d)
		}
	}
	return out
}

// LocalDirs splits YARN's comma list of node-local folders and returns those that can be written, in its order: one that belongs to a
// failed or full disk is skipped. An error means that none is left.
func LocalDirs(list string) ([]string, error) {
	var out []string
	var errs []error
	for _, d := range splitDirs(list) {
		if err := probe(d); err != nil {
			errs = append(errs, err)
			continue
		}
		out = append(out, d)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("container: no usable folder in LOCAL_DIRS=%q: %w", list, errors.Join(append(errs, errors.New("the node's disks are full or read-only"))...))
	}
	return out, nil
}

// probe writes a block, since a full disk still makes empty files.
func probe(dir string) error {
	f, err := os.CreateTemp(dir, ".thalweg-probe-*")
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, 4096))
	return errors.Join(err, f.Close(), os.Remove(f.Name()))
}

// Logger opens <LogDir>/<name>.log, rolled by size, for a process of this container. The caller closes it.
func (c *Container) Logger(name string) (zerolog.Logger, io.Closer) {
	w := &lumberjack.Logger{
		Filename:   filepath.Join(c.LogDir, name+".log"),
		MaxSize:    int(config.LogMaxBytes.Value(c.App.Config).MiB()), // MiB
		MaxBackups: config.LogMaxFiles.Value(c.App.Config),
	}
	return logging.New(w, logging.Level(config.LogLevel.Value(c.App.Config))).With().Str("app_id", c.App.ID).Logger(), w
}

// TellFile is where Tell writes. The NodeManager appends the end of a file with such a name to the diagnostics of a container that failed.
//
// Source: yarn.nodemanager.container.stderr.pattern, "{*stderr*,*STDERR*}" by default, Hadoop 3.4.
const TellFile = "failure-stderr"

// Tell leaves the reason of the process's end where YARN's diagnostics show it; nil leaves nothing.
func (c *Container) Tell(err error) {
	if err != nil {
		_ = os.WriteFile(filepath.Join(c.LogDir, TellFile), []byte(c.App.Config.Redact(err.Error())+"\n"), 0o640) //nolint:gosec // as the other logs; the error is in them too
	}
}

// HadoopDir writes the application's Hadoop configuration to <WorkDir>/hadoop-conf, for the processes of the job, and returns the folder:
// they find it by HADOOP_CONF_DIR, whatever the node has.
func (c *Container) HadoopDir() (string, error) {
	dir := filepath.Join(c.WorkDir, "hadoop-conf")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("container: %w", err)
	}
	type property struct {
		Name  string `xml:"name"`
		Value string `xml:"value"`
	}
	doc := struct {
		XMLName xml.Name   `xml:"configuration"`
		Props   []property `xml:"property"`
	}{}
	for _, k := range slices.Sorted(maps.Keys(c.App.Hadoop)) {
		doc.Props = append(doc.Props, property{k, c.App.Hadoop[k]})
	}
	b, err := xml.Marshal(doc)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "core-site.xml"), b, 0o600)
	}
	if err != nil {
		return "", fmt.Errorf("container: write Hadoop configuration: %w", err)
	}
	return dir, nil
}

// HadoopProperties are the properties that the files of c set, with Thalweg's pass-through keys over them, for Application.Hadoop.
func HadoopProperties(c *conf.Configuration, own config.Configuration) map[string]string {
	out := map[string]string{}
	for _, k := range c.Keys() {
		if c.Source(k) == "" {
			continue // a built-in default
		}
		v, ok, err := c.Lookup(k) // variables as this machine resolves them
		if err != nil {
			v, ok = c.Raw(k)
		}
		if ok {
			out[k] = v
		}
	}
	maps.Copy(out, Overrides(own))
	return out
}

// Overrides are Hadoop's properties that Thalweg's configuration sets by its pass-through keys (flink.hadoop.*, thalweg.hadoop.*, flink.yarn.*).
func Overrides(own config.Configuration) map[string]string {
	out := map[string]string{}
	for k, v := range own {
		for _, p := range hadoopPrefixes {
			if name, ok := strings.CutPrefix(k, p); ok && name != "" {
				if p == "flink.yarn." {
					name = "yarn." + name
				}
				out[name] = v
			}
		}
	}
	return out
}
