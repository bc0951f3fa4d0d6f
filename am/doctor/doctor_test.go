package doctor_test

import (
	"context"
	"errors"
	iofs "io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"go.uber.org/goleak"

	"github.com/thalweg/thalweg/am"
	"github.com/thalweg/thalweg/am/doctor"
	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/fs"
	"github.com/thalweg/thalweg/fs/mem"
	"github.com/thalweg/thalweg/yarnrpc/client"
	"github.com/thalweg/thalweg/yarnrpc/conf"
	"github.com/thalweg/thalweg/yarnrpc/yarnfake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// guarded refuses to create files below a folder.
type guarded struct {
	fs.FileSystem
	below string
}

func (g guarded) Create(ctx context.Context, p string, overwrite bool) (fs.Writer, error) {
	if strings.HasPrefix(p, g.below) {
		return nil, &iofs.PathError{Op: "create", Path: p, Err: iofs.ErrPermission}
	}
	return g.FileSystem.Create(ctx, p, overwrite)
}

func (guarded) Close() error { return nil }

// patient is a cluster on which all is well, with /locked closed to the user.
func patient(t *testing.T) (doctor.Patient, fs.FileSystem) {
	t.Helper()
	fake, err := yarnfake.Start(yarnfake.WithQueues("default"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = fake.Close() })
	rm, err := client.New(fake.Conf())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rm.Close() })
	dir, lib := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{
		"core-site.xml": "<configuration><property><name>fs.defaultFS</name><value>mem://nn</value></property></configuration>",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range []string{am.MasterBinary, am.TaskManagerBinary} {
		if err := os.WriteFile(filepath.Join(lib, n), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	hadoop, err := conf.Load(conf.WithDirs(dir))
	if err != nil {
		t.Fatal(err)
	}
	store := mem.New("nn")
	reg := &fs.Registry{}
	reg.Register("mem", func(context.Context, *url.URL) (fs.FileSystem, error) { return guarded{store, "/locked"}, nil })
	return doctor.Patient{Hadoop: hadoop, Config: config.Configuration{}, Files: reg, YARN: rm, User: "ann", LibDir: lib}, store
}

func examine(t *testing.T, p doctor.Patient) (all map[string]doctor.Finding, failed int) {
	t.Helper()
	all = map[string]doctor.Finding{}
	failed, err := doctor.Examine(t.Context(), p, func(f doctor.Finding) {
		if strings.Contains(f.Text+f.Do, "\n") || f.Text == "" || f.Status == doctor.OK && f.Do != "" {
			t.Errorf("%+v", f)
		}
		all[f.Check] = f
	})
	if err != nil {
		t.Fatal(err)
	}
	return all, failed
}

func TestAllIsWell(t *testing.T) {
	p, store := patient(t)
	brokers, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, "orders"))
	if err != nil {
		t.Fatal(err)
	}
	defer brokers.Close()
	p.Kafka = doctor.Kafka{Brokers: brokers.ListenAddrs(), Topics: []string{"orders"}}
	p.Config[config.CheckpointDir.Key], p.Config[config.SavepointDir.Key] = "mem://nn/checkpoints/deep/below", "mem://nn/savepoints"
	all, failed := examine(t, p)
	if failed > 0 {
		t.Error(failed)
	}
	for _, check := range []string{"programs", "memory", "hadoop configuration", "login", "staging folder", "clock", "checkpoint folder", "savepoint folder", "ResourceManager", "containers", "queue", "nodes", "Kafka", "topic orders"} {
		if f := all[check]; f.Status != doctor.OK {
			t.Errorf("%s: %+v", check, f)
		}
	}
	if left, err := store.List(t.Context(), "/"); err != nil || len(left) > 0 {
		t.Errorf("left are %v, %v", left, err)
	}
}

