#!/usr/bin/env bash
# peers.sh [NAME…]: install the engines that `holdfast bench peers` compares with, each in an environment of its own.
#
# Without names it installs all of them, 3 GB.
#
# They keep to `.peers/`. The bench starts what is installed and reports the others as missing, so an engine that
# cannot be installed on this machine stops nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
uv=${VENV:-.venv}/bin/uv
failed=()

if [ $# -gt 0 ]; then
  lists=("${@/%/.txt}")
  lists=("${lists[@]/#/scripts/pins/peers/}")
else
  lists=(scripts/pins/peers/*.txt)
fi
for pins in "${lists[@]}"; do
  name=$(basename "$pins" .txt)
  target=.peers/$name
  if ! cmp -s "$pins" "$target/.installed"; then
    echo "installing $name …" >&2
    rm -rf "$target"
    if ! "$uv" venv --quiet --python "==3.11.*" "$target" \
      || ! VIRTUAL_ENV=$target "$uv" pip install --quiet --require-hashes -r "$pins"; then
      echo "error: $name cannot be installed; it needs Python 3.11 and a package index" >&2
      failed+=("$name")
      continue
    fi
    cp "$pins" "$target/.installed"
  fi
  echo "$name  $target"
done
[ ${#failed[@]} -eq 0 ] || { echo "error: not installed: ${failed[*]}" >&2; exit 5; }
