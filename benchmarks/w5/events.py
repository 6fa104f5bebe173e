"""Write the events: python events.py FOLDER [BATCHES]

Makes FOLDER/parquet with 100,000 events a file for Spark and Bytewax, and FOLDER/csv with the same events
in the same order for Flink, in two files by the parity of the user.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

ROWS = 100_000
USERS = 50_000


def main() -> None:
    folder, batches = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 12
    (folder / "parquet").mkdir(parents=True)
    (folder / "csv").mkdir()
    random = np.random.default_rng(5)
    tables = []
    for number in range(batches):
        amounts = np.ceil(random.exponential(40, ROWS)) / 4
        table = pa.table({"user": random.integers(0, USERS, ROWS), "amount": amounts})
        path = folder / "parquet" / f"{number:05}.parquet"
        pyarrow.parquet.write_table(table, path)
        os.utime(path, (1_767_225_600 + number, 1_767_225_600 + number))  # Spark goes by this time
        tables.append(table)
    everything = pa.concat_tables(tables)
    parity = everything["user"].to_numpy() % 2
    options = pyarrow.csv.WriteOptions(include_header=False)
    for side in (0, 1):
        part = everything.filter(pa.array(parity == side))
        pyarrow.csv.write_csv(part, folder / "csv" / f"part-{side}.csv", options)


if __name__ == "__main__":
    main()
