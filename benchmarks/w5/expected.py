"""Say how many alerts there have to be, with a plain loop: python expected.py FOLDER"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow.parquet

totals: dict[int, tuple[int, float]] = {}
alerts = 0
for path in sorted((Path(sys.argv[1]) / "parquet").glob("*.parquet")):
    table = pyarrow.parquet.read_table(path)
    for user, amount in zip(table["user"].to_pylist(), table["amount"].to_pylist(), strict=True):
        n, total = totals.get(user, (0, 0.0))
        alerts += bool(n and amount * n > 3 * total)
        totals[user] = (n + 1, total + amount)
sys.stdout.write(f"{alerts} alerts\n")
