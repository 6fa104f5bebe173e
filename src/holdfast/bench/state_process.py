"""One side of a measurement of state at rest, in a process of its own: start-up counts.

`python -m holdfast.bench.state_process SIDE CHECKPOINT`; prints how many rows there were.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Final


def _ours(checkpoint: str) -> int:
    import holdfast as hf  # noqa: PLC0415 - only this side loads it

    return int(hf.state(checkpoint).arrow("aggregate").read_all().num_rows)


def _sparks(checkpoint: str) -> int:
    from holdfast.engine.session import session  # noqa: PLC0415 - only this side needs Spark

    spark = session("holdfast-bench", conf={"spark.ui.enabled": "false"})
    spark.sparkContext.setLogLevel("ERROR")
    rows = spark.read.format("statestore").load(checkpoint).select("key.*", "value.*")
    # Two columns of an average may have one name, which a table of Arrow takes and a frame does not.
    return int(rows.toDF(*[f"c{at}" for at in range(len(rows.columns))]).toArrow().num_rows)


SIDES: Final[Mapping[str, Callable[[str], int]]] = {"ours": _ours, "sparks": _sparks}


if __name__ == "__main__":
    sys.stdout.write(f"{SIDES[sys.argv[1]](sys.argv[2])}\n")
