package config

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestValidateReportsAllFaultsAtOnce(t *testing.T) {
	err := Validate(Configuration{
		"execution.checkpointing.intervall": "1 s", "taskmanager.numberOfTaskSlots": "0", "state.backend.type": "rocksdb",
		"user.mine": "anything", "parallelism.default": "2",
	}, Passthrough()...)
	var unknown *UnknownKeyError
	if !errors.As(err, &unknown) || unknown.Nearest != "execution.checkpointing.interval" {
		t.Errorf("unknown key: %v", err)
	}
	for _, want := range []string{`did you mean "execution.checkpointing.interval"?`, "taskmanager.numberOfTaskSlots", "from 1 to 4096", "want one of hashmap, pebble"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nlacks %q", err, want)
		}
	}
	if strings.Contains(err.Error(), "user.mine") || strings.Contains(err.Error(), "parallelism") {
		t.Errorf("good keys are reported: %v", err)
	}
}

// Values that make no sense are refused where they are given, not when a process trips over them.
func TestBounds(t *testing.T) {
	for key, values := range map[string]struct{ good, bad []string }{
		"execution.checkpointing.interval":  {[]string{"0", "1 ms", "1 h"}, []string{"-1 s", "1 ns"}},
		"execution.checkpointing.timeout":   {[]string{"1 s"}, []string{"0", "-1 s"}},
		"execution.checkpointing.min-pause": {[]string{"0"}, []string{"-1 s"}},
		"heartbeat.interval":                {[]string{"10 ms"}, []string{"0"}},
		"heartbeat.timeout":                 {[]string{"50 ms"}, []string{"0", "1 ms"}},
		"pipeline.max-parallelism":          {[]string{"-1", "1", "32768"}, []string{"0", "-2", "32769"}},
		"taskmanager.memory.segment-size":   {[]string{"64", "32kb"}, []string{"0", "1gb"}},
		"yarn.containers.vcores":            {[]string{"-1", "1"}, []string{"0", "-2"}},
		"rest.bind-port":                    {[]string{"0", "8081", "8081-8090", "8081, 9000-9001"}, []string{"99999", "", "x", "9-8", "-1"}},
	} {
		for _, v := range values.good {
			if err := ValidateKeys(Configuration{key: v}); err != nil {
				t.Errorf("%s: %v", key, err)
			}
		}
		for _, v := range values.bad {
			if err := ValidateKeys(Configuration{key: v}); err == nil || !strings.Contains(err.Error(), key) || !strings.Contains(err.Error(), "want") {
				t.Errorf("%s = %q: %v, want an error that says what to give", key, v, err)
			}
		}
	}
}

func TestEveryDefaultPassesItsOwnCheck(t *testing.T) {
	for _, k := range Keys() {
		e := registry[k]
		if d := e.defaultText(); d != "" {
			if err := e.checkText(d); err != nil {
				t.Errorf("default of %s: %v", k, err)
			}
		}
		if e.doc() == "" || !strings.HasSuffix(e.doc(), ".") {
			t.Errorf("%s: documentation %q is not a sentence", k, e.doc())
		}
	}
}

func TestDocumentIsInStep(t *testing.T) {
	b, err := os.ReadFile("../docs/config.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(b) != Markdown() {
		t.Error("docs/config.md is out of date; run: go generate ./config")
	}
}

