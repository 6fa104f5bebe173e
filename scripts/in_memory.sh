#!/usr/bin/env bash
# in_memory.sh COMMAND...: the command's temporary files lie in memory, where there is room, and are gone at its end.
set -euo pipefail
memory=/dev/shm
room_kb=$(df -Pk "$memory" 2>/dev/null | awk 'NR == 2 { print $4 }')
if [ -w "$memory" ] && [ "${room_kb:-0}" -ge $((2 << 20)) ]; then
  TMPDIR=$(mktemp -d "$memory/holdfast-XXXXXX")
  export TMPDIR
  trap 'rm -rf "$TMPDIR"' EXIT
fi
"$@"
