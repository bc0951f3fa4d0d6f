#!/bin/bash
# Gets Apache Flink 2.3.0 (its libraries from the Python wheel, the Kafka connector from Maven) into DIR and builds the benchmark's jobs
# there. What is there already stays. Needs JDK 17, Maven, pip.
#
#   install.sh DIR
#
# Afterwards: DIR/flink/{lib,opt,plugins,bin}, DIR/ext (Kafka connector), DIR/build/bench-flink.jar.
set -euo pipefail
[ $# -eq 1 ] || { echo "usage: install.sh DIR" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
dir=$(cd "$1" && pwd)
flink=2.3.0
kafka=5.0.0-2.2

if [ ! -f "$dir/flink/lib/flink-dist-$flink.jar" ]; then
  echo "install.sh: getting Flink $flink" >&2
  mkdir -p "$dir/dl"
  pip download -q --disable-pip-version-check --no-deps --only-binary :all: -d "$dir/dl" "apache-flink-libraries==$flink"
  rm -rf "$dir/unpack"
  mkdir "$dir/unpack"
  python3 -m zipfile -e "$dir"/dl/apache_flink_libraries-$flink-*.whl "$dir/unpack"
  rm -rf "$dir/flink" "$dir/dl"
  mv "$dir/unpack/pyflink" "$dir/flink" # last: half an installation is none
  rm -rf "$dir/unpack"
fi
if [ ! -f "$dir/ext/flink-sql-connector-kafka-$kafka.jar" ]; then
  mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy -Dartifact=org.apache.flink:flink-sql-connector-kafka:$kafka -DoutputDirectory="$dir/ext"
fi
jar=$dir/build/bench-flink.jar
if [ ! -f "$jar" ] || [ -n "$(find "$here/src" "$here/pom.xml" -newer "$jar" -print -quit)" ]; then
  mvn -q -B -f "$here/pom.xml" -Dbench.build="$dir/build" package
fi
ls "$jar"
