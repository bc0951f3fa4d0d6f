#!/bin/bash
# Writes the configuration of a role. Sourced by entrypoint.sh, client.sh and health.sh; nothing but these variables decides:
#   SECURITY        simple (default) | kerberos
#   RPC_PROTECTION  hadoop.rpc.protection: authentication (default), integrity, privacy
#   DATA_PROTECTION dfs.data.transfer.protection: the same
#   NN_HA           true: namenode, namenode2, a journalnode, hdfs://thalweg
#   NODE_MEMORY     MB of each NodeManager (default 4096)
# and, so that all roles can run on one host in a test: HOST_OF (a host for every role, default the role's own name), CONF, DATA, SHARED, JARS, NATIVE.
: "${SECURITY:=simple}" "${RPC_PROTECTION:=authentication}" "${DATA_PROTECTION:=authentication}" "${NN_HA:=false}" "${NODE_MEMORY:=4096}"
: "${CONF:=${HADOOP_CONF_DIR:-/etc/hadoop}}" "${DATA:=/data}" "${SHARED:=/shared}" "${JARS:=/opt/jars}" "${NATIVE:=/opt/native}"
REALM=EXAMPLE.TEST
secure() { [ "$SECURITY" = kerberos ]; }
ha() { [ "$NN_HA" = true ]; }
host() { echo "${HOST_OF:-$1}"; }
p() { printf '  <property><name>%s</name><value>%s</value></property>\n' "$1" "$2"; }
file() { mkdir -p "$CONF" && { printf '<?xml version="1.0"?>\n<configuration>\n'; cat; echo '</configuration>'; } >"$CONF/$1.$$" && mv "$CONF/$1.$$" "$CONF/$1"; }

opens="--add-exports=java.security.jgss/sun.security.krb5=ALL-UNNAMED"
for pkg in lang util net nio util.concurrent util.concurrent.atomic; do opens="$opens --add-opens=java.base/java.$pkg=ALL-UNNAMED"; done
opens="$opens --add-opens=java.base/sun.nio.ch=ALL-UNNAMED"
if secure; then opens="$opens -Djava.security.krb5.conf=${KRB5_CONFIG:=$SHARED/krb5.conf}"; export KRB5_CONFIG; fi
small="-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Djava.net.preferIPv4Stack=true"

# principal KEY-OF-THE-PRINCIPAL KEY-OF-THE-KEYTAB NAME: one for all hosts, since the name that a container's address leads back to is not its own (so _HOST is none)
principal() { p "$1" "$3/thalweg@$REALM"; p "$2" "$SHARED/keytabs/$3.keytab"; }

core_site() {
  if ha; then p fs.defaultFS hdfs://thalweg; else p fs.defaultFS "hdfs://$(host namenode):8020"; fi
  p hadoop.tmp.dir "$DATA/tmp"
  p hadoop.zk.address "$(host zookeeper):2181"; p ha.zookeeper.quorum "$(host zookeeper):2181"
  p hadoop.zk.timeout-ms 6000; p ha.zookeeper.session-timeout.ms 6000
  p ipc.client.connect.retry.interval 1000
  secure || return 0
  p hadoop.security.authentication kerberos; p hadoop.security.authorization true; p hadoop.rpc.protection "$RPC_PROTECTION"
  p hadoop.security.auth_to_local "RULE:[2:\$1@\$0]([ndj]n@$REALM)s/.*/hdfs/
RULE:[2:\$1@\$0]([rn]m@$REALM)s/.*/yarn/
RULE:[2:\$1@\$0](HTTP@$REALM)s/.*/HTTP/
DEFAULT"
  p hadoop.user.group.static.mapping.overrides "hdfs=hadoop;yarn=hadoop;HTTP=hadoop;root=users;alice=users;bob=users;dr.who="
  p hadoop.proxyuser.yarn.hosts '*'; p hadoop.proxyuser.yarn.groups '*'
  p hadoop.http.authentication.signature.secret.file "$SHARED/http.secret"
}

