#!/usr/bin/env bash
# services-s3.sh: build the S3 gateway that the tests of object storage start; needs Go, and some minutes.
#
# It keeps to `.services/` and starts nothing: the tests start their own gateway on a free port and end it.
set -euo pipefail
cd "$(dirname "$0")/.."
version=v1.8.0
program=$PWD/.services/bin/versitygw

if [ ! -x "$program" ]; then
  if ! command -v go >/dev/null; then
    echo "error: building the S3 gateway needs Go 1.24 or newer" >&2
    exit 7
  fi
  echo "building versitygw $version …" >&2
  GOBIN=$(dirname "$program") go install "github.com/versity/versitygw/cmd/versitygw@$version" \
    || { echo "error: the S3 gateway cannot be built" >&2; exit 5; }
fi
echo "S3 gateway  $program"
