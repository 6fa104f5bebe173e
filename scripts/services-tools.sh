#!/usr/bin/env bash
# services-tools.sh [NAME…]: install the tools of other projects into which Holdfast is built, for the tests of that.
#
# pre-commit with check-jsonschema, Airflow, Dagster, Helm. Each keeps to `.services/tools/`, in an environment of its
# own. Helm is built, which needs Go and some minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
uv=${VENV:-.venv}/bin/uv
[ $# -gt 0 ] || set -- pre-commit airflow dagster helm

for name in "$@"; do
  target=.services/tools/$name
  if [ "$name" = helm ]; then
    pins=scripts/pins/helm/go.sum
    if ! cmp -s "$pins" "$target/.installed"; then
      command -v go >/dev/null || { echo "error: building Helm needs Go 1.25 or newer" >&2; exit 7; }
      echo "building Helm …" >&2
      mkdir -p "$target/bin"
      # No network's word is taken for a hash: what is not in go.sum is not built.
      (cd scripts/pins/helm && GOFLAGS=-mod=readonly GOWORK=off go build -o "../../../$target/bin/helm" helm.sh/helm/v3/cmd/helm) \
        || { echo "error: Helm cannot be built from what go.sum names" >&2; exit 5; }
      cp "$pins" "$target/.installed"
    fi
  else
    pins=scripts/pins/tools/$name.txt
    if ! cmp -s "$pins" "$target/.installed"; then
      echo "installing $name …" >&2
      rm -rf "$target"
      mkdir -p .services/tools
      "$uv" venv --quiet --python "==3.11.*" "$target"
      VIRTUAL_ENV=$target "$uv" pip install --quiet --require-hashes -r "$pins" \
        || { echo "error: $name cannot be installed; it needs Python 3.11 and a package index" >&2; exit 5; }
      cp "$pins" "$target/.installed"
    fi
  fi
  echo "$name  $target"
done
