package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func examine(t *testing.T, args ...string) (out string, code int) {
	t.Helper()
	var o, e bytes.Buffer
	c := newCLI(&o, &e, func(string) string { return "" })
	code = c.execute(t.Context(), c.root(), append([]string{"doctor"}, args...))
	return o.String() + e.String(), code
}

// Who cannot log in hears that as a finding, and that nothing else was looked at.
func TestDoctorWithoutALogin(t *testing.T) {
	dir := t.TempDir()
	core := `<configuration><property><name>fs.defaultFS</name><value>hdfs://127.0.0.1:1</value></property>
<property><name>hadoop.security.authentication</name><value>kerberos</value></property></configuration>`
	if err := os.WriteFile(filepath.Join(dir, "core-site.xml"), []byte(core), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HADOOP_CONF_DIR", dir)
	t.Setenv("KRB5CCNAME", filepath.Join(dir, "none"))
	t.Setenv("KRB5_CONFIG", filepath.Join(dir, "krb5.conf"))
	out, code := examine(t)
	if code != exitFailed || !strings.HasPrefix(out, "fail  configuration and login: ") || !strings.Contains(out, "nothing else") {
		t.Errorf("exit code %d: %s", code, out)
	}
}

func TestDoctorRefusesWhatItCannotUse(t *testing.T) {
	for args, want := range map[string]string{
		"--topic orders": "--bootstrap-server",
		"--timeout 0s":   "must be positive",
		"--bootstrap-server a:1 --command-config /nix": "/nix",
	} {
		out, code := examine(t, strings.Fields(args)...)
		if code != exitUsage || !strings.Contains(out, want) {
			t.Errorf("%s: exit code %d: %s", args, code, out)
		}
	}
}
