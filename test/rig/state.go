package rig

import (
	"encoding/json"
	"errors"
	"fmt"
	iofs "io/fs"
	"os"
	"path/filepath"
	"strings"
)

// state is what a cluster folder remembers between commands, in cluster.json.
type state struct {
	Version     int               `json:"version"`
	PortBase    int               `json:"port_base"`
	Daemons     []string          `json:"daemons"`
	JavaHome    string            `json:"java_home"`
	HadoopJars  string            `json:"hadoop_jars"`
	KafkaJars   string            `json:"kafka_jars"`
	HDFSReady   bool              `json:"hdfs_ready"` // the first folders of the file system are made
	Variant     Variant           `json:"variant"`
	User        string            `json:"user,omitempty"`   // who runs the daemons; containers are this user's
	Native      string            `json:"native,omitempty"` // folder of libhadoop.so and shellJar
	Hosts       int               `json:"hosts,omitempty"`  // 2: the second NodeManager has a host of its own
	Core        map[string]string `json:"core_site,omitempty"`
	HDFS        map[string]string `json:"hdfs_site,omitempty"`
	YARN        map[string]string `json:"yarn_site,omitempty"`
	KafkaConfig map[string]string `json:"kafka_config,omitempty"`
}

const stateVersion = 1

// layout names the files of a cluster folder.
type layout struct{ dir string }

func (l layout) state() string             { return filepath.Join(l.dir, "cluster.json") }
func (l layout) lock() string              { return filepath.Join(l.dir, "lock") }
func (l layout) auto() string              { return filepath.Join(l.dir, "auto") } // there: started by Shared
func (l layout) conf() string              { return filepath.Join(l.dir, "conf") }
func (l layout) confOf(d string) string    { return filepath.Join(l.dir, "conf-"+d) }
func (l layout) excluded() string          { return filepath.Join(l.conf(), "yarn.exclude") } // hosts of nodes that are decommissioned
func (l layout) webapps() string           { return filepath.Join(l.dir, "webroot") }
func (l layout) bin() string               { return filepath.Join(l.dir, "bin") }
func (l layout) log(daemon string) string  { return filepath.Join(l.dir, "log", daemon+".log") }
func (l layout) out(daemon string) string  { return filepath.Join(l.dir, "log", daemon+".out") }
func (l layout) pid(daemon string) string  { return filepath.Join(l.dir, "pid", daemon) }
func (l layout) data(daemon string) string { return filepath.Join(l.dir, "data", daemon) }
func (l layout) kdc() string               { return filepath.Join(l.dir, "kdc") }
func (l layout) tls() string               { return filepath.Join(l.dir, "tls") }
func (l layout) keytab(name string) string { return filepath.Join(l.dir, "keytabs", name+".keytab") }
func (l layout) ticket(name string) string { return filepath.Join(l.dir, "tickets", name) }
func (l layout) tmp(daemon string) string  { return filepath.Join(l.dir, "tmp", daemon) }

// open makes dir absolute and free of symbolic links: the folder's name is the mark that identifies our processes.
func openLayout(dir string) (layout, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return layout{}, fmt.Errorf("rig: folder %s: %w", dir, err)
	}
	if strings.ContainsAny(abs, " \t\n'\"$:*,") {
		return layout{}, fmt.Errorf("rig: folder %q: blanks, quotes, commas and colons do not work in Java class paths; set THALWEG_CLUSTER_DIR to another folder", abs)
	}
	if real, err := filepath.EvalSymlinks(abs); err == nil {
		abs = real
	}
	return layout{dir: abs}, nil
}

func (l layout) make() error {
	for _, d := range []string{l.dir, l.conf(), l.bin(), filepath.Join(l.dir, "log"), filepath.Join(l.dir, "pid")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return fmt.Errorf("rig: make %s: %w", d, err)
		}
	}
	real, err := filepath.EvalSymlinks(l.dir)
	if err != nil || real != l.dir {
		return fmt.Errorf("rig: folder %s is a symbolic link to %s: use the latter", l.dir, real)
	}
	return nil
}

// ErrNoCluster says that a folder has never been a cluster.
var ErrNoCluster = errors.New("no cluster here (make cluster-up starts one)")

func (l layout) load() (state, error) {
	b, err := os.ReadFile(l.state())
	if errors.Is(err, iofs.ErrNotExist) {
		return state{}, fmt.Errorf("rig: %s: %w", l.dir, ErrNoCluster)
	}
	if err != nil {
		return state{}, fmt.Errorf("rig: read state: %w", err)
	}
	var s state
	if err := json.Unmarshal(b, &s); err != nil {
		return state{}, fmt.Errorf("rig: %s is damaged (%w): run `make cluster-down` and remove the folder", l.state(), err)
	}
	if s.Version != stateVersion {
		return state{}, fmt.Errorf("rig: %s was made by another version of the rig (%d, this is %d): run `make cluster-down` there and remove the folder", l.dir, s.Version, stateVersion)
	}
	return s, nil
}

func (l layout) save(s state) error {
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("rig: save state: %w", err)
	}
	return writeFile(l.state(), append(b, '\n'), 0o644)
}

// writeFile replaces path in one step, so that a reader never sees half of it.
func writeFile(path string, b []byte, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("rig: write %s: %w", path, err)
	}
	tmp := fmt.Sprintf("%s.%d.tmp", path, os.Getpid())
	if err := os.WriteFile(tmp, b, mode); err != nil {
		return fmt.Errorf("rig: write %s: %w", path, err)
	}
	if err := os.Chmod(tmp, mode); err != nil {
		return fmt.Errorf("rig: write %s: %w", path, err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return fmt.Errorf("rig: write %s: %w", path, err)
	}
	return nil
}
