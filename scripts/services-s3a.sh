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
echo "S3A  $target"
