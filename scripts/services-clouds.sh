#!/usr/bin/env bash
# services-clouds.sh: the emulators of Google Cloud Storage and of Azure's blobs, and Google's connector for Spark.
#
# Needs Go, Node, Java and Maven. It keeps to `.services/` and starts nothing: the tests start their own emulators on
# free ports and end them.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/maven.sh
pins=$PWD/scripts/pins
gcs=$PWD/.services/bin/fake-gcs-server
azure=$PWD/.services/azurite
connector=$PWD/.services/gcs-connector

if [ ! -x "$gcs" ]; then
  command -v go >/dev/null || { echo "error: building the emulator of Google Cloud Storage needs Go 1.26" >&2; exit 7; }
  echo "building fake-gcs-server …" >&2
  mkdir -p "$(dirname "$gcs")"
  # No network's word is taken for a hash: what is not in go.sum is not built.
  (cd "$pins/fake-gcs-server" && GOFLAGS=-mod=readonly GOWORK=off go build -o "$gcs" github.com/fsouza/fake-gcs-server) \
    || { echo "error: fake-gcs-server cannot be built from what go.sum names" >&2; exit 5; }
fi
if [ ! -e "$azure/.ready" ]; then
  command -v npm >/dev/null || { echo "error: fetching the emulator of Azure's blobs needs Node and npm" >&2; exit 7; }
  echo "fetching Azurite …" >&2
  mkdir -p "$azure"
  cp "$pins/azurite/package.json" "$pins/azurite/package-lock.json" "$azure"
  (cd "$azure" && npm ci --ignore-scripts --no-audit --no-fund --silent) \
    || { echo "error: Azurite cannot be fetched as package-lock.json names it" >&2; exit 5; }
  touch "$azure/.ready"
fi
if [ ! -e "$connector/.ready" ]; then
  need "Google's connector"
  echo "fetching Google's connector …" >&2
  without="*:*" fetch connector "$connector" gcs-connector.sha256 \
    com.google.cloud.bigdataoss:gcs-connector:hadoop3-2.2.26:shaded
  touch "$connector/.ready"
fi
echo "clouds  $gcs, $azure, $connector"
