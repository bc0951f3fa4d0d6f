package config

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// limits are, for every option that is a number, a duration or a size, its smallest and greatest value and those just outside. A further
// value that means something of its own (-1 for "no limit") is in also.
var limits = map[string]struct{ least, below, most, above, also string }{
	"parallelism.default":               {"1", "0", "32768", "32769", ""},
	"pipeline.max-parallelism":          {"1", "0", "32768", "32769", "-1"},
	"pipeline.auto-watermark-interval":  {"1 ms", "999 us", "36500 d", "36501 d", ""},
	"execution.buffer-timeout.interval": {"1 ms", "1 us", "36500 d", "36501 d", "-1"},

	"jobmanager.adaptive-scheduler.submission.resource-wait-timeout":          {"0", "-2", "36500 d", "36501 d", "-1"},
	"jobmanager.adaptive-scheduler.submission.resource-stabilization-timeout": {"0", "-2", "36500 d", "36501 d", ""},
	"jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling":        {"0", "-2", "36500 d", "36501 d", ""},
	"jobmanager.adaptive-scheduler.executing.resource-stabilization-timeout":  {"0", "-2", "36500 d", "36501 d", ""},
	"jobmanager.adaptive-scheduler.rescale-trigger.max-delay":                 {"0", "-2", "36500 d", "36501 d", ""},
	"jobmanager.adaptive-scheduler.rescale-trigger.max-checkpoint-failures":   {"1", "0", "2147483647", "2147483648", ""},
	"job.autoscaler.utilization.target":                                       {"0.01", "0", "1", "1.1", "0.7"},
	"job.autoscaler.utilization.max":                                          {"0.01", "0", "1", "1.1", "0.95"},
	"job.autoscaler.utilization.min":                                          {"0.01", "0", "1", "1.1", "0.4"},
	"job.autoscaler.catch-up.duration":                                        {"0", "-1", "36500 d", "36501 d", ""},
	"job.autoscaler.restart.time":                                             {"0", "-1", "36500 d", "36501 d", ""},
	"job.autoscaler.stabilization.interval":                                   {"0", "-1", "36500 d", "36501 d", ""},
	"job.autoscaler.metrics.window":                                           {"1 s", "999 ms", "36500 d", "36501 d", ""},
	"job.autoscaler.scale-down.interval":                                      {"0", "-1", "36500 d", "36501 d", ""},
	"job.autoscaler.scale-up.max-factor":                                      {"0.01", "0", "1000000", "1000001", ""},
	"job.autoscaler.scale-down.max-factor":                                    {"0.01", "0", "1", "1.1", ""},
	"job.autoscaler.vertex.min-parallelism":                                   {"1", "0", "32768", "32769", ""},
	"job.autoscaler.vertex.max-parallelism":                                   {"1", "0", "32768", "32769", ""},
	"restart-strategy.fixed-delay.attempts":                                   {"0", "-1", "2147483647", "2147483648", ""},
	"restart-strategy.fixed-delay.delay":                                      {"0", "-1", "36500 d", "36501 d", ""},
	"slotmanager.redundant-taskmanager-num":                                   {"0", "-1", "10000", "10001", ""},
	"web.exception-history-size":                                              {"1", "0", "10000", "10001", ""},
	"restart-strategy.failure-rate.delay":                                     {"0", "-1", "36500 d", "36501 d", ""},
	"restart-strategy.failure-rate.failure-rate-interval":                     {"1 ms", "0", "36500 d", "36501 d", ""},
	"restart-strategy.failure-rate.max-failures-per-interval":                 {"1", "0", "2147483647", "2147483648", "3"},
	"restart-strategy.exponential-delay.initial-backoff":                      {"1 ms", "0", "36500 d", "36501 d", ""},
	"restart-strategy.exponential-delay.max-backoff":                          {"1 ms", "0", "36500 d", "36501 d", ""},
	"restart-strategy.exponential-delay.backoff-multiplier":                   {"1", "0.99", "1000", "1000.1", "1.5"},
	"restart-strategy.exponential-delay.reset-backoff-threshold":              {"1 ms", "0", "36500 d", "36501 d", ""},
	"restart-strategy.exponential-delay.jitter-factor":                        {"0", "-0.1", "1", "1.1", "0.1"},
	"restart-strategy.exponential-delay.attempts-before-reset-backoff":        {"0", "-2", "2147483647", "2147483648", "-1"},
	"execution.checkpointing.interval":                                        {"1 ms", "1 us", "36500 d", "36501 d", "0"},
	"execution.checkpointing.timeout":                                         {"1 ms", "0", "36500 d", "36501 d", ""},
	"execution.checkpointing.min-pause":                                       {"0", "-1", "36500 d", "36501 d", ""},
	"execution.checkpointing.aligned-checkpoint-timeout":                      {"0", "-1", "36500 d", "36501 d", ""},
	"execution.checkpointing.max-concurrent-checkpoints":                      {"1", "0", "1000", "1001", ""},
	"execution.checkpointing.num-retained":                                    {"1", "0", "10000", "10001", ""},
	"execution.checkpointing.tolerable-failed-checkpoints":                    {"0", "-1", "2147483647", "2147483648", ""},
	"execution.checkpointing.fs.memory-threshold":                             {"0", "-1", "1mb", "1025kb", ""},
	"execution.checkpointing.file-merging.max-file-size":                      {"1kb", "1023", "1tb", "2tb", ""},
	"execution.checkpointing.file-merging.max-subtasks-per-file":              {"1", "0", "32768", "32769", ""},
	"execution.checkpointing.file-merging.max-space-amplification":            {"0", "-0.1", "1000000", "1000001", "1.5"},
	"jobmanager.memory.process.size":                                          {"64mb", "63mb", "16tb", "17tb", ""},
	"taskmanager.memory.process.size":                                         {"128mb", "127mb", "16tb", "17tb", ""},
	"taskmanager.numberOfTaskSlots":                                           {"1", "0", "4096", "4097", ""},
	"taskmanager.memory.managed.fraction":                                     {"0", "-0.1", "0.999", "1", "0.4"},
	"execution.sorted-inputs.memory":                                          {"32kb", "31kb", "1tb", "2tb", ""},
	"taskmanager.memory.segment-size":                                         {"1", "0", "64mb", "65mb", ""},
	"taskmanager.network.memory.buffers-per-channel":                          {"1", "0", "65536", "65537", ""},
	"taskmanager.network.memory.floating-buffers-per-gate":                    {"0", "-1", "65536", "65537", ""},
	"taskmanager.network.memory.max-overdraft-buffers-per-gate":               {"0", "-1", "65536", "65537", ""},
	"heartbeat.interval":                                                      {"1 ms", "0", "1 h", "61 min", ""},
	"heartbeat.timeout":                                                       {"10 ms", "9 ms", "36500 d", "36501 d", ""},
	"jobstore.expiration-time":                                                {"1 s", "999 ms", "36500 d", "36501 d", ""},
	"jobstore.max-capacity":                                                   {"1", "0", "100000", "100001", ""},
	"rest.port":                                                               {"0", "-1", "65535", "65536", ""},
	"web.refresh-interval":                                                    {"100 ms", "99 ms", "36500 d", "36501 d", ""},
	"task.cancellation.timeout":                                               {"1 ms", "0", "36500 d", "36501 d", ""},
	"slot.request.timeout":                                                    {"1 ms", "0", "36500 d", "36501 d", ""},
	"resourcemanager.taskmanager-timeout":                                     {"1 ms", "0", "36500 d", "36501 d", ""},
	"resourcemanager.taskmanager-registration.timeout":                        {"1 ms", "0", "36500 d", "36501 d", ""},
	"resourcemanager.start-worker.max-failure-rate":                           {"0", "-0.1", "1000000", "1000001", "1e3"},
	"resourcemanager.start-worker.retry-interval":                             {"0", "-1", "36500 d", "36501 d", ""},
	"resourcemanager.start-worker.max-failures":                               {"1", "0", "2147483647", "2147483648", "-1"},
	"resourcemanager.node-exclusion.failures":                                 {"1", "0", "2147483647", "2147483648", "-1"},
	"resourcemanager.node-exclusion.duration":                                 {"1 s", "999 ms", "30 d", "31 d", ""},
	"historyserver.archive.fs.refresh-interval":                               {"100 ms", "99 ms", "24 h", "25 h", ""},
	"historyserver.archive.retained-jobs":                                     {"1", "0", "2147483647", "2147483648", "-1"},
	"historyserver.web.port":                                                  {"0", "-1", "65535", "65536", ""},
	"resourcemanager.previous-worker.recovery.timeout":                        {"0", "-1", "36500 d", "36501 d", ""},
	"yarn.application.priority":                                               {"-2147483648", "-2147483649", "2147483647", "2147483648", "-1"},
	"yarn.application-attempts":                                               {"1", "0", "2147483647", "2147483648", ""},
	"yarn.application-attempt-failures-validity-interval":                     {"1 ms", "0", "36500 d", "36501 d", "-1"},
	"yarn.appmaster.vcores":                                                   {"1", "0", "4096", "4097", ""},
	"yarn.containers.vcores":                                                  {"1", "0", "4096", "4097", "-1"},
	"yarn.heartbeat.interval":                                                 {"10 ms", "9 ms", "1 h", "61 min", ""},
	"yarn.heartbeat.container-request-interval":                               {"10 ms", "9 ms", "1 h", "61 min", ""},
	"yarn.file-replication":                                                   {"1", "0", "512", "513", "-1"},
	"client.timeout":                                                          {"1 ms", "0", "36500 d", "36501 d", ""},
	"client.connection-timeout":                                               {"1 ms", "0", "36500 d", "36501 d", ""},
	"security.delegation.tokens.renewal.time-ratio":                           {"0.01", "0", "1", "1.1", ""},
	"security.delegation.tokens.renewal.retry.backoff":                        {"1 ms", "0", "36500 d", "36501 d", ""},
	"env.log.max-size":                                                        {"1mb", "1023kb", "1tb", "1025gb", ""},
	"env.log.max":                                                             {"1", "0", "10000", "10001", ""},
}

