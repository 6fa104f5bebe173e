#!/usr/bin/env bash
# services-hdfs.sh: fetch Hadoop's own small cluster for the tests of HDFS; needs Java and Maven.
#
# It keeps to `.services/` and starts nothing: the tests start a NameNode and a DataNode and end them.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/maven.sh
artifact=org.apache.hadoop:hadoop-client-minicluster
version=3.5.0
target=$PWD/.services/hdfs

if [ ! -e "$target/.ready" ]; then
  need HDFS
  echo "fetching $artifact $version …" >&2
  fetch HDFS "$target" hdfs.sha256 "$artifact:$version"
  touch "$target/.ready"
fi
echo "HDFS  $target"
