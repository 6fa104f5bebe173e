#!/usr/bin/env bash
# services-yarn.sh: fetch the logger that YARN's servers need; they themselves come with HDFS. Needs Java and Maven.
#
# It keeps to `.services/` and starts nothing: the tests start a ResourceManager and a NodeManager and end them.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/maven.sh
# What the small cluster of HDFS has not of its own: a logger, and what signs certificates.
logger=1.7.36 signer=1.82
target=$PWD/.services/yarn

if [ ! -e "$target/.ready" ]; then
  need YARN
  echo "fetching YARN's logger $logger, signer $signer …" >&2
  fetch YARN "$target" yarn.sha256 "org.slf4j:slf4j-reload4j:$logger" "org.bouncycastle:bcpkix-jdk18on:$signer"
  touch "$target/.ready"
fi
echo "YARN  $target"