func TestSizes(t *testing.T) {
	for in, want := range map[string]Bytes{"64m": 64 << 20, "1 gb": 1 << 30, "1048576": 1 << 20, "20kb": 20 << 10, "0": 0, " 3 MiB ": 3 << 20, "2tb": 2 << 40} {
		if got, err := ParseBytes(in); err != nil || got != want {
			t.Errorf("ParseBytes(%q) = %d, %v; want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", "x", "-1", "1 xb", "9223372036854775807kb", "1.5gb"} {
		if got, err := ParseBytes(in); err == nil {
			t.Errorf("ParseBytes(%q) = %d, want an error", in, got)
		}
	}
}

func TestDurations(t *testing.T) {
	for in, want := range map[string]time.Duration{
		"30 s": 30 * time.Second, "100ms": 100 * time.Millisecond, "1 min": time.Minute, "2 h": 2 * time.Hour, "1 d": 24 * time.Hour,
		"5": 5 * time.Millisecond, "1m30s": 90 * time.Second, "10 seconds": 10 * time.Second, "-1": -time.Millisecond, "2m": 2 * time.Minute,
	} {
		if got, err := ParseDuration(in); err != nil || got != want {
			t.Errorf("ParseDuration(%q) = %v, %v; want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "fast", "1 fortnight", "-5 s", "99999999999 d"} {
		if got, err := ParseDuration(in); err == nil {
			t.Errorf("ParseDuration(%q) = %v, want an error", in, got)
		}
	}
}

func TestFormsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := Bytes(rapid.Int64Range(0, 1<<50).Draw(t, "bytes"))
		if got, err := ParseBytes(b.String()); err != nil || got != b {
			t.Errorf("%d -> %q -> %d, %v", b, b, got, err)
		}
		d := time.Duration(rapid.Int64Range(0, int64(1000*time.Hour)).Draw(t, "duration"))
		if got, err := ParseDuration(formatDuration(d)); err != nil || got != d {
			t.Errorf("%d -> %q -> %d, %v", d, formatDuration(d), got, err)
		}
	})
}

func TestSecretsAreNeverShown(t *testing.T) {
	c := Configuration{
		"kafka.sasl.password": "hunter22", "kafka.sasl.jaas.config": "module x", "fs.azure.account.key.acct": "kkkkk", "my.API-KEY": "aaaaa",
		"user.pin": "12345", "security.redaction.additional-keys": "pin;code", "pipeline.name": "open", "s3.access.key": "AKIA", "x.secret": "",
	}
	r := c.Redacted()
	for _, k := range []string{"kafka.sasl.password", "kafka.sasl.jaas.config", "fs.azure.account.key.acct", "my.API-KEY", "user.pin", "s3.access.key"} {
		if r[k] != Hidden {
			t.Errorf("%s is shown: %q", k, r[k])
		}
	}
	if r["pipeline.name"] != "open" || r["x.secret"] != "" {
		t.Errorf("too much is hidden: %v", r)
	}
	if c["user.pin"] != "12345" {
		t.Error("Redacted changed the original")
	}
	if got := c.Redact("login with hunter22 and 12345 failed"); strings.Contains(got, "hunter22") || strings.Contains(got, "12345") {
		t.Errorf("Redact left %q", got)
	}
}

func TestDynamic(t *testing.T) {
	c, err := ParseDynamic([]string{"a.b=c=d", "x= 1 ", "flag", "x=2"})
	if err != nil || c["a.b"] != "c=d" || c["x"] != "2" || c["flag"] != "true" {
		t.Errorf("ParseDynamic = %v, %v", c, err)
	}
	if _, err := ParseDynamic([]string{"=1"}); err == nil {
		t.Error("an empty key is accepted")
	}
	if m := Merge(Configuration{"a": "1", "b": "1"}, nil, Configuration{"b": "2"}); m["a"] != "1" || m["b"] != "2" {
		t.Errorf("Merge = %v", m)
	}
}

func FuzzParsers(f *testing.F) {
	for _, s := range []string{"30 s", "1gb", "-1", "", "9223372036854775807", "1h2m", "٣ s"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if b, err := ParseBytes(s); err == nil && b < 0 {
			t.Errorf("ParseBytes(%q) = %d", s, b)
		}
		if d, err := ParseDuration(s); err == nil && d < -24*time.Hour {
			t.Errorf("ParseDuration(%q) = %d", s, d)
		}
		_ = unknownKey(s).Error()
	})
}

// Values that cannot mean what they say are refused where they are given, not where they are used.
func TestValuesOutOfRange(t *testing.T) {
	for key, c := range map[string]struct{ good, bad []string }{
		"parallelism.default":                   {[]string{"1", "32768"}, []string{"0", "-1", "32769", "100000"}},
		"yarn.application.priority":             {[]string{"-1", "0", "2147483647"}, []string{"2147483648", "99999999999"}},
		"yarn.application-attempts":             {[]string{"1", "2147483647"}, []string{"0", "4294967297"}},
		"yarn.appmaster.vcores":                 {[]string{"1"}, []string{"0", "4294967297"}},
		"taskmanager.numberOfTaskSlots":         {[]string{"1"}, []string{"0", "4294967297"}},
		"yarn.file-replication":                 {[]string{"-1", "3"}, []string{"-2", "4294967297"}},
		"execution.checkpointing.dir":           {[]string{"", "/x", "hdfs:///x", "hdfs://nn:8020/x", "file:/x"}, []string{"x", "./x", "../x", "hdfs:x", ":/x", "a/b:/x"}},
		"execution.checkpointing.savepoint-dir": {[]string{"/x", "s3://b/x"}, []string{"x"}},
		"execution.state-recovery.path":         {[]string{"/x"}, []string{"x", "-Dx=y"}},
		"yarn.staging-directory":                {[]string{"/x"}, []string{"x"}},
		"high-availability.storageDir":          {[]string{"/x"}, []string{"x"}},
	} {
		for _, v := range c.good {
			if err := Validate(Configuration{key: v}); err != nil {
				t.Errorf("%s = %q: %v", key, v, err)
			}
		}
		for _, v := range c.bad {
			if err := Validate(Configuration{key: v}); err == nil || !strings.Contains(err.Error(), key) {
				t.Errorf("%s = %q: %v, want an error that names the key", key, v, err)
			}
		}
	}
}

