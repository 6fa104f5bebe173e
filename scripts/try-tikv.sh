#!/usr/bin/env bash
# try-tikv.sh PD_ADDRESS: run the tests of state in TiKV against a cluster of yours.
#
# PD_ADDRESS is host and port of its placement drivers, with commas between, such as pd.example:2379. The cluster has
# to be one of RawKV clients in API version 1 that asks for no TLS, such as `tiup playground --mode tikv-slim` starts.
# All keys that the tests write begin with `holdfast-test-`, and are deleted in the end. What kills, freezes or cuts
# off servers runs against the test double, if `make services-tikv` has built it.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# = 1 ] || { echo "usage: scripts/try-tikv.sh PD_ADDRESS" >&2; exit 2; }
scripts/state-clients.sh
HOLDFAST_TIKV=$1 exec .venv/bin/pytest -rs -k tikv \
  tests/services/test_external_tables.py tests/services/test_tikv_tables.py tests/services/test_state_backends.py
