#!/bin/bash
# Exit code 0 when the role serves: its web page or port answers. For the health checks of compose.yaml.
set -uo pipefail
ROLE=${1:?a role}
. "$(dirname "$0")/conf.sh"
h=$(host "$ROLE")
page() { curl -skf -o /dev/null --max-time 5 "$1"; }
port() { (exec 3<>"/dev/tcp/$h/$1") 2>/dev/null; }
web() { if secure; then page "https://$h:$2$3"; else page "http://$h:$1$3"; fi; }
case $ROLE in
kdc) test -e "$SHARED/realm.done" && (exec 3<>"/dev/tcp/127.0.0.1/${KDC_PORT:-88}") 2>/dev/null ;;
zookeeper) port 2181 ;;
journalnode) web 8480 8481 /jmx ;;
namenode | namenode2) web 9870 9871 /jmx ;;
zkfc | zkfc2) pgrep -f DFSZKFailoverController >/dev/null ;;
datanode) web 9864 9865 '/jmx?qry=Hadoop:service=DataNode,name=DataNodeInfo' ;;
resourcemanager*) page "http://$h:8088/ws/v1/cluster/info" ;;
nodemanager*) page "http://$h:8042/ws/v1/node/info" ;;
kafka) port 9092 ;;
*) exit 0 ;;
esac
