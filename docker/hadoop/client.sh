#!/bin/bash
# A stock client by the name that it is called by: hdfs dfs|dfsadmin|haadmin, yarn application|node|logs|rmadmin, kafka-topics, kafka-console-producer,
# kafka-console-consumer.
set -euo pipefail
. "$(dirname "$(readlink -f "$0")")/conf.sh"
tool=$(basename "$0")
kafka() { exec $(java_of 256m kafka) "-Dlog4j2.configurationFile=$CONF/log4j2.properties" "$@"; }
case $tool in
kafka-topics) kafka org.apache.kafka.tools.TopicCommand "$@" ;;
kafka-console-producer) kafka org.apache.kafka.tools.ConsoleProducer "$@" ;;
kafka-console-consumer) kafka org.apache.kafka.tools.consumer.ConsoleConsumer "$@" ;;
esac
cmd=${1:?what}
shift
case $tool-$cmd in
hdfs-dfs) class=fs.FsShell ;;
hdfs-dfsadmin) class=hdfs.tools.DFSAdmin ;;
hdfs-haadmin) class=hdfs.tools.DFSHAAdmin ;;
yarn-application | yarn-applicationattempt | yarn-container) class=yarn.client.cli.ApplicationCLI && set -- "$cmd" "$@" ;;
yarn-node) class=yarn.client.cli.NodeCLI ;;
yarn-logs) class=yarn.client.cli.LogsCLI ;;
yarn-rmadmin) class=yarn.client.cli.RMAdminCLI ;;
*) echo "$tool: no command $cmd here" >&2 && exit 2 ;;
esac
exec $(java_of 256m hadoop) "org.apache.hadoop.$class" "$@"
