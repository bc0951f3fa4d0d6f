package conf

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func write(t *testing.T, dir, name, body string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("<?xml version=\"1.0\"?>\n<configuration>"+body+"</configuration>"), 0o600); err != nil {
		t.Fatal(err)
	}
}

func prop(k, v string) string {
	return "<property><name>" + k + "</name><value>" + v + "</value></property>"
}

func final(k, v string) string {
	return "<property><name>" + k + "</name><value>" + v + "</value><final>true</final></property>"
}

func env(m map[string]string) Option {
	return WithEnvironment(func(k string) (string, bool) { v, ok := m[k]; return v, ok })
}

func str(t *testing.T, c *Configuration, key string) string {
	t.Helper()
	v, err := c.String(key, "")
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestFilesInOrder(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	write(t, a, "core-site.xml", prop("x", "core")+final("y", "core")+prop("fs.default.name", "hdfs://nn:8020")+prop("z", " spaces \n"))
	write(t, a, "yarn-site.xml", prop("x", "yarn")+prop("y", "yarn")+"<property name=\"attr\" value=\"v\"/><property><name>novalue</name></property><!-- c -->")
	write(t, b, "yarn-site.xml", prop("x", "second")+prop("hidden", "1"))
	write(t, b, "hdfs-site.xml", prop("x", "hdfs")+prop("empty", "")+prop("only", "here"))
	c, err := Load(env(map[string]string{"HADOOP_CONF_DIR": a, "YARN_CONF_DIR": b}))
	if err != nil {
		t.Fatal(err)
	}
	for k, want := range map[string]string{"x": "yarn", "only": "here", "hidden": "", "y": "core", KeyDefaultFS: "hdfs://nn:8020", "z": "spaces", "attr": "v", "novalue": "", "empty": "", "unset": ""} {
		if got := str(t, c, k); got != want {
			t.Errorf("%s = %q, want %q", k, got, want)
		}
	}
	if got := c.Source("y"); got != filepath.Join(a, "core-site.xml") {
		t.Errorf("source of y: %s", got)
	}
	if got := c.Source("ipc.ping.interval"); got != "" {
		t.Errorf("source of a default: %s", got)
	}
	if _, ok := c.Raw("novalue"); ok {
		t.Error("a property without value counts")
	}
	c2, err := Load(WithDirs(a), WithOverrides(map[string]string{"y": "user"}))
	if err != nil || str(t, c2, "y") != "user" {
		t.Errorf("override of a final value: %v", err)
	}
}

func TestNoConfiguration(t *testing.T) {
	if _, err := Load(env(nil)); !errors.Is(err, ErrNoConfiguration) || !strings.Contains(err.Error(), "HADOOP_CONF_DIR") {
		t.Error(err)
	}
	d := t.TempDir()
	if _, err := Load(WithDirs(d)); err == nil || !strings.Contains(err.Error(), d) {
		t.Error(err)
	}
}

// The folder that a variable names must be there: a misspelt one is not taken for "no configuration", nor hidden by the other one.
func TestMissingFoldersAreNamed(t *testing.T) {
	d := t.TempDir()
	write(t, d, "yarn-site.xml", prop("x", "1"))
	gone := filepath.Join(d, "gone")
	for _, m := range []map[string]string{{"HADOOP_CONF_DIR": gone}, {"HADOOP_CONF_DIR": gone, "YARN_CONF_DIR": d}, {"HADOOP_CONF_DIR": d, "YARN_CONF_DIR": gone}, {"HADOOP_CONF_DIR": filepath.Join(d, "yarn-site.xml")}} {
		want := "HADOOP_CONF_DIR = "
		if m["HADOOP_CONF_DIR"] == d {
			want = "YARN_CONF_DIR = "
		}
		if _, err := Load(env(m)); err == nil || !strings.Contains(err.Error(), want+m[strings.TrimSuffix(want, " = ")]) {
			t.Errorf("%v: %v", m, err)
		}
	}
	if c, err := Load(env(map[string]string{"YARN_CONF_DIR": d})); err != nil || str(t, c, "x") != "1" {
		t.Errorf("YARN_CONF_DIR alone: %v", err)
	}
}

func TestBadFilesAreNamed(t *testing.T) {
	for body, want := range map[string]string{
		"<property><value>x</value></property>": "without <name>",
		"<property><name>a</name>":              "",
		"<xi:include href=\"missing.xml\" xmlns:xi=\"http://www.w3.org/2001/XInclude\"/>":   "missing.xml",
		"<xi:include href=\"core-site.xml\" xmlns:xi=\"http://www.w3.org/2001/XInclude\"/>": "levels",
	} {
		d := t.TempDir()
		write(t, d, "core-site.xml", body)
		_, err := Load(WithDirs(d))
		if err == nil || !strings.Contains(err.Error(), filepath.Join(d, "core-site.xml")) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", body, err)
		}
	}
	d := t.TempDir()
	if err := os.WriteFile(filepath.Join(d, "core-site.xml"), []byte("<html/>"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(WithDirs(d)); err == nil || !strings.Contains(err.Error(), "<html>") {
		t.Error(err)
	}
}

func TestInclude(t *testing.T) {
	d := t.TempDir()
	const ns = ` xmlns:xi="http://www.w3.org/2001/XInclude"`
	write(t, d, "core-site.xml", `<xi:include href="more.xml"`+ns+`/><xi:include href="none.xml"`+ns+`><xi:fallback/></xi:include>`+prop("b", "2"))
	write(t, d, "more.xml", prop("a", "1")+prop("b", "1"))
	c, err := Load(WithDirs(d))
	if err != nil || str(t, c, "a") != "1" || str(t, c, "b") != "2" {
		t.Error(err)
	}
}

func TestEncodings(t *testing.T) {
	d := t.TempDir()
	if err := os.WriteFile(filepath.Join(d, "core-site.xml"), []byte("<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?><configuration>"+prop("a", "caf\xe9")+"</configuration>"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(WithDirs(d))
	if err != nil || str(t, c, "a") != "caf\u00e9" {
		t.Error(err)
	}
}

func TestSubstitution(t *testing.T) {
	d := t.TempDir()
	m := map[string]string{
		"a": "1", "b": "${a}${a}", "c": "x${b}y", "nested": "${${name}}", "name": "a", "unbound": "${nothing}/${a}",
		"self": "${self}", "cycle1": "${cycle2}", "cycle2": "-${cycle1}", "grow": "${grow2}${grow2}", "grow2": "${grow}",
		"env": "${env.SET}:${env.UNSET-d1}:${env.EMPTY:-d2}:${env.EMPTY-d3}:${env.UNSET}", "dollar": "a$b $ {x} ${ } ${",
		"deep0": "end",
	}
	for i := range 30 {
		m["deep"+string(rune('A'+i))] = "${deep" + string(rune('A'+i+1)) + "}"
	}
	m["deep"+string(rune('A'+30))] = "end"
	body := ""
	for k, v := range m {
		body += prop(k, v)
	}
	write(t, d, "core-site.xml", strings.ReplaceAll(body, "&", "&amp;"))
	c, err := Load(WithDirs(d), env(map[string]string{"SET": "s", "EMPTY": ""}))
	if err != nil {
		t.Fatal(err)
	}
	for k, want := range map[string]string{
		"b": "11", "c": "x11y", "nested": "1", "unbound": "${nothing}/1", "env": "s:d1:d2::${env.UNSET}", "dollar": "a$b $ {x} ${ } ${",
	} {
		if got := str(t, c, k); got != want {
			t.Errorf("%s = %q, want %q", k, got, want)
		}
	}
	for _, k := range []string{"self", "cycle1", "grow", "deepA"} {
		var ke *KeyError
		if _, err := c.String(k, ""); !errors.As(err, &ke) || ke.Key != k || ke.File == "" {
			t.Errorf("%s: %v", k, err)
		}
	}
}

func TestTypes(t *testing.T) {
	c := FromMap(map[string]string{
		"t": "TRUE", "f": "false", "n": "42", "hex": "0x1F", "size": "64M", "plain": "100", "dur": "30s", "ms": "1500", "days": "2d", "us": "7us",
		"list": " a, ,b ,", "bad": "yes please", "huge": "9999999999G",
	})
	if v, err := c.Bool("t", false); err != nil || !v {
		t.Error("t", v, err)
	}
	if v, err := c.Bool("f", true); err != nil || v {
		t.Error("f", v, err)
	}
	if v, err := c.Int("hex", 0); err != nil || v != 31 {
		t.Error("hex", v, err)
	}
	if v, err := c.Int("unset", 5); err != nil || v != 5 {
		t.Error("unset", v, err)
	}
	if v, err := c.Size("size", 0); err != nil || v != 64<<20 {
		t.Error("size", v, err)
	}
	if v, err := c.Size("plain", 0); err != nil || v != 100 {
		t.Error("plain", v, err)
	}
	for k, want := range map[string]time.Duration{"dur": 30 * time.Second, "ms": 1500 * time.Millisecond, "days": 48 * time.Hour, "us": 7 * time.Microsecond, "unset": time.Hour} {
		if v, err := c.Duration(k, time.Hour, time.Millisecond); err != nil || v != want {
			t.Error(k, v, err)
		}
	}
	if v, err := c.Strings("list"); err != nil || !slices.Equal(v, []string{"a", "b"}) {
		t.Error("list", v, err)
	}
	fails := map[string]error{}
	_, fails["bool"] = c.Bool("bad", false)
	_, fails["int"] = c.Int("bad", 0)
	_, fails["size"] = c.Size("bad", 0)
	_, fails["huge"] = c.Size("huge", 0)
	_, fails["duration"] = c.Duration("bad", 0, time.Second)
	for name, err := range fails {
		var ke *KeyError
		if !errors.As(err, &ke) || ke.Fix == "" || !strings.Contains(err.Error(), ke.Key) || !strings.Contains(err.Error(), ke.Value) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAddresses(t *testing.T) {
	for name, tc := range map[string]struct {
		props    map[string]string
		rm, sch  []string
		errHolds string
	}{
		"defaults": {nil, []string{"127.0.0.1:8032"}, []string{"127.0.0.1:8030"}, ""},
		"hostname": {map[string]string{KeyRMHostname: "rm"}, []string{"rm:8032"}, []string{"rm:8030"}, ""},
		"address":  {map[string]string{KeyRMHostname: "rm", KeyRMAddress: "other:1", KeyRMSchedulerAddress: "third"}, []string{"other:1"}, []string{"third:8030"}, ""},
		"ha": {map[string]string{KeyRMHAEnabled: "true", KeyRMHAIDs: "rm1, rm2", KeyRMHostname + ".rm1": "a", KeyRMAddress + ".rm2": "b:99", KeyRMHostname + ".rm2": "b"},
			[]string{"a:8032", "b:99"}, []string{"a:8030", "b:8030"}, ""},
		"ha without ids":  {map[string]string{KeyRMHAEnabled: "true"}, nil, nil, KeyRMHAIDs},
		"ha without host": {map[string]string{KeyRMHAEnabled: "true", KeyRMHAIDs: "rm1,rm2", KeyRMHostname + ".rm1": "a"}, nil, nil, KeyRMHostname + ".rm2"},
		"bad port":        {map[string]string{KeyRMAddress: "rm:port", KeyRMSchedulerAddress: "rm:0"}, nil, nil, "host:port"},
		"unresolved":      {map[string]string{KeyRMHostname: "${nowhere}"}, nil, nil, "${nowhere}"},
	} {
		c := FromMap(tc.props)
		rm, err1 := c.ResourceManagers()
		sch, err2 := c.Schedulers()
		if tc.errHolds != "" {
			if err1 == nil || err2 == nil || !strings.Contains(err1.Error(), tc.errHolds) {
				t.Errorf("%s: %v, %v", name, err1, err2)
			}
			continue
		}
		if err1 != nil || err2 != nil || !slices.Equal(rm, tc.rm) || !slices.Equal(sch, tc.sch) {
			t.Errorf("%s: %v %v, %v %v", name, rm, sch, err1, err2)
		}
	}
	c := FromMap(map[string]string{"yarn.http.policy": "HTTPS_ONLY", KeyRMHostname: "rm"})
	if a, https, err := c.WebAddresses(); err != nil || !https || a[0] != "rm:8090" {
		t.Error(a, https, err)
	}
	if _, err := FromMap(map[string]string{KeyAuthentication: "magic"}).Kerberos(); err == nil {
		t.Error("authentication = magic")
	}
}

func FuzzParseXML(f *testing.F) {
	f.Add([]byte("<configuration>" + final("a", "${b}") + "</configuration>"))
	f.Add([]byte(`<configuration><property name="a" value="b" final="true"/><xi:include href="x"/></configuration>`))
	f.Fuzz(func(t *testing.T, b []byte) {
		c := &Configuration{props: defaults(), getenv: func(string) (string, bool) { return "", false }}
		err := parseXML(bytes.NewReader(b), func(k string, p property) {
			if k == "" {
				t.Fatal("property without a name")
			}
			c.set(k, p)
		}, func(string) error { return os.ErrNotExist })
		if err != nil {
			return
		}
		for _, k := range c.Keys() {
			_, _, _ = c.Lookup(k)
			_, _ = c.Duration(k, 0, time.Millisecond)
			_, _ = c.Size(k, 0)
		}
	})
}

func FuzzSubstitute(f *testing.F) {
	f.Add("${a}", "${b}${b}", "${a}")
	f.Fuzz(func(t *testing.T, v, a, b string) {
		c := &Configuration{props: map[string]property{"a": {value: a}, "b": {value: b}}, getenv: func(string) (string, bool) { return "e", true }}
		if _, err := c.substitute(v); err != nil && !errors.Is(err, errCycle) && !errors.Is(err, errTooDeep) {
			t.Fatal(err)
		}
	})
}
