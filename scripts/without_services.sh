#!/usr/bin/env bash
# without_services.sh PYTHON COMMAND...: run the command as on a fresh machine, which has none of the tests' services.
#
# In a mount namespace of its own the command sees an empty `.services`, and programs that cannot be executed.
# Needs root or user namespaces; nothing outside of the namespace changes.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
python=$1
shift

if [ "${HOLDFAST_HIDDEN:-}" != yes ]; then
  export HOLDFAST_HIDDEN=yes
  namespace=(unshare --mount)
  [ "$(id -u)" -eq 0 ] || namespace=(unshare --user --map-root-user --mount)
  exec "${namespace[@]}" "$0" "$python" "$@"
fi
unset HOLDFAST_HIDDEN CI JAVA_HOME

PYTHONPATH=$root/tests/services "$python" -c '
from required import installed_programs
print(*installed_programs(), sep="\n")' | while read -r program; do
  mount --bind /dev/null "$program"
done
[ ! -d "$root/.services" ] || mount -t tmpfs none "$root/.services"
exec "$@"
