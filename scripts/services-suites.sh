#!/usr/bin/env bash
# services-suites.sh: fetch Spark's own suites of its file managers, and ScalaTest, which runs them; needs Java and Maven.
#
# Spark's classes come from the environment's PySpark. The suites of Spark 4.2 run on Spark 4.3 too, whose own are not
# published. The manager for S3 is of Spark 4.1, as in services-s3a.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/maven.sh
spark=4.2.0
cloud=4.1.1
scalatest=3.2.19
target=$PWD/.services/suites

if [ ! -e "$target/.spark-$spark-$cloud-scalatest-$scalatest" ]; then
  need "Spark's suites"
  echo "fetching Spark's suites $spark …" >&2
  of=org.apache.spark:spark
  without="*:*" fetch "Spark's suites" "$target" suites.sha256 "$of-sql_2.13:$spark:tests" "$of-core_2.13:$spark:tests" \
    "$of-catalyst_2.13:$spark:tests" "$of-common-utils_2.13:$spark:tests" "$of-hadoop-cloud_2.13:$cloud" \
    "$of-hadoop-cloud_2.13:$cloud:tests"
  without="org.scala-lang" fetch ScalaTest "$target" scalatest.sha256 "org.scalatest:scalatest-funsuite_2.13:$scalatest"
  touch "$target/.spark-$spark-$cloud-scalatest-$scalatest"
fi
echo "Spark's suites  $target  ($spark)"