// refused by every number, duration and size.
var nonsense = []string{"", " ", "NaN", "nan", "Inf", "-Inf", "+inf", "infinite", "1e400", "-1e400", "0x10", "1_000", "1,5", "one", "--1", "-2 s", "1 s 2", "1 parsec",
	"9223372036854775808", "99999999999999999999999", "-9223372036854775808", "-9223372036854775809", "9223372036854775807 d", "9223372036854775807tb", "8796093022208mb", "1\x00", "1\n2", "\xff", "$(nproc)"}

// What a user can write is either understood or refused in one line that names the key and says what is wanted.
func TestHostileValues(t *testing.T) {
	for _, key := range Keys() {
		lim, listed := limits[key]
		switch registry[key].(type) {
		case *Option[int], *Option[float64], *Option[time.Duration], *Option[Bytes]:
			if !listed {
				t.Errorf("%s has no limits in this test", key)
				continue
			}
			for _, v := range append(nonsense, lim.below, lim.above) {
				refuses(t, key, v)
			}
			for _, v := range []string{lim.least, lim.most, " " + lim.least + " ", lim.also} {
				if err := ValidateKeys(Configuration{key: v}); v != "" && err != nil {
					t.Errorf("%s = %q: %v", key, v, err)
				}
			}
		case *Option[string], *Option[[]string]:
			for _, v := range []string{"/a\nb", "/a\x00b", "\xff\xfe", "hdfs://nn/\x1b[31mred"} {
				refuses(t, key, v)
			}
		case *Option[bool]:
			for _, v := range []string{"", "yes", "1", "nope", "true false"} {
				refuses(t, key, v)
			}
		default:
			t.Errorf("%s has a type that this test does not know", key)
		}
	}
}

