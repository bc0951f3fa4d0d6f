package rig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// cliTimeout bounds one run of a stock client; they take one to two seconds each on an idle machine.
const cliTimeout = 2 * time.Minute

// kafkaTools are the wrapper scripts of Kafka and their main classes.
var kafkaTools = map[string]string{
	"kafka-topics":             "org.apache.kafka.tools.TopicCommand",
	"kafka-configs":            "kafka.admin.ConfigCommand",
	"kafka-console-producer":   "org.apache.kafka.tools.ConsoleProducer",
	"kafka-console-consumer":   "org.apache.kafka.tools.consumer.ConsoleConsumer",
	"kafka-consumer-groups":    "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
	"kafka-transactions":       "org.apache.kafka.tools.TransactionsCommand",
	"kafka-get-offsets":        "org.apache.kafka.tools.GetOffsetShell",
	"kafka-delete-records":     "org.apache.kafka.tools.DeleteRecordsCommand",
	"kafka-features":           "org.apache.kafka.tools.FeatureCommand",
	"kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
	"kafka-storage":            "kafka.tools.StorageTool",
	"kafka-dump-log":           "org.apache.kafka.tools.DumpLogSegments",
}

// writeWrappers writes the scripts that run the stock clients by their Java main classes.
func (c *Cluster) writeWrappers() error {
	l := c.layout
	java := filepath.Join(c.state.JavaHome, "bin", "java")
	hadoop := fmt.Sprintf(`%s: "${HADOOP_CONF_DIR:=%s}"
export HADOOP_CONF_DIR
exec %s %s -Dlog4j.configuration=file:%s/log4j-client.properties -Djava.net.preferIPv4Stack=true -cp "$HADOOP_CONF_DIR:%s/*$more" "$class" "$@"
`, c.identity(), l.conf(), java, strings.Join(slices.Concat(small("256m"), opens, c.krb5Option()), " "), l.conf(), c.state.HadoopJars)
	shell := filepath.Join(c.state.Native, shellJar)
	scripts := map[string]string{
		"hdfs": `#!/bin/sh
# The stock client of HDFS, by its Java main classes.
[ $# -gt 0 ] || { echo "usage: hdfs dfs|dfsadmin|fsck|getconf|haadmin|version ..." >&2; exit 2; }
cmd=$1; shift; more=
case $cmd in
dfs) class=org.apache.hadoop.fs.FsShell ;;
dfsadmin) class=org.apache.hadoop.hdfs.tools.DFSAdmin ;;
fsck) class=org.apache.hadoop.hdfs.tools.DFSck ;;
getconf) class=org.apache.hadoop.hdfs.tools.GetConf ;;
haadmin) class=org.apache.hadoop.hdfs.tools.DFSHAAdmin ;;
fetchdt) class=org.apache.hadoop.hdfs.tools.DelegationTokenFetcher ;;
debug) class=org.apache.hadoop.hdfs.tools.DebugAdmin ;;
crypto) class=org.apache.hadoop.hdfs.tools.CryptoAdmin ;;
key) class=org.apache.hadoop.crypto.key.KeyShell ;;
ec) class=org.apache.hadoop.hdfs.tools.ECAdmin ;;
version) class=org.apache.hadoop.util.VersionInfo ;;
*) echo "hdfs: no command $cmd here" >&2; exit 2 ;;
esac
` + hadoop,
		"yarn": `#!/bin/sh
# The stock client of YARN, by its Java main classes.
[ $# -gt 0 ] || { echo "usage: yarn application|applicationattempt|container|node|logs|queue|rmadmin|version ..." >&2; exit 2; }
cmd=$1; shift; more=
case $cmd in
application|app|applicationattempt|container) class=org.apache.hadoop.yarn.client.cli.ApplicationCLI; set -- "$cmd" "$@" ;;
node) class=org.apache.hadoop.yarn.client.cli.NodeCLI ;;
logs) class=org.apache.hadoop.yarn.client.cli.LogsCLI ;;
queue) class=org.apache.hadoop.yarn.client.cli.QueueCLI ;;
cluster) class=org.apache.hadoop.yarn.client.cli.ClusterCLI ;;
distributedshell) class=org.apache.hadoop.yarn.applications.distributedshell.Client; more=:` + shell + `; set -- -jar ` + shell + ` "$@" ;; # of secured clusters
rmadmin) class=org.apache.hadoop.yarn.client.cli.RMAdminCLI ;;
version) class=org.apache.hadoop.util.VersionInfo ;;
*) echo "yarn: no command $cmd here" >&2; exit 2 ;;
esac
` + hadoop,
	}
	for name, class := range kafkaTools {
		scripts[name] = fmt.Sprintf(`#!/bin/sh
# Kafka's own %s, by its Java main class.
exec %s -Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1%s -Dlog4j2.configurationFile=%s/log4j2-client.properties -cp "%s/*" %s "$@"
`, name, java, strings.Join(append([]string{""}, c.krb5Option()...), " "), l.conf(), c.state.KafkaJars, class)
	}
	for name, text := range scripts {
		if err := writeFile(filepath.Join(l.bin(), name), []byte(text), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// identity makes a script of a secured cluster act as the administrator where only an administrator can, and else as the caller or, when that is not
// said, as the user of the cluster.
func (c *Cluster) identity() string {
	if !c.state.Variant.Kerberos {
		return ""
	}
	l := c.layout
	return fmt.Sprintf(`case $class in
*.DFSAdmin|*.DFSHAAdmin|*.DFSck) KRB5CCNAME=FILE:%s ;;
*.RMAdminCLI) KRB5CCNAME=FILE:%s ;;
*) : "${KRB5CCNAME:=FILE:%s}" ;;
esac
export KRB5CCNAME
`, l.ticket("hdfs"), l.ticket("yarn"), l.ticket(c.state.User))
}

// CLIError is a stock client that ended with another exit code than 0.
type CLIError struct {
	Args   []string
	Code   int
	Output string // standard output and error, in the order of writing
}

func (e *CLIError) Error() string {
	return fmt.Sprintf("rig: %s: exit code %d: %s", strings.Join(e.Args, " "), e.Code, strings.TrimSpace(e.Output))
}

// YarnCLI runs the stock `yarn` client, such as YarnCLI(ctx, "application", "-status", id), and returns its standard output. A failure
// is a *CLIError.
func (c *Cluster) YarnCLI(ctx context.Context, args ...string) (string, error) {
	return c.CLI(ctx, "", "yarn", args...)
}

// HdfsCLI runs the stock `hdfs` client, such as HdfsCLI(ctx, "dfs", "-ls", "/").
func (c *Cluster) HdfsCLI(ctx context.Context, args ...string) (string, error) {
	return c.CLI(ctx, "", "hdfs", args...)
}

// KafkaCLI runs one of Kafka's tools, such as KafkaCLI(ctx, "kafka-topics", "--list"), with --bootstrap-server added when the tool
// takes one and none is given.
func (c *Cluster) KafkaCLI(ctx context.Context, tool string, args ...string) (string, error) {
	if _, ok := kafkaTools[tool]; !ok {
		return "", fmt.Errorf("rig: no Kafka tool %q", tool)
	}
	return c.CLI(ctx, "", tool, c.kafkaArgs(tool, args)...)
}

func (c *Cluster) kafkaArgs(tool string, args []string) []string {
	switch tool {
	case "kafka-storage", "kafka-dump-log", "kafka-producer-perf-test":
		return args
	}
	for _, a := range args {
		if strings.HasPrefix(a, "--bootstrap-server") {
			return args
		}
	}
	return append([]string{"--bootstrap-server", c.KafkaBootstrap}, args...)
}

// CLI runs a wrapper script with the given standard input and returns its standard output.
func (c *Cluster) CLI(ctx context.Context, stdin, tool string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, cliTimeout)
	defer cancel()
	return c.runCLI(ctx, c.Command(ctx, tool, args...), stdin, tool, args)
}

func (c *Cluster) runCLI(ctx context.Context, cmd *exec.Cmd, stdin, tool string, args []string) (string, error) {
	cmd.Stdin = strings.NewReader(stdin)
	var out, all bytes.Buffer
	both := &syncWriter{b: &all}
	cmd.Stdout, cmd.Stderr = &teeWriter{&out, both}, both
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return out.String(), fmt.Errorf("rig: %s %s: %w after: %s", tool, strings.Join(args, " "), ctx.Err(), strings.TrimSpace(all.String()))
	case errors.As(err, &exit):
		return out.String(), &CLIError{Args: append([]string{tool}, args...), Code: exit.ExitCode(), Output: all.String()}
	case err != nil:
		return out.String(), fmt.Errorf("rig: run %s: %w", tool, err)
	}
	return out.String(), nil
}

// Command prepares a wrapper script for callers that want to stream. The process is killed when ctx ends.
func (c *Cluster) Command(ctx context.Context, tool string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(c.BinDir, tool), args...)
	cmd.Env = append(os.Environ(), c.Env()...)
	cmd.WaitDelay = 5 * time.Second
	return cmd
}
