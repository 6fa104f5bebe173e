#!/usr/bin/env bash
# setup.sh PYTHON VENV [PINS]: a virtual environment with exactly what requirements.lock names.
#
# What PINS names is put over it: another Spark, with what that needs.
set -euo pipefail
python=$1
venv=$2
pins=${3:-}

if [ -n "$pins" ] && { [ ! -e "$pins" ] || ! grep -qE '^pyspark==4\.[23]\.' "$pins"; }; then
  echo "error: jobs run on Spark 4.2 and 4.3: SPARK=4.2 or SPARK=4.3, not ${venv#.venv-spark}" >&2
  exit 2
fi

"$python" - <<'PY' || { echo "error: Python 3.10 or newer is needed; name one with: make PYTHON=python3.12" >&2; exit 2; }
import sys
sys.exit(0 if sys.version_info >= (3, 10) else 1)
PY
if [ ! -x "$venv/bin/python" ]; then
  echo "setting up $venv …"
  "$python" -m venv "$venv" || {
    rm -rf "$venv"
    echo "error: this Python cannot make virtual environments; on Debian: apt install python3-venv" >&2
    exit 2
  }
fi
# What builds and installs is pinned as well: uv by its hash, and what builds the wheel by theirs.
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r scripts/pins/uv.txt
VIRTUAL_ENV=$venv "$venv/bin/uv" pip sync --quiet --require-hashes requirements.lock
[ -z "$pins" ] || VIRTUAL_ENV=$venv "$venv/bin/uv" pip install --quiet --require-hashes -r "$pins"
VIRTUAL_ENV=$venv "$venv/bin/uv" pip install --quiet --no-deps --build-constraint scripts/pins/build.txt --editable .
