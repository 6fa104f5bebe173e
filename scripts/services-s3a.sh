#!/usr/bin/env bash
# services-s3a.sh: fetch Hadoop's S3A for the test that counts what Spark asks of S3; needs Java and Maven.
#
# Of Amazon's kit only the parts that S3A calls, and not the bundle of all of them, which is 650 MB.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/maven.sh
version=3.5.0
kit=software.amazon.awssdk
kit_version=2.35.4
target=$PWD/.services/s3a

if [ ! -e "$target/.ready" ]; then
  need S3A
  echo "fetching S3A $version …" >&2
  without="$kit:bundle org.apache.hadoop:hadoop-common" fetch S3A "$target" s3a.sha256 \
    "org.apache.hadoop:hadoop-aws:$version" "$kit:s3:$kit_version" "$kit:s3-transfer-manager:$kit_version" \
    "$kit:sts:$kit_version"
  touch "$target/.ready"
fi
cloud=$PWD/.services/s3a-cloud
if [ ! -e "$cloud/.ready" ]; then
  need S3A
  # The file manager for S3 alone: what it needs is in S3A above. This build runs with Spark 4.2 too.
  without="org.apache.hadoop org.apache.spark org.apache.httpcomponents org.wildfly.openssl com.squareup.okhttp3"
  without+=" com.squareup.okio com.fasterxml.jackson.core com.fasterxml.jackson.dataformat joda-time $kit"
  without+=" software.amazon.s3.analyticsaccelerator com.google.cloud.bigdataoss com.google.guava org.scala-lang"
  without+=" org.scala-lang.modules org.eclipse.jetty javax.xml.bind"
  fetch file-manager "$cloud" s3a-cloud.sha256 org.apache.spark:spark-hadoop-cloud_2.13:4.1.1
  touch "$cloud/.ready"
fi
echo "S3A  $target, $cloud"
