#!/usr/bin/env bash
# services-sparks.sh: install PySpark 3.4 to 4.3, each in an environment of its own; 3 GB.
#
# Each has Holdfast's base dependencies and prometheus-client too, without the extra `spark`, as the environment of a
# program that serves metrics would; the tests put Holdfast's sources on its path.
# Spark 3.4 runs on Python 3.11 and lower, Spark 4.3 on 3.11 and higher. They keep to `.services/sparks/`; what starts them are tests.
set -euo pipefail
cd "$(dirname "$0")/.."
uv=$PWD/${VENV:-.venv}/bin/uv
place=$PWD/.services/sparks
base=scripts/pins/holdfast.txt

for pins in scripts/pins/spark-*.txt; do
  version=$(basename "$pins" .txt)
  version=${version#spark-}
  target=$place/$version
  if ! cat "$pins" "$base" | cmp -s - "$target/.installed"; then
    echo "installing PySpark $version …" >&2
    rm -rf "$target"
    "$uv" venv --quiet --python "==3.11.*" "$target" \
      || { echo "error: PySpark $version needs Python 3.11" >&2; exit 7; }
    VIRTUAL_ENV=$target "$uv" pip install --quiet --require-hashes -r "$pins" -r "$base"
    cat "$pins" "$base" > "$target/.installed"
  fi
  echo "PySpark $version  $target"
done
