#!/usr/bin/env bash
# services-hdfs.sh: fetch Hadoop's own small cluster for the tests of HDFS; needs Java and Maven.
#
# It keeps to `.services/` and starts nothing: the tests start a NameNode and a DataNode and end them.
set -euo pipefail
cd "$(dirname "$0")/.."
artifact=org.apache.hadoop:hadoop-client-minicluster
version=3.5.0
target=$PWD/.services/hdfs

if [ ! -e "$target/.ready" ]; then
  for program in java mvn; do
    command -v "$program" >/dev/null || { echo "error: fetching HDFS needs $program" >&2; exit 7; }
  done
  echo "fetching $artifact $version …" >&2
  project=$(mktemp -d)
  trap 'rm -rf "$project"' EXIT
  cat >"$project/pom.xml" <<POM
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>holdfast</groupId><artifactId>services</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>${artifact%:*}</groupId><artifactId>${artifact#*:}</artifactId><version>$version</version>
    </dependency>
  </dependencies>
</project>
POM
  # A repository of its own: in that of the user Spark would find names of packages without their jars.
  mvn -q -B -Dmaven.repo.local="$project/repository" -f "$project/pom.xml" \
    dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$target" \
    || { echo "error: HDFS cannot be fetched" >&2; exit 5; }
  touch "$target/.ready"
fi
echo "HDFS  $target"
