#!/usr/bin/env bash
# services-s3.sh: build the S3 gateway that the tests of object storage start; needs Go, and some minutes.
#
# It keeps to `.services/` and starts nothing: the tests start their own gateway on a free port and end it.
set -euo pipefail
cd "$(dirname "$0")/.."
module=github.com/versity/versitygw
# go.mod names its version, go.sum the hashes of its source and of all that it is built from.
pins=$PWD/scripts/pins/versitygw
version=$(sed -n "s|^require $module ||p; s|^[[:space:]]*$module ||p" "$pins/go.mod")
program=$PWD/.services/bin/versitygw

if [ ! -x "$program" ]; then
  if ! command -v go >/dev/null; then
    echo "error: building the S3 gateway needs Go 1.25 or newer" >&2
    exit 7
  fi
  echo "building versitygw $version …" >&2
  mkdir -p "$(dirname "$program")"
  # No network's word is taken for a hash: what is not in go.sum is not built.
  (cd "$pins" && GOFLAGS=-mod=readonly GOWORK=off go build -o "$program" "$module/cmd/versitygw") \
    || { echo "error: the S3 gateway cannot be built from what go.sum names" >&2; exit 5; }
fi
echo "S3 gateway  $program"
