#!/usr/bin/env bash
# services-cassandra.sh: fetch a Cassandra node for the tests of state in it; needs Java and Maven.
#
# It keeps to `.services/` and starts nothing: the tests start a node and end it. The client that Spark needs comes
# with state-clients.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/maven.sh
artifact=org.apache.cassandra:cassandra-all
version=5.0.9
target=$PWD/.services/cassandra

if [ ! -e "$target/.ready" ]; then
  need Cassandra
  echo "fetching $artifact $version …" >&2
  fetch Cassandra "$target" cassandra.sha256 "$artifact:$version"
  touch "$target/.ready"
fi
echo "Cassandra  $target"
