"""One side of a measurement of state at rest, in a process of its own.

`python -m holdfast_bench.at_rest.state_process SIDE CHECKPOINT` prints how many rows a scan had, or the
seconds that Spark's own rewriting took.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _ours(checkpoint: str) -> int:
    import holdfast as hf

    return int(hf.state(checkpoint).arrow("aggregate").read_all().num_rows)


def _sparks(checkpoint: str) -> int:
    rows = _session().read.format("statestore").load(checkpoint).select("key.*", "value.*")
    # Two columns of an average may have one name, which a table of Arrow takes and a frame does not.
    return int(rows.toDF(*[f"c{at}" for at in range(len(rows.columns))]).toArrow().num_rows)


def _rewriting(checkpoint: str) -> float:
    from holdfast.engine.state.rewriter import rewrite

    return rewrite(_session(), Path(checkpoint))


def _session() -> SparkSession:
    from holdfast.engine.session.session import session

    spark = session("holdfast-bench", conf={"spark.ui.enabled": "false"})
    spark.sparkContext.setLogLevel("ERROR")
    # What coordinates stores comes to be with the first look at streams, and readers of state need it.
    spark.streams.active  # noqa: B018 - as said
    return spark


SIDES: Final[Mapping[str, Callable[[str], float]]] = {
    "ours": _ours,
    "sparks": _sparks,
    "rewriting": _rewriting,
}


if __name__ == "__main__":
    sys.stdout.write(f"{SIDES[sys.argv[1]](sys.argv[2])}\n")