// A key or a value of Flink's that is not here says what stands for it.
func TestFlinksOldNames(t *testing.T) {
	for old := range renamed {
		if _, ok := registry[old]; ok {
			t.Errorf("%s is an option", old)
		}
		present, reason := flinks(old)
		if _, ok := registry[present]; !ok && (present != "" || reason == "") {
			t.Errorf("%s: %q is no option", old, present)
		}
	}
	for prefix := range renamedFamilies {
		for key := range registry {
			if strings.HasPrefix(key, prefix) {
				t.Errorf("%s is an option", key)
			}
		}
	}
	for key, values := range counterpart {
		for v := range values {
			if slices.Contains(Values(key), v) || Values(key) == nil || v != strings.ToLower(v) {
				t.Errorf("%s = %s", key, v)
			}
		}
	}
	for in, want := range map[[2]string]string{
		{"state.checkpoints.dir", "hdfs:///x"}:            "it is execution.checkpointing.dir now",
		{"state.backend", "rocksdb"}:                      "it is state.backend.type now",
		{"state.backend.type", "RocksDB"}:                 "want one of hashmap, pebble; pebble is the counterpart",
		{"state.backend.rocksdb.memory.managed", "true"}:  "leave it out: the pebble backend sizes itself",
		{"high-availability.zookeeper.quorum", "zk:2181"}: "leave it out: nothing here uses ZooKeeper",
		{"nothing.of.the.kind.anywhere", "1"}:             "(thalweg config lists all)",
		{"execution.checkpointing.intervall", "1"}:        `did you mean "execution.checkpointing.interval"?`,
		{"execution.state-recovery.claim-mode", "legacy"}: "no_claim leaves the savepoint alone",
	} {
		if err := Validate(Configuration{in[0]: in[1]}, Passthrough()...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v; want %s", in, err, want)
		}
	}
}

// Keys that users of Flink have in their configuration, and that are not here, say why; none is taken for a misspelling of another one.
func TestFlinksKeysThatAreNotHere(t *testing.T) {
	for _, key := range strings.Fields(`execution.attached pipeline.jars taskmanager.network.memory.fraction
		taskmanager.memory.network.fraction security.kerberos.login.contexts security.kerberos.relogin.period
		security.kerberos.fetch.delegation-token security.kerberos.tokens.renewal.retry.backoff security.delegation.token.provider.hadoopfs.enabled security.ssl.internal.enabled
		security.ssl.rest.enabled yarn.application-master.port yarn.container-start-command-template yarn.flink-dist-jar
		yarn.properties-file.location yarn.provided.usrlib.dir yarn.classpath.include-user-jar
		yarn.security.appmaster.delegation.token.services pipeline.generic-types pipeline.cached-files
		jobmanager.failure-enrichers jobmanager.adaptive-scheduler.min-parallelism-increase jobmanager.adaptive-scheduler.resource-wait-timeout scheduler-mode jobmanager.rpc.address
		rest.address rest.bind-address rest.flamegraph.enabled
		execution.checkpointing.unaligned.interruptible-timers.enabled execution.checkpointing.unaligned.max-subtasks-per-channel-state-file state.backend.local-recovery execution.batch-shuffle-mode
		slotmanager.number-of-slots.max slotmanager.max-total-resource.cpu resourcemanager.job.timeout
		cluster.evenly-spread-out-slots table.exec.state.ttl high-availability.zookeeper.quorum high-availability.type env.java.opts.all classloader.resolve-order
		taskmanager.memory.task.heap.size taskmanager.memory.jvm-metaspace.size jobmanager.memory.jvm-overhead.fraction state.backend.rocksdb.memory.managed
		blob.server.port historyserver.web.tmpdir web.submit.enable web.cancel.enable fs.default-scheme
		env.hadoop.conf.dir taskmanager.cpu.cores task.cancellation.timers.timeout`) {
		var e *UnknownKeyError
		if err := ValidateKeys(Configuration{key: "1"}, Passthrough()...); !errors.As(err, &e) || e.Nearest != "" || e.Reason == "" && e.Renamed == "" {
			t.Errorf("%s: %v", key, err)
		}
	}
	for _, all := range []map[string]string{absent, absentFamilies} {
		for key, reason := range all {
			if reason == "" || strings.HasPrefix(reason, " ") || strings.HasSuffix(reason, ".") {
				t.Errorf("%s: %q", key, reason)
			}
			if _, twice := renamed[key]; twice {
				t.Errorf("%s is renamed and absent", key)
			}
			for known := range registry {
				if _, family := absentFamilies[key]; key == known || family && strings.HasPrefix(known, key) {
					t.Errorf("%s is an option (%s)", known, key)
				}
			}
		}
	}
}

// A near match is for a key that was misspelt, not for another one.
func TestNearMatches(t *testing.T) {
	for in, want := range map[string]string{
		"paralelism.default": "parallelism.default", "rest.prt": "rest.port", "yarn.aplication.queu": "yarn.application.queue", "taskmanager.numberOfTaskSlot": "taskmanager.numberOfTaskSlots",
		"execution.checkpoint.interval": "execution.checkpointing.interval", "execution.checkpointing.pause": "", "taskmanager.network.fraction": "", "rest.host": "",
	} {
		var e *UnknownKeyError
		if err := unknownKey(in); !errors.As(err, &e) || e.Nearest != want {
			t.Errorf("%s: %v, want %q", in, err, want)
		}
	}
}