hdfs_site() {
  p dfs.replication 1; p dfs.namenode.safemode.extension 0; p dfs.datanode.data.dir "file://$DATA/datanode"
  p dfs.namenode.datanode.registration.ip-hostname-check false
  p dfs.namenode.rpc-bind-host 0.0.0.0; p dfs.namenode.http-bind-host 0.0.0.0; p dfs.namenode.https-bind-host 0.0.0.0
  if ha; then
    p dfs.nameservices thalweg; p dfs.ha.namenodes.thalweg nn1,nn2
    p dfs.client.failover.proxy.provider.thalweg org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider
    p dfs.ha.automatic-failover.enabled true; p dfs.ha.fencing.methods 'shell(/bin/true)'; p dfs.ha.tail-edits.in-progress true
    p dfs.namenode.shared.edits.dir "qjournal://$(host journalnode):8485/thalweg"; p dfs.journalnode.edits.dir "$DATA/journalnode"
    local n
    for n in "nn1 namenode" "nn2 namenode2"; do
      set -- $n
      p dfs.namenode.rpc-address.thalweg.$1 "$(host $2):8020"; p dfs.namenode.http-address.thalweg.$1 "$(host $2):9870"
      p dfs.namenode.https-address.thalweg.$1 "$(host $2):9871"; p dfs.namenode.name.dir.thalweg.$1 "file://$DATA/namenode"
    done
    case ${ROLE:-} in namenode | zkfc) p dfs.ha.namenode.id nn1 ;; namenode2 | zkfc2) p dfs.ha.namenode.id nn2 ;; esac
  else
    p dfs.namenode.rpc-address "$(host namenode):8020"; p dfs.namenode.http-address "$(host namenode):9870"
    p dfs.namenode.https-address "$(host namenode):9871"; p dfs.namenode.name.dir "file://$DATA/namenode"
  fi
  secure || return 0
  p dfs.permissions.superusergroup hadoop; p dfs.http.policy HTTPS_ONLY; p dfs.block.access.token.enable true
  p dfs.data.transfer.protection "$DATA_PROTECTION"
  principal dfs.namenode.kerberos.principal dfs.namenode.keytab.file nn
  principal dfs.datanode.kerberos.principal dfs.datanode.keytab.file dn
  principal dfs.journalnode.kerberos.principal dfs.journalnode.keytab.file jn
  p dfs.web.authentication.kerberos.principal '*'; p dfs.web.authentication.kerberos.keytab "$SHARED/keytabs/HTTP.keytab"
  p dfs.namenode.kerberos.internal.spnego.principal '*'; p dfs.journalnode.kerberos.internal.spnego.principal '*'
}