func TestEachIllnessHasItsLine(t *testing.T) {
	free := func() string { // nobody listens there
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close() //nolint:errcheck // only its port is wanted
		return l.Addr().String()
	}()
	for _, c := range []struct {
		name, check, text, do string
		change                func(p *doctor.Patient)
	}{
		{"no programs", "programs", "lacks " + am.MasterBinary, "THALWEG_LIB_DIR", func(p *doctor.Patient) { p.LibDir = t.TempDir() }},
		{"memory", "memory", "taskmanager.memory", "", func(p *doctor.Patient) {
			p.Config["taskmanager.memory.process.size"], p.Config["taskmanager.memory.managed.fraction"] = "128m", "0.99"
			p.Config["state.backend.type"] = "pebble"
		}},
		{"no configuration", "hadoop configuration", "no folder", "HADOOP_CONF_DIR", func(p *doctor.Patient) { p.Hadoop = conf.FromMap(map[string]string{"fs.defaultFS": "mem://nn"}) }},
		{"staging", "staging folder", "cannot be written by user ann", "-Dyarn.staging-directory", func(p *doctor.Patient) { p.Config[config.YarnStaging.Key] = "mem://nn/locked/ann" }},
		{"checkpoints", "checkpoint folder", "mem://nn/locked/c cannot be written by user ann", "-D" + config.CheckpointDir.Key, func(p *doctor.Patient) { p.Config[config.CheckpointDir.Key] = "mem://nn/locked/c" }},
		{"clock", "clock", "differ by 6m", "NTP", func(p *doctor.Patient) { p.Now = func() time.Time { return time.Now().Add(6 * time.Minute) } }},
		{"queue", "queue", `"night"`, "", func(p *doctor.Patient) { p.Config[config.YarnQueue.Key] = "night" }},
		{"size", "containers", "larger than the cluster's maximum", "", func(p *doctor.Patient) { p.Config[config.TaskManagerMemory.Key] = "900g" }},
		{"size of nodes", "nodes", "as large as a TaskManager", "lower taskmanager.memory.process.size", func(p *doctor.Patient) { p.Config[config.TaskManagerMemory.Key] = "900g" }},
		{"brokers", "Kafka", free, "--bootstrap-server", func(p *doctor.Patient) { p.Kafka.Brokers, p.Limit = []string{free}, 2*time.Second }},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, store := patient(t)
			if err := store.Mkdir(t.Context(), "/locked", 0o755); err != nil {
				t.Fatal(err)
			}
			c.change(&p)
			all, failed := examine(t, p)
			if f := all[c.check]; failed == 0 || f.Status != doctor.Fail || !strings.Contains(f.Text, c.text) || !strings.Contains(f.Do, c.do) {
				t.Errorf("%d failed: %+v", failed, f)
			}
		})
	}
}

func TestTopicThatIsMissing(t *testing.T) {
	p, _ := patient(t)
	brokers, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	defer brokers.Close()
	p.Kafka = doctor.Kafka{Brokers: brokers.ListenAddrs(), Topics: []string{"ordres"}}
	all, failed := examine(t, p)
	if f := all["topic ordres"]; failed != 1 || f.Status != doctor.Fail || !strings.Contains(f.Text, "does not exist") {
		t.Errorf("%d failed: %+v", failed, f)
	}
}

// A ResourceManager that is away is one failure; what only it can tell is not looked at.
func TestResourceManagerIsAway(t *testing.T) {
	p, _ := patient(t)
	away, err := client.New(conf.FromMap(map[string]string{"yarn.resourcemanager.address": "127.0.0.1:1"}), client.WithMaxWait(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer away.Close() //nolint:errcheck // a test
	p.YARN = away
	all, failed := examine(t, p)
	if failed != 1 || all["ResourceManager"].Status != doctor.Fail || all["queue"].Status != doctor.Warn || !strings.Contains(all["queue"].Do, "ResourceManager") {
		t.Errorf("%d failed: %+v", failed, all)
	}
}

func TestInterruptedExaminationEnds(t *testing.T) {
	p, store := patient(t)
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := doctor.Examine(ctx, p, func(doctor.Finding) { cancel() }); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if left, err := store.List(t.Context(), "/"); err != nil || len(left) > 0 {
		t.Errorf("left are %v, %v", left, err)
	}
}
