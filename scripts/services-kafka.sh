#!/usr/bin/env bash
# services-kafka.sh: fetch a Kafka broker and Spark's connector for the tests of Kafka; needs Java and Maven.
#
# It keeps to `.services/` and starts nothing: the tests start a broker and end it.
set -euo pipefail
cd "$(dirname "$0")/.."
broker=4.3.1
connector=4.2.0
# Spark asks it for tokens, of which a broker without a login has none; not every release is on every mirror.
tokens=4.0.0
target=$PWD/.services/kafka

# fetch DIRECTORY ARTIFACT…: the artifacts and what they need, without what Spark brings along.
fetch() {
  local directory=$1 dependencies=
  shift
  for artifact; do
    IFS=: read -r group name version <<<"$artifact"
    dependencies+="<dependency><groupId>$group</groupId><artifactId>$name</artifactId><version>$version</version>
      <exclusions>
        <exclusion><groupId>org.apache.spark</groupId><artifactId>*</artifactId></exclusion>
        <exclusion><groupId>org.apache.hadoop</groupId><artifactId>*</artifactId></exclusion>
      </exclusions>
    </dependency>"
  done
  cat >"$project/pom.xml" <<POM
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>holdfast</groupId><artifactId>services</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>$dependencies</dependencies>
</project>
POM
  # A repository of its own: in that of the user Spark would find names of packages without their jars.
  mvn -q -B -Dmaven.repo.local="$project/repository" -f "$project/pom.xml" \
    dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$directory" \
    || { echo "error: Kafka cannot be fetched" >&2; exit 5; }
}

if [ ! -e "$target/.ready" ]; then
  for program in java mvn; do
    command -v "$program" >/dev/null || { echo "error: fetching Kafka needs $program" >&2; exit 7; }
  done
  echo "fetching Kafka $broker …" >&2
  project=$(mktemp -d)
  trap 'rm -rf "$project"' EXIT
  fetch "$target/broker" "org.apache.kafka:kafka_2.13:$broker"
  fetch "$target/spark" "org.apache.spark:spark-sql-kafka-0-10_2.13:$connector" \
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:$tokens"
  touch "$target/.ready"
fi
echo "Kafka  $target/broker  ($broker)"
