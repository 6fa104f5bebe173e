#!/usr/bin/env bash
# services-kafka.sh: fetch a Kafka broker and Spark's connector for the tests of Kafka; needs Java and Maven.
#
# It keeps to `.services/` and starts nothing: the tests start a broker and end it.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/maven.sh
broker=4.3.1
connector=4.2.0
# Spark asks it for tokens, of which a broker without a login has none; not every release is on every mirror.
tokens=4.0.0
target=$PWD/.services/kafka
# Spark brings these along.
without="org.apache.spark org.apache.hadoop"

if [ ! -e "$target/.ready" ]; then
  need Kafka
  echo "fetching Kafka $broker …" >&2
  fetch Kafka "$target/broker" kafka-broker.sha256 "org.apache.kafka:kafka_2.13:$broker"
  fetch Kafka "$target/spark" kafka-spark.sha256 "org.apache.spark:spark-sql-kafka-0-10_2.13:$connector" \
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:$tokens"
  touch "$target/.ready"
fi
echo "Kafka  $target/broker  ($broker)"
