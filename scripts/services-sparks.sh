#!/usr/bin/env bash
# services-sparks.sh: install PySpark 3.4 to 4.3, each in an environment of its own; 3 GB.
#
# Spark 3.4 runs on Python 3.11 and lower, Spark 4.3 on 3.11 and higher. They keep to `.services/sparks/`; what starts them are tests.
set -euo pipefail
cd "$(dirname "$0")/.."
uv=$PWD/${VENV:-.venv}/bin/uv
place=$PWD/.services/sparks

for pins in scripts/pins/spark-*.txt; do
  version=$(basename "$pins" .txt)
  version=${version#spark-}
  target=$place/$version
  if ! cmp -s "$pins" "$target/.installed"; then
    echo "installing PySpark $version …" >&2
    rm -rf "$target"
    "$uv" venv --quiet --python "==3.11.*" "$target" \
      || { echo "error: PySpark $version needs Python 3.11" >&2; exit 7; }
    VIRTUAL_ENV=$target "$uv" pip install --quiet --require-hashes -r "$pins"
    cp "$pins" "$target/.installed"
  fi
  echo "PySpark $version  $target"
done
