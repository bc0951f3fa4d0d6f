#!/bin/bash
# Installs the Debian packages that `make test` needs, as far as they are missing: a JDK, Maven and MIT Kerberos for the real daemons.
# Usage: scripts/install-deps.sh [more packages]
# As root, or with sudo. Nothing is done, and nothing is needed from the network, when everything is there.
set -euo pipefail

want=("$@")
major() { "$1" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1; }
java=${JAVA_HOME:+$JAVA_HOME/bin/}java
if ! command -v "$java" >/dev/null || [ "$(major "$java")" -lt 17 ]; then want+=(openjdk-17-jdk-headless); fi
command -v mvn >/dev/null || want+=(maven)
kdc=(krb5kdc:krb5-kdc kadmin.local:krb5-admin-server kinit:krb5-user)
for tool in "${kdc[@]}" setsid:util-linux getconf:libc-bin ps:procps bash:bash; do # what the daemons and the rig call
  PATH="$PATH:/usr/sbin" command -v "${tool%%:*}" >/dev/null || want+=("${tool##*:}")
done

missing=()
for p in "${want[@]}"; do
  dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing+=("$p")
done
if [ ${#missing[@]} -eq 0 ]; then
  exit 0
fi

root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "install-deps: run as root: apt-get install -y --no-install-recommends ${missing[*]}" >&2; exit 1; }
  root=(sudo -n)
fi
echo "install-deps: installing ${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
"${root[@]}" apt-get update -qq
"${root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