func refuses(t *testing.T, key, v string) {
	t.Helper()
	err := ValidateKeys(Configuration{key: v})
	if err == nil || !strings.HasPrefix(err.Error(), "config: "+key+" = ") || !strings.Contains(err.Error(), "want ") || strings.ContainsAny(err.Error(), "\n\x00\x1b") {
		t.Errorf("%s = %q: %v, want one line that names the key and what it wants", key, v, err)
	}
}

// A number without unit is what it is in Flink; who meant another unit reads what was understood.
func TestUnitThatIsMissingIsNamed(t *testing.T) {
	for key, c := range map[string]struct{ value, want string }{
		"taskmanager.memory.process.size": {"512", `without a unit that is 512 bytes; for mebibytes write "512m"`},
		"jobmanager.memory.process.size":  {"1024", `without a unit that is 1024 bytes; for mebibytes write "1024m"`},
		"yarn.heartbeat.interval":         {"5", `without a unit that is 5 ms; for seconds write "5 s"`},
	} {
		if err := Validate(Configuration{key: c.value}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s = %s: %v\nlacks %q", key, c.value, err, c.want)
		}
	}
	if err := Validate(Configuration{"taskmanager.memory.process.size": "512b"}); err == nil || strings.Contains(err.Error(), "without a unit") {
		t.Errorf("%v", err)
	}
}

