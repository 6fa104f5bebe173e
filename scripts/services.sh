#!/usr/bin/env bash
# services.sh: install the light servers and shells that some tests start, from Debian's packages.
#
# It installs and does nothing else: the tests start their own servers on free ports and end them.
# Run it as often as you like; what is there already is only reported.
set -euo pipefail

litter=()
trap 'rm -rf "${litter[@]}"' EXIT

# One line a service: name, Debian package, and a shell pattern of a program that proves it is there.
services='
PostgreSQL  postgresql  /usr/lib/postgresql/*/bin/postgres
MariaDB     mariadb-server-core  /usr/sbin/mariadbd
Redis       redis-server  /usr/bin/redis-server
Chromium    chromium    /usr/bin/chromium
promtool    prometheus  /usr/bin/promtool
zsh         zsh         /usr/bin/zsh
fish        fish        /usr/bin/fish
'

found() { compgen -G "$1" | sort -V | tail -n 1; }

missing=()
while read -r name package program; do
  [ -n "$name" ] || continue
  [ -n "$(found "$program")" ] || missing+=("$package")
done <<<"$services"

if [ ${#missing[@]} -gt 0 ]; then
  if [ "$(id -u)" -ne 0 ]; then
    echo "error: installing ${missing[*]} needs root; run: sudo make services" >&2
    exit 2
  fi
  if ! command -v apt-get >/dev/null; then
    echo "error: no apt-get here; install these yourself: ${missing[*]}" >&2
    exit 7
  fi
  echo "installing ${missing[*]} …" >&2
  # No service may start by itself: Debian would run a cluster of its own beside the tests' servers.
  policy=/usr/sbin/policy-rc.d
  if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
    litter+=("$policy")
  fi
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq || { echo "error: the package lists cannot be fetched" >&2; exit 5; }
  apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2 \
    || { echo "error: these packages cannot be installed: ${missing[*]}" >&2; exit 5; }
fi

# Flink's client is a wheel with a pinned hash. It stays out of Holdfast's own environment: it is only asked with.
root=$(cd "$(dirname "$0")/.." && pwd)
flink_pin=$root/scripts/pins/flink.txt
flink_version=$(sed -n 's/^apache-flink-libraries==\([^ ]*\).*/\1/p' "$flink_pin")
flink_home=$root/.services/flink
flink_jars='flink-dist-* flink-scala_* log4j-*'
if [ ! -e "$flink_home/$flink_version" ]; then
  echo "fetching Flink's client $flink_version …" >&2
  mkdir -p "$flink_home"
  fetched=$(mktemp -d)
  litter+=("$fetched")
  "${PYTHON:-python3}" -m pip download -q --no-deps --only-binary :all: --require-hashes -d "$fetched" \
    -r "$flink_pin" >&2 || { echo "error: Flink's client cannot be fetched, or is not the one in $flink_pin" >&2; exit 5; }
  "${PYTHON:-python3}" - "$fetched" "$flink_home" $flink_jars <<'PYTHON'
import fnmatch
import sys
import zipfile
from pathlib import Path

fetched, home, *patterns = sys.argv[1:]
(wheel,) = Path(fetched).glob("*.whl")
(Path(home) / "lib").mkdir(parents=True, exist_ok=True)
with zipfile.ZipFile(wheel) as files:
    for member in files.namelist():
        name = member.rpartition("/")[2]
        if "/lib/" in member and any(fnmatch.fnmatch(name, each + ".jar") for each in patterns):
            (Path(home) / "lib" / name).write_bytes(files.read(member))
PYTHON
  touch "$flink_home/$flink_version"
fi
echo "Flink's client  $flink_home/lib  ($flink_version)"

while read -r name package program; do
  [ -n "$name" ] || continue
  path=$(found "$program")
  if [ -z "$path" ]; then
    echo "error: $package is installed, but $program is not there" >&2
    exit 70
  fi
  echo "$name  $path  ($("$path" --version | head -n 1))"
done <<<"$services"
