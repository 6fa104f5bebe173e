#!/usr/bin/env bash
# services-examiners.sh: fetch the tests of other projects that `make examiners` runs; needs git, Java and Maven.
#
# An examiner's name, `stores`, `operators` or `pyspark`, fetches what that needs.
# Nothing of them is copied into this repository. PySpark's wheel and source distribution are published without its
# tests, so these come from Spark's repository, at one commit, by which git verifies every byte. SPARK_REPOSITORY names
# another copy of it, a directory too.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/maven.sh
spark=4.2.0
repository=${SPARK_REPOSITORY:-https://github.com/apache/spark.git}
# The newest commit of 4.2.0's development for which this was run.
commit=ed23cc39c32e0ca953f174f48ddff78ba24da375
scalatest=3.2.19
target=$PWD/.services/examiners

python() {
  [ ! -e "$target/python/.commit-$commit" ] || return 0
  command -v git >/dev/null || { echo "error: fetching PySpark's tests needs git" >&2; exit 7; }
  echo "fetching PySpark's tests at ${commit:0:8} …" >&2
  copy=$repository
  if [ ! -d "$copy" ]; then
    copy=$(mktemp -d)
    trap 'rm -rf "$copy"' EXIT
    git init --quiet --bare "$copy"
    git -C "$copy" config remote.spark.url "$repository"
    git -C "$copy" config remote.spark.promisor true
    git -C "$copy" fetch --quiet --depth 1 --filter=blob:none spark "$commit" \
      || { echo "error: $repository does not give commit $commit" >&2; exit 5; }
  fi
  rm -rf "$target/python"
  mkdir -p "$target/python"
  tests=python/pyspark/sql/tests
  git -C "$copy" archive "$commit" $tests/__init__.py $tests/pandas/__init__.py $tests/pandas/helper \
    $tests/pandas/streaming $tests/streaming | tar -x --strip-components=1 -C "$target/python"
  touch "$target/python/.commit-$commit"
}

jars() {
  [ ! -e "$target/jars/.spark-$spark-scalatest-$scalatest" ] || return 0
  need "what Spark's suites need"
  echo "fetching what Spark's suites $spark need …" >&2
  without="*:*" fetch "Spark's suites of its API" "$target/jars" examiners-spark.sha256 \
    "org.apache.spark:spark-sql-api_2.13:$spark:tests"
  without="org.scala-lang org.slf4j" fetch "ScalaTest" "$target/jars" examiners-scalatest.sha256 \
    "org.scalatest:scalatest_2.13:$scalatest" "org.scalatestplus:mockito-5-12_2.13:$scalatest.0" \
    "org.scalatestplus:scalacheck-1-18_2.13:$scalatest.0" "junit:junit:4.13.2"
  touch "$target/jars/.spark-$spark-scalatest-$scalatest"
}

case ${1:-} in
  stores | operators) jars ;;
  pyspark) python ;;
  *) jars; python ;;
esac
echo "examiners  $target  ($spark, ${commit:0:8})"
