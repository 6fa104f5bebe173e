#!/usr/bin/env bash
# in_memory.sh COMMAND...: the command's temporary files lie in memory, where ROOM_MB are free, and are gone at its end.
set -euo pipefail
memory=/dev/shm
room_mb=$(df -Pm "$memory" 2>/dev/null | awk 'NR == 2 { print $4 }')
free_mb=$(awk '/^MemAvailable:/ { print int($2 / 1024) }' /proc/meminfo 2>/dev/null)
wanted_mb=${ROOM_MB:-2048}
if [ -w "$memory" ] && [ "${room_mb:-0}" -ge "$wanted_mb" ] && [ "${free_mb:-0}" -ge "$wanted_mb" ]; then
  TMPDIR=$memory/holdfast-$$
  mkdir "$TMPDIR"
  chmod 1777 "$TMPDIR" # as /tmp: databases run as users of their own
  export TMPDIR
  trap 'rm -rf "$TMPDIR"' EXIT
fi
"$@"
