package container

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/thalweg/thalweg/config"
	"github.com/thalweg/thalweg/internal/version"
	"github.com/thalweg/thalweg/yarnrpc/conf"
	"github.com/thalweg/thalweg/yarnrpc/token"
)

// The log writer keeps one goroutine for the life of the process; Close does not end it.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("gopkg.in/natefinch/lumberjack%2ev2.(*Logger).millRun"))
}

// The comma list of node-local folders is split, each is used, and what cannot be written is skipped (fluss 3616).
func TestLocalDirs(t *testing.T) {
	base := t.TempDir()
	one, two, file := filepath.Join(base, "d1", "app"), filepath.Join(base, "d2", "app"), filepath.Join(base, "file")
	for _, d := range []string{one, two} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := LocalDirs(one + ", " + file + "," + filepath.Join(base, "missing") + "," + two + ",")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{one, two}, got); d != "" {
		t.Error(d)
	}
	for _, d := range got {
		if list, err := os.ReadDir(d); err != nil || len(list) != 0 {
			t.Errorf("%s: %v, %v: the probe is left", d, list, err)
		}
	}
	if list, err := os.ReadDir(base); err != nil || len(list) != 3 {
		t.Errorf("something was made outside: %v, %v", list, err)
	}
	if os.Getuid() != 0 { // root writes everywhere
		if err := os.Chmod(one, 0o500); err != nil { //nolint:gosec // not writable
			t.Fatal(err)
		}
		if got, err := LocalDirs(one + "," + two); err != nil || len(got) != 1 || got[0] != two {
			t.Errorf("read-only folder: %v, %v", got, err)
		}
	}
	for _, list := range []string{"", ",", file} {
		if got, err := LocalDirs(list); err == nil || !strings.Contains(err.Error(), "LOCAL_DIRS") {
			t.Errorf("LocalDirs(%q) = %v, %v", list, got, err)
		}
	}
}

// write makes a container's environment.
func write(t *testing.T, a *Application) func(string) string {
	t.Helper()
	dir := t.TempDir()
	t.Chdir(dir)
	creds := &token.Credentials{}
	creds.Put("other", token.Token{Kind: token.KindAMRM, Identifier: []byte("i"), Password: []byte("p")})
	if a != nil {
		if err := a.Put(creds); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, "container_tokens")
	if err := token.WriteFile(file, creds, token.Writable); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"log1", "log2", "local"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	env := map[string]string{
		"CONTAINER_ID": "container_1_0001_01_000002", token.EnvFile: file, "NM_HOST": "nm3", "NM_HTTP_PORT": "8042",
		"LOG_DIRS": filepath.Join(dir, "log1") + "," + filepath.Join(dir, "log2"), "LOCAL_DIRS": filepath.Join(dir, "local"),
	}
	return func(k string) string { return env[k] }
}

func example() *Application {
	return &Application{
		Protocol: version.Protocol, Version: version.Version, ID: "application_1_0001", User: "ann", JobID: "00112233445566778899aabbccddeeff",
		Config: config.Configuration{"kafka.sasl.password": "hunter22", "env.log.level": "warn"}, Hadoop: map[string]string{"fs.defaultFS": "hdfs://nn:8020", "x": "a<b&c"}, Args: []string{"--in", "orders"},
	}
}

