#!/usr/bin/env bash
# services-flink-state.sh: install PyFlink and fetch Flink's reader of savepoints, for the test that moves state to Spark.
#
# PyFlink is the one of `make peers`, in an environment of its own; needs Java and Maven.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/maven.sh
version=$(sed -n 's/^apache-flink==\([^ ]*\).*/\1/p' scripts/pins/peers/pyflink.txt)
target=$PWD/.services/flink-state

scripts/peers.sh pyflink
if [ ! -e "$target/.state-$version" ]; then
  need "Flink's reader of savepoints"
  echo "fetching Flink's reader of savepoints $version …" >&2
  without="*:*" fetch "Flink's reader of savepoints" "$target" flink-state.sha256 \
    "org.apache.flink:flink-state-processor-api:$version"
  touch "$target/.state-$version"
fi
echo "Flink's reader of savepoints  $target  ($version)"
