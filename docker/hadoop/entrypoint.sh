#!/bin/bash
# Runs one role of the cluster: kdc | zookeeper | journalnode | namenode | namenode2 | zkfc | zkfc2 | datanode | resourcemanager | resourcemanager2 |
# nodemanager1..3 | kafka | init | test | anything else is run as a command with the clients' configuration. See conf.sh for the variables.
set -euo pipefail
ROLE=${1:?a role}
. "$(dirname "$0")/conf.sh"
# Each role of a host has a configuration of its own, where several share one.
[ -z "${HOST_OF:-}" ] || CONF=$CONF/$ROLE
H=org.apache.hadoop
say() { echo "$ROLE: $*" >&2; }
wait_for() { # what, command...: at most 3 min
  local what=$1 i
  shift
  for i in $(seq 180); do "$@" >/dev/null 2>&1 && return 0; sleep 1; done
  say "gave up waiting for $what" && return 1
}
port() { (exec 3<>"/dev/tcp/$(host "$1")/$2") 2>/dev/null; }
run() { exec $(java_of "$1" hadoop) "${@:2}"; }

realm() { # the realm, keytabs, and key stores of all roles, in the shared folder
  cat >"$SHARED/krb5.conf" <<CONF
[libdefaults]
  default_realm = $REALM
  dns_lookup_kdc = false
  dns_lookup_realm = false
  dns_canonicalize_hostname = false
  rdns = false
  udp_preference_limit = 1
  forwardable = true
  ticket_lifetime = 24h
  renew_lifetime = 7d
[realms]
  $REALM = {
    kdc = $(host kdc):${KDC_PORT:-88}
  }
CONF
  mkdir -p "$DATA/kdc"
  cat >"$DATA/kdc/kdc.conf" <<CONF
[kdcdefaults]
  kdc_listen = 0.0.0.0:${KDC_PORT:-88}
  kdc_tcp_listen = 0.0.0.0:${KDC_PORT:-88}
[realms]
  $REALM = {
    database_name = $DATA/kdc/principal
    key_stash_file = $DATA/kdc/stash
    acl_file = $DATA/kdc/acl
    max_life = 24h
    max_renewable_life = 7d
    supported_enctypes = aes256-cts-hmac-sha1-96:normal aes128-cts-hmac-sha1-96:normal
  }
CONF
  export KRB5_CONFIG=$SHARED/krb5.conf KRB5_KDC_PROFILE=$DATA/kdc/kdc.conf
  [ ! -e "$SHARED/realm.done" ] || return 0
  [ -e "$DATA/kdc/stash" ] || kdb5_util create -s -r $REALM -P master-key-of-a-test-realm >/dev/null
  mkdir -p "$SHARED/keytabs"
  local s h u san=dns:localhost,ip:127.0.0.1
  for h in namenode namenode2 datanode journalnode resourcemanager resourcemanager2 nodemanager1 nodemanager2 nodemanager3 kafka; do san=$san,dns:$(host $h); done
  add() { # principal, keytab
    kadmin.local getprinc "$1" >/dev/null 2>&1 || kadmin.local addprinc -randkey "$1" >/dev/null
    kadmin.local ktadd -norandkey -k "$SHARED/keytabs/$2.keytab" "$1" >/dev/null
  }
  for s in nn dn jn rm nm; do add $s/thalweg $s; done
  for h in namenode namenode2 datanode journalnode; do add "HTTP/$(host $h)" HTTP; done
  add "kafka/$(host kafka)" kafka
  for u in root alice bob; do add $u $u; done
  head -c 64 /dev/urandom >"$SHARED/http.secret"
  rm -f "$SHARED"/*.p12
  keytool -genkeypair -alias host -keyalg EC -groupname secp256r1 -validity 3650 -dname CN=thalweg-test -ext SAN=$san \
    -keystore "$SHARED/keystore.p12" -storetype PKCS12 -storepass changeit 2>/dev/null
  keytool -exportcert -rfc -alias host -keystore "$SHARED/keystore.p12" -storepass changeit -file "$SHARED/ca.pem" 2>/dev/null
  keytool -importcert -noprompt -alias host -file "$SHARED/ca.pem" -keystore "$SHARED/truststore.p12" -storetype PKCS12 -storepass changeit 2>/dev/null
  touch "$SHARED/realm.done"
}

if [ "$ROLE" = kdc ]; then
  mkdir -p "$SHARED" && realm && exec krb5kdc -n
fi
! secure || wait_for "the realm" test -e "$SHARED/realm.done"
! secure || wait_for "the KDC" port kdc "${KDC_PORT:-88}"
write_conf
mkdir -p "$DATA"

case $ROLE in
zookeeper)
  printf 'tickTime=1000\ndataDir=%s\nclientPort=2181\nadmin.enableServer=false\nmaxClientCnxns=0\n' "$DATA/zookeeper" >"$CONF/zoo.cfg"
  run 128m org.apache.zookeeper.server.ZooKeeperServerMain "$CONF/zoo.cfg"
  ;;
journalnode) run 128m $H.hdfs.qjournal.server.JournalNode ;;
namenode)
  if [ ! -e "$DATA/namenode/current/VERSION" ]; then
    ! ha || wait_for "the JournalNode" port journalnode 8485
    $(java_of 384m hadoop) $H.hdfs.server.namenode.NameNode -format -force -nonInteractive -clusterId thalweg >"$DATA/format.log" 2>&1 || { tail -n 20 "$DATA/format.log" >&2; exit 1; }
  fi
  run 384m $H.hdfs.server.namenode.NameNode
  ;;
namenode2)
  if [ ! -e "$DATA/namenode/current/VERSION" ]; then
    wait_for "the first NameNode" port namenode 8020
    $(java_of 384m hadoop) $H.hdfs.server.namenode.NameNode -bootstrapStandby -force -nonInteractive
  fi
  run 384m $H.hdfs.server.namenode.NameNode
  ;;
zkfc | zkfc2)
  wait_for ZooKeeper port zookeeper 2181
  if [ "$ROLE" = zkfc ] && [ ! -e "$DATA/zkfc.formatted" ]; then
    $(java_of 128m hadoop) $H.hdfs.tools.DFSZKFailoverController -formatZK -force -nonInteractive && touch "$DATA/zkfc.formatted"
  fi
  run 128m $H.hdfs.tools.DFSZKFailoverController
  ;;
datanode) run 256m $H.hdfs.server.datanode.DataNode ;;
resourcemanager | resourcemanager2)
  wait_for ZooKeeper port zookeeper 2181
  run 384m $H.yarn.server.resourcemanager.ResourceManager
  ;;
nodemanager*)
  export JDK_JAVA_OPTIONS="$opens" HADOOP_CONF_DIR=$CONF
  run 256m -Djava.library.path="$NATIVE" $H.yarn.server.nodemanager.NodeManager
  ;;
kafka)
  h=$(host kafka)
  {
    printf 'process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@localhost:9093\ncontroller.listener.names=CONTROLLER\n'
    printf 'inter.broker.listener.name=PLAINTEXT\nlog.dirs=%s\nauto.create.topics.enable=false\ngroup.initial.rebalance.delay.ms=0\n' "$DATA/kafka"
    for k in offsets.topic.replication.factor transaction.state.log.replication.factor transaction.state.log.min.isr \
      share.coordinator.state.topic.replication.factor share.coordinator.state.topic.min.isr; do echo "$k=1"; done
    if secure; then
      printf 'listeners=PLAINTEXT://0.0.0.0:9092,CONTROLLER://localhost:9093,SASL_SSL://0.0.0.0:9094\nadvertised.listeners=PLAINTEXT://%s:9092,SASL_SSL://%s:9094\n' "$h" "$h"
      printf 'listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL\n'
      printf 'sasl.enabled.mechanisms=GSSAPI\nsasl.kerberos.service.name=kafka\nssl.keystore.type=PKCS12\nssl.keystore.password=changeit\nssl.key.password=changeit\n'
      printf 'ssl.keystore.location=%s/keystore.p12\n' "$SHARED"
      printf 'listener.name.sasl_ssl.gssapi.sasl.jaas.config=com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true keyTab="%s" principal="%s";\n' \
        "$SHARED/keytabs/kafka.keytab" "kafka/$h@$REALM"
    else
      printf 'listeners=PLAINTEXT://0.0.0.0:9092,CONTROLLER://localhost:9093\nadvertised.listeners=PLAINTEXT://%s:9092\n' "$h"
      printf 'listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n'
    fi
  } >"$CONF/kafka.properties"
  [ -e "$DATA/kafka/meta.properties" ] || $(java_of 128m kafka) kafka.tools.StorageTool format -c "$CONF/kafka.properties" -t AAAAAAAAAAAAAAAAAAAAAQ >/dev/null
  exec $(java_of 512m kafka) kafka.Kafka "$CONF/kafka.properties"
  ;;
init) # the first folders of the file system; ends when they are there
  fs() { $(java_of 256m hadoop) $H.fs.FsShell "$@"; }
  ! secure || { kinit -c "$DATA/nn.cc" -k -t "$SHARED/keytabs/nn.keytab" nn/thalweg; export KRB5CCNAME=FILE:$DATA/nn.cc; }
  wait_for HDFS fs -mkdir -p /tmp /app-logs /user/root /user/alice /user/bob
  fs -chmod 1777 /tmp /app-logs
  for u in root alice bob; do fs -chown $u:users /user/$u; done
  ;;
test) # what cluster.sh test runs
  "$0" hdfs dfs -put -f /etc/hostname /tmp/round-trip
  "$0" hdfs dfs -cat /tmp/round-trip
  nodes=${NODES:-3}
  registered() { [ "$("$0" yarn node -list | grep -c ' RUNNING')" -ge "$nodes" ]; }
  wait_for "$nodes NodeManagers" registered
  "$0" kafka-topics --bootstrap-server "$(host kafka):9092" --create --if-not-exists --topic round-trip
  echo hello | "$0" kafka-console-producer --bootstrap-server "$(host kafka):9092" --topic round-trip
  [ "$("$0" kafka-console-consumer --bootstrap-server "$(host kafka):9092" --topic round-trip --from-beginning --max-messages 1 --timeout-ms 30000)" = hello ] || { say "the record did not come back" && exit 1; }
  echo "HDFS, $nodes NodeManagers and Kafka serve"
  ;;
*)
  ! secure || { kinit -c "$DATA/ticket" -k -t "$SHARED/keytabs/root.keytab" root; export KRB5CCNAME=FILE:$DATA/ticket; }
  export HADOOP_CONF_DIR=$CONF THALWEG_KAFKA=$(host kafka):9092
  exec "$@"
  ;;
esac
