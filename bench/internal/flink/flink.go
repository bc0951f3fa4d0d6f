// Package flink runs Apache Flink as the peer of the benchmarks: it installs it, writes its configuration, starts a standalone cluster or
// submits to YARN, and reads its REST interface. Layer: bench.
//
// Main flow: Install runs bench/flink/install.sh once; Standalone starts one JobManager and one TaskManager as children of the caller and
// Run runs the benchmark's jar on them; Submit hands the jar to YARN with the libraries provided on HDFS.
//
// The wheel that Flink comes in has no start scripts, so the main classes are called here with the class path order, the flags from
// BashJavaUtils and the --add-opens of Flink's own scripts. That saves Flink the JVM that its scripts start only to read the configuration.
package flink

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Version is the version of Flink that is compared with.
const Version = "2.3.0"

// Home is an installed Flink with the benchmark's jar.
type Home struct {
	Dir  string // what install.sh filled
	Java string
	Jar  string // the benchmark's jobs
	// Hadoop is a folder of jars that standalone clusters have too, to reach HDFS; "" for none.
	Hadoop string
}

// opens are env.java.opts.all of Flink's shipped configuration.
var opens = func() []string {
	all := []string{"--add-exports=java.rmi/sun.rmi.registry=ALL-UNNAMED", "--add-exports=java.security.jgss/sun.security.krb5=ALL-UNNAMED"}
	for _, p := range []string{"java.lang", "java.net", "java.io", "java.nio", "sun.nio.ch", "java.lang.reflect", "java.text", "java.time", "java.util", "java.util.concurrent", "java.util.concurrent.atomic", "java.util.concurrent.locks"} {
		all = append(all, "--add-opens=java.base/"+p+"=ALL-UNNAMED")
	}
	return all
}()

// Install makes sure that Flink and the jar are in THALWEG_BENCH_DIR, else in .cluster/flink of the checkout in root.
func Install(ctx context.Context, root string, progress io.Writer) (*Home, error) {
	dir := os.Getenv("THALWEG_BENCH_DIR")
	if dir == "" {
		dir = filepath.Join(root, ".cluster", "flink")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("flink: folder: %w", err)
	}
	cmd := exec.CommandContext(ctx, filepath.Join(root, "bench", "flink", "install.sh"), dir)
	cmd.Stderr = progress
	if out, err := cmd.Output(); err != nil {
		return nil, fmt.Errorf("flink: install into %s: %w: %s", dir, err, out)
	}
	java := "java"
	if h := os.Getenv("JAVA_HOME"); h != "" {
		java = filepath.Join(h, "bin", "java")
	}
	if java, err = exec.LookPath(java); err != nil {
		return nil, fmt.Errorf("flink: find java: %w", err)
	}
	return &Home{Dir: dir, Java: java, Jar: filepath.Join(dir, "build", "bench-flink.jar")}, nil
}

func (h *Home) lib() string { return filepath.Join(h.Dir, "flink", "lib") }

// settings that every configuration begins with. The keys are Flink's.
func base() map[string]string {
	return map[string]string{
		"pipeline.object-reuse":                                  "true",
		"execution.buffer-timeout.interval":                      "100 ms",
		"restart-strategy.type":                                  "none", // a run that fails is void
		"env.java.opts.all":                                      strings.Join(opens, " "),
		"web.refresh-interval":                                   "250",
		"execution.checkpointing.incremental":                    "true",
		"execution.checkpointing.mode":                           "EXACTLY_ONCE",
		"jobmanager.memory.process.size":                         "1600m",
		"cluster.intercept-user-system-exit":                     "DISABLED",
		"execution.checkpointing.checkpoints-after-tasks-finish": "true",
	}
}

const log4j = `rootLogger.level = INFO
rootLogger.appenderRef.file.ref = F
logger.hadoop.name = org.apache.hadoop
logger.hadoop.level = WARN
logger.kafka.name = org.apache.kafka
logger.kafka.level = WARN
appender.file.name = F
appender.file.type = File
appender.file.fileName = ${sys:log.file}
appender.file.append = true
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{UNIX_MILLIS} %-5p %-60c %x - %m%n
`

// writeConf writes a configuration folder; later settings win.
func writeConf(dir string, settings ...map[string]string) error {
	all := base()
	for _, s := range settings {
		for k, v := range s {
			all[k] = v
		}
	}
	var b strings.Builder
	for _, k := range sortedKeys(all) {
		fmt.Fprintf(&b, "%s: %q\n", k, all[k])
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("flink: configuration: %w", err)
	}
	for name, text := range map[string]string{"config.yaml": b.String(), "log4j.properties": log4j, "log4j-cli.properties": log4j} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return fmt.Errorf("flink: configuration: %w", err)
		}
	}
	return nil
}

func sortedKeys(m map[string]string) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
