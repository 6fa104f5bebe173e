#!/usr/bin/env bash
# jar.sh: build src/holdfast/engine/session/holdfast-state.jar from jvm/; needs Java and Maven.
#
# The jar is committed, so that neither an install nor a wheel needs Java. The compiler is the one in pyspark's own
# jars. The same sources give the same bytes, and a test in CI compares them; scripts/jar_file.py says how.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${1:-.venv/bin/python}
jar=${2:-src/holdfast/engine/session/holdfast-state.jar}
scripts/state-clients.sh
jars=$("$python" -c 'import pathlib, pyspark; print(pathlib.Path(pyspark.__file__).parent / "jars")')
path=$(printf '%s:' "$jars"/*.jar .services/state-clients/*/*.jar)
classes=$(mktemp -d)
trap 'rm -rf "$classes"' EXIT
mapfile -t sources < <(find jvm -name '*.scala' | LC_ALL=C sort)
# The quick compiler alone: half the time for so short a run.
java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -cp "$jars/*" scala.tools.nsc.Main -deprecation -Xlint -Werror -release 17 -cp "$path" -d "$classes" "${sources[@]}"
"$python" scripts/jar_file.py "$classes" "$jar"
echo "built $jar"