func TestRead(t *testing.T) {
	getenv := write(t, example())
	c, err := Read(getenv)
	if err != nil {
		t.Fatal(err)
	}
	if c.ID != "container_1_0001_01_000002" || c.Host != "nm3" || c.NodeHTTPAddress != "nm3:8042" || !strings.HasSuffix(c.LogDir, "log1") || len(c.LocalDirs) != 1 {
		t.Errorf("%+v", c)
	}
	if d := cmp.Diff(example(), c.App); d != "" {
		t.Error(d)
	}
	dir, err := c.HadoopDir()
	if err != nil {
		t.Fatal(err)
	}
	h, err := conf.Load(conf.WithDirs(dir))
	if err != nil {
		t.Fatal(err)
	}
	if v, _ := h.String("x", ""); v != "a<b&c" {
		t.Errorf("Hadoop property %q", v)
	}
	if fs, err := h.DefaultFS(); err != nil || fs != "hdfs://nn:8020" {
		t.Errorf("%s, %v", fs, err)
	}
	log, closer := c.Logger("taskmanager")
	log.Info().Msg("quiet")
	log.Warn().Msg("loud")
	if err := closer.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(c.LogDir, "taskmanager.log"))
	if err != nil || strings.Contains(string(b), "quiet") || !strings.Contains(string(b), `"app_id":"application_1_0001"`) || !strings.Contains(string(b), "loud") {
		t.Errorf("log %q, %v", b, err)
	}
}

func TestNotOurContainer(t *testing.T) {
	if _, err := Read(func(string) string { return "" }); !errors.Is(err, ErrNoApplication) {
		t.Errorf("outside of YARN: %v", err)
	}
	if _, err := Read(write(t, nil)); !errors.Is(err, ErrNoApplication) {
		t.Errorf("somebody else's container: %v", err)
	}
	a := example()
	a.Protocol, a.Version = 99, "9.0"
	var p *ProtocolError
	if _, err := Read(write(t, a)); !errors.As(err, &p) || !strings.Contains(err.Error(), "9.0") || !strings.Contains(err.Error(), version.Version) {
		t.Errorf("another protocol: %v", err)
	}
}

func TestHadoopProperties(t *testing.T) {
	dir := t.TempDir()
	xml := `<configuration><property><name>yarn.resourcemanager.hostname</name><value>rm1</value></property>
<property><name>a</name><value>${yarn.resourcemanager.hostname}:1</value></property></configuration>`
	if err := os.WriteFile(filepath.Join(dir, "yarn-site.xml"), []byte(xml), 0o600); err != nil {
		t.Fatal(err)
	}
	h, err := conf.Load(conf.WithDirs(dir))
	if err != nil {
		t.Fatal(err)
	}
	got := HadoopProperties(h, config.Configuration{"flink.hadoop.dfs.replication": "2", "thalweg.hadoop.b": "3", "flink.yarn.c": "4", "pipeline.name": "x", "flink.hadoop.": "no"})
	want := map[string]string{"yarn.resourcemanager.hostname": "rm1", "a": "rm1:1", "dfs.replication": "2", "b": "3", "yarn.c": "4"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func FuzzFromCredentials(f *testing.F) {
	c := &token.Credentials{}
	if err := example().Put(c); err != nil {
		f.Fatal(err)
	}
	b, _ := c.Secret(secretAlias)
	f.Add(b)
	f.Add([]byte(`{"protocol":1}`))
	f.Fuzz(func(_ *testing.T, b []byte) {
		c := &token.Credentials{}
		c.PutSecret(secretAlias, b)
		_, _ = FromCredentials(c)
	})
}

// YARN shows the end of a file with "stderr" in its name in the diagnostics of a container that failed; nobody's password belongs there.
func TestReasonOfAFailureIsLeftForTheDiagnostics(t *testing.T) {
	c := &Container{LogDir: t.TempDir(), App: &Application{Config: config.Configuration{"kafka.sasl.password": "hunter22"}}}
	c.Tell(nil)
	if found, err := filepath.Glob(filepath.Join(c.LogDir, "*")); err != nil || len(found) != 0 {
		t.Errorf("%v, %v", found, err)
	}
	c.Tell(errors.New("am: no access to /ha with hunter22"))
	b, err := os.ReadFile(filepath.Join(c.LogDir, TellFile))
	if err != nil || string(b) != "am: no access to /ha with "+config.Hidden+"\n" {
		t.Errorf("%q, %v", b, err)
	}
	if ok, err := filepath.Match("*stderr*", TellFile); !ok || err != nil {
		t.Errorf("the NodeManager does not look for %s", TellFile)
	}
}