func TestOptionsThatContradictEachOther(t *testing.T) {
	for name, c := range map[string]struct {
		conf Configuration
		want []string
	}{
		"timeout below the default interval": {Configuration{"heartbeat.timeout": "500 ms"}, []string{"heartbeat.timeout = 500 ms", "heartbeat.interval = 1 s"}},
		"timeout equal to the interval":      {Configuration{"heartbeat.timeout": "5 s", "heartbeat.interval": "5 s"}, []string{"heartbeat.timeout", "heartbeat.interval"}},
		"interval above the default timeout": {Configuration{"heartbeat.interval": "10 s"}, []string{"heartbeat.timeout = 10 s", "heartbeat.interval = 10 s"}},
		"pauses":                             {Configuration{"restart-strategy.exponential-delay.initial-backoff": "2 min"}, []string{"max-backoff = 1 min", "initial-backoff = 2 min"}},
	} {
		err := Validate(c.conf)
		for _, w := range c.want {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v\nlacks %q", name, err, w)
			}
		}
	}
	for _, good := range []Configuration{nil, {"heartbeat.timeout": "2 s"}, {"heartbeat.timeout": "500 ms", "heartbeat.interval": "100 ms"}} {
		if err := Validate(good); err != nil {
			t.Errorf("%v: %v", good, err)
		}
	}
}

// An option that nothing reads is a promise that nobody keeps.
func TestEveryOptionIsRead(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "options.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	unread := map[string]bool{}
	for _, d := range f.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.VAR {
			continue
		}
		for _, s := range g.Specs {
			for _, n := range s.(*ast.ValueSpec).Names {
				unread[n.Name] = true
			}
		}
	}
	if len(unread) != len(Keys()) {
		t.Fatalf("%d variables for %d options", len(unread), len(Keys()))
	}
	outside, inside := regexp.MustCompile(`\bconfig\.([A-Z]\w+)`), regexp.MustCompile(`\b([A-Z]\w+)\.(?:Value|Get)\(`)
	err = filepath.WalkDir("..", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && p != ".." && strings.HasPrefix(d.Name(), "."):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(p, ".go") || strings.HasSuffix(p, "_test.go"):
			return nil
		}
		b, err := os.ReadFile(p)
		if err != nil {
			return fmt.Errorf("read %s: %w", p, err)
		}
		reads := outside
		if filepath.Dir(p) == filepath.Join("..", "config") {
			reads = inside
		}
		for _, m := range reads.FindAllSubmatch(b, -1) {
			delete(unread, string(m[1]))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for n := range unread {
		t.Errorf("nothing reads the option config.%s: give it its meaning, or remove it", n)
	}
}
