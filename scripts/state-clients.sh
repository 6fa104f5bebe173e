#!/usr/bin/env bash
# state-clients.sh: fetch the clients of the databases that hold state, for tests and for building the jar.
#
# Needs Java and Maven. A user's Spark fetches the same by `spark.jars.packages`; see engine/session/jars.py.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/maven.sh
jedis=8.0.2
# The build that has Netty and Jackson under names of its own: Spark has others.
cassandra=4.19.3
tikv=3.3.5
target=$PWD/.services/state-clients
# Spark brings these along.
without="org.slf4j io.dropwizard.metrics"

if [ ! -e "$target/.jedis-$jedis" ]; then
  need "the clients of state databases"
  echo "fetching Jedis $jedis …" >&2
  fetch Jedis "$target/redis" jedis.sha256 "redis.clients:jedis:$jedis"
  touch "$target/.jedis-$jedis"
fi
if [ ! -e "$target/.cassandra-$cassandra" ]; then
  need "the clients of state databases"
  echo "fetching Cassandra's driver $cassandra …" >&2
  fetch "Cassandra's driver" "$target/cassandra" cassandra-driver.sha256 \
    "org.apache.cassandra:java-driver-core-shaded:$cassandra"
  touch "$target/.cassandra-$cassandra"
fi
if [ ! -e "$target/.tikv-$tikv" ]; then
  need "the clients of state databases"
  echo "fetching TiKV's client $tikv …" >&2
  fetch "TiKV's client" "$target/tikv" tikv-client.sha256 "org.tikv:tikv-client-java:$tikv"
  touch "$target/.tikv-$tikv"
fi
echo "Jedis               $target/redis  ($jedis)"
echo "Cassandra's driver  $target/cassandra  ($cassandra)"
echo "TiKV's client       $target/tikv  ($tikv)"