yarn_site() {
  p yarn.resourcemanager.ha.enabled true; p yarn.resourcemanager.cluster-id thalweg; p yarn.resourcemanager.ha.rm-ids rm1,rm2
  p yarn.resourcemanager.hostname.rm1 "$(host resourcemanager)"; p yarn.resourcemanager.hostname.rm2 "$(host resourcemanager2)"
  p yarn.resourcemanager.webapp.address.rm1 "$(host resourcemanager):8088"; p yarn.resourcemanager.webapp.address.rm2 "$(host resourcemanager2):8088"
  case ${ROLE:-} in resourcemanager) p yarn.resourcemanager.ha.id rm1 ;; resourcemanager2) p yarn.resourcemanager.ha.id rm2 ;; esac
  p yarn.resourcemanager.recovery.enabled true; p yarn.resourcemanager.work-preserving-recovery.enabled true
  p yarn.resourcemanager.store.class org.apache.hadoop.yarn.server.resourcemanager.recovery.ZKRMStateStore
  p yarn.resourcemanager.connect.retry-interval.ms 1000; p yarn.client.failover-sleep-base-ms 200; p yarn.client.failover-sleep-max-ms 1000
  p yarn.resourcemanager.am.max-attempts 4; p yarn.nm.liveness-monitor.expiry-interval-ms 60000
  p yarn.scheduler.minimum-allocation-mb 64; p yarn.scheduler.maximum-allocation-mb "$NODE_MEMORY"
  p yarn.nodemanager.resource.memory-mb "$NODE_MEMORY"; p yarn.nodemanager.resource.cpu-vcores 8
  case ${ROLE:-} in nodemanager*) p yarn.nodemanager.hostname "$(host "$ROLE")" ;; esac
  p yarn.nodemanager.address '${yarn.nodemanager.hostname}:8041'
  p yarn.nodemanager.local-dirs "$DATA/local"; p yarn.nodemanager.log-dirs "$DATA/logs"
  p yarn.nodemanager.recovery.enabled true; p yarn.nodemanager.recovery.supervised true; p yarn.nodemanager.recovery.dir "$DATA/recovery"
  p yarn.nodemanager.vmem-check-enabled false; p yarn.nodemanager.resource.memory.enforced false
  p yarn.nodemanager.disk-health-checker.enable false; p yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage 100
  p yarn.nodemanager.env-whitelist JAVA_HOME,HADOOP_CONF_DIR,PATH,LANG,TZ,JDK_JAVA_OPTIONS,KRB5_CONFIG
  p yarn.log-aggregation-enable true; p yarn.nodemanager.remote-app-log-dir /app-logs
  p yarn.application.classpath "$CONF,$JARS/hadoop/*"
  secure || return 0
  p yarn.acl.enable true; p yarn.admin.acl yarn; p yarn.resourcemanager.proxy-user-privileges.enabled true
  principal yarn.resourcemanager.principal yarn.resourcemanager.keytab rm
  principal yarn.nodemanager.principal yarn.nodemanager.keytab nm
}

scheduler() {
  p yarn.scheduler.capacity.root.queues default; p yarn.scheduler.capacity.root.default.capacity 100
  p yarn.scheduler.capacity.maximum-am-resource-percent 1.0
}

ssl_site() { # server keystore, or client
  local k
  for k in ${2:-} truststore; do
    p "ssl.$1.$k.location" "$SHARED/$k.p12"; p "ssl.$1.$k.password" changeit; p "ssl.$1.$k.type" pkcs12
  done
  [ -z "${2:-}" ] || p "ssl.$1.keystore.keypassword" changeit
}

write_conf() {
  core_site | file core-site.xml; hdfs_site | file hdfs-site.xml; yarn_site | file yarn-site.xml; scheduler | file capacity-scheduler.xml
  if secure; then ssl_site server keystore | file ssl-server.xml; ssl_site client | file ssl-client.xml; fi
  cat >"$CONF/log4j.properties" <<'LOG'
log4j.rootLogger=INFO,c
log4j.appender.c=org.apache.log4j.ConsoleAppender
log4j.appender.c.target=System.err
log4j.appender.c.layout=org.apache.log4j.PatternLayout
log4j.appender.c.layout.ConversionPattern=%d{ISO8601} %p %c{1}: %m%n
LOG
  cat >"$CONF/log4j2.properties" <<'LOG'
status=error
appender.c.type=Console
appender.c.name=c
appender.c.target=SYSTEM_ERR
appender.c.layout.type=PatternLayout
appender.c.layout.pattern=%d{ISO8601} %p %c{1}: %m%n
rootLogger.level=info
rootLogger.appenderRef.c.ref=c
LOG
  local w # the HDFS jars carry no web applications; the daemons want the folders
  for w in hdfs datanode secondary journal static; do
    mkdir -p "$CONF/webapps/$w/WEB-INF" && echo '<web-app xmlns="http://java.sun.com/xml/ns/javaee" version="2.5"/>' >"$CONF/webapps/$w/WEB-INF/web.xml"
  done
}

java_of() { # heap, product
  echo "java -Xmx$1 $small $opens -cp $CONF:$JARS/$2/*"
}
