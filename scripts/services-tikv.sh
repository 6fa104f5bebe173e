#!/usr/bin/env bash
# services-tikv.sh: build the TiKV cluster that the tests start; needs Go, and a minute.
#
# It is the test double of the authors of TiKV's client, behind the protocol of TiKV; tests/services/tikv says how.
# It keeps to `.services/` and starts nothing: the tests start their own on free ports and end it.
set -euo pipefail
cd "$(dirname "$0")/.."
sources=$PWD/tests/services/tikv
program=$PWD/.services/bin/tikv-double
# Built anew whenever what it is made from has changed.
digest=$(cat "$sources"/*.go "$sources"/go.* | sha256sum | cut -d ' ' -f 1)

if [ ! -x "$program" ] || [ "$(cat "$program.sources" 2>/dev/null)" != "$digest" ]; then
  if ! command -v go >/dev/null; then
    echo "error: building TiKV's test double needs Go 1.25 or newer" >&2
    exit 7
  fi
  echo "building TiKV's test double …" >&2
  mkdir -p "$(dirname "$program")"
  # No network's word is taken for a hash: what is not in go.sum is not built.
  (cd "$sources" && GOFLAGS=-mod=readonly GOWORK=off go build -o "$program" .) \
    || { echo "error: TiKV's test double cannot be built from what go.sum names" >&2; exit 5; }
  echo "$digest" >"$program.sources"
fi
echo "TiKV's test double  $program"
