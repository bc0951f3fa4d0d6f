#!/bin/bash
# The dockerised test cluster.
#   cluster.sh build [--without-registry]   make the image: jars by Maven on this machine, the base from a registry, or, without one, by debootstrap
#   cluster.sh up | down | status           start it and wait until all serve | stop it and remove its data | what runs
#   cluster.sh run COMMAND...               run a command in a container beside it, with the checkout in /work
#   cluster.sh test                         the stock clients' round trip through HDFS, YARN and Kafka
#   cluster.sh integration [FLAG...]        test/integration inside of the cluster's network; binaries in bin (make build), Go on this machine
# Variables: SECURITY=kerberos, RPC_PROTECTION, DATA_PROTECTION, NN_HA=true (conf.sh), IMAGE (default thalweg-hadoop), BASE (default debian:bookworm-slim).
set -euo pipefail
cd "$(dirname "$0")"
export IMAGE=${IMAGE:-thalweg-hadoop} SECURITY=${SECURITY:-simple} NN_HA=${NN_HA:-false}
if docker compose version >/dev/null 2>&1; then compose=(docker compose -p thalweg); else compose=(docker-compose -p thalweg); fi
[ "$SECURITY" != kerberos ] || compose+=(--profile kerberos)
[ "$NN_HA" != true ] || compose+=(--profile nn-ha)

jars() { # what the image is made of, but the packages
  local p
  for p in hadoop kafka secure; do
    [ ! -e "jars/$p/.complete" ] || continue
    rm -rf "jars/$p"
    mvn -q -B -f "../../test/rig/poms/$p.xml" org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies \
      -DoutputDirectory="$PWD/jars/$p" -DincludeScope=runtime
    touch "jars/$p/.complete"
  done
  local arch
  arch=$(uname -m | sed 's/x86_64/amd64/')
  mkdir -p native
  [ -e native/libhadoop.so ] || (cd native && "${JAVA_HOME:+$JAVA_HOME/bin/}jar" xf ../jars/secure/hadoop-apache-*.jar "nativelib/Linux-$arch/libhadoop.so" && mv nativelib/*/libhadoop.so . && rm -r nativelib)
}

base() { # Debian from its packages, as root
  docker image inspect thalweg-base >/dev/null 2>&1 && return
  local root
  root=$(mktemp -d)
  debootstrap --variant=minbase --include=openjdk-17-jre-headless,krb5-kdc,krb5-admin-server,krb5-user,procps,curl,ca-certificates bookworm "$root"
  tar -C "$root" -c . | docker import - thalweg-base
  rm -rf "$root"
}

case ${1:-} in
build)
  jars
  if [ "${2:-}" = --without-registry ]; then base && BASE=thalweg-base; fi
  docker build -t "$IMAGE" --build-arg BASE="${BASE:-debian:bookworm-slim}" .
  ;;
up)
  "${compose[@]}" up -d
  for i in $(seq 60); do
    waits=
    for id in $("${compose[@]}" ps -q); do
      state=$(docker inspect -f '{{.Name}} {{.State.Status}} {{if .State.Health}}{{.State.Health.Status}}{{end}} {{.State.ExitCode}}' "$id")
      case $state in *" running healthy "* | *init*" exited  0") ;; *) waits="$waits$state; " ;; esac
    done
    [ -n "$waits" ] || exit 0
    sleep 5
  done
  echo "cluster.sh: these do not serve after 5 min: $waits(docker logs NAME says why)" >&2
  exit 1
  ;;
down) "${compose[@]}" down -v --remove-orphans ;;
status) "${compose[@]}" ps ;;
run) shift && "${compose[@]}" run --rm client "$@" ;;
test) "${compose[@]}" run --rm client test ;;
integration) # go test ./test/integration in the client's container, by the toolchain and the caches of this machine
  shift
  root=$(go env GOROOT)
  "${compose[@]}" run --rm -v "$root:$root:ro" -v "$(go env GOMODCACHE):/go/mod" -v "$(go env GOCACHE):/go/cache" -e GOTOOLCHAIN=local -e GOFLAGS=-buildvcs=false \
    -e GOMODCACHE=/go/mod -e GOCACHE=/go/cache -e HOME=/tmp -e CI="${CI:-}" -e THALWEG_RIG=external -e THALWEG_RM_WEB=http://resourcemanager:8088 \
    client env PATH="$root/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" go test -count=1 -timeout 40m -v ./test/integration "$@"
  ;;
*) sed -n '2,8p' "$0" | cut -c3- >&2 && exit 2 ;;
esac
