"""One side of a measurement of state at rest, in a process of its own.

`python -m holdfast_bench.at_rest.state_process SIDE CHECKPOINT` prints how many rows a scan had, or the
seconds that Spark's own rewriting took.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _ours(checkpoint: str) -> int:
    import holdfast as hf

    return int(hf.state(checkpoint).arrow("aggregate").read_all().num_rows)


def _sparks(checkpoint: str) -> int:
    rows = _session().read.format("statestore").load(checkpoint).select("key.*", "value.*")
    # Two columns of an average may have one name, which a table of Arrow takes and a frame does not.
    return int(rows.toDF(*[f"c{at}" for at in range(len(rows.columns))]).toArrow().num_rows)


def _rewriting(address: str) -> float:
    """The seconds of Spark's own rewriting of state, which has no public name: edits are measured against it.

    The checkpoint is changed, and is left without the commit of that batch: it is a copy to be thrown away.
    """
    spark, checkpoint = _session(), Path(address)
    newest = max(int(file.name) for file in (checkpoint / "commits").iterdir() if file.name.isdigit())
    offsets = (checkpoint / "offsets" / str(newest)).read_bytes()
    (checkpoint / "offsets" / str(newest + 1)).write_bytes(offsets)
    jvm: Any = spark._jvm
    java: Any = spark._jsparkSession
    nothing = jvm.scala.Option.apply(None)
    rewriter = jvm.org.apache.spark.sql.execution.streaming.state.StateRewriter(
        java,
        newest,
        newest + 1,
        checkpoint.resolve().as_uri(),
        java.sessionState().newHadoopConf(),
        nothing,
        nothing,
        nothing,
    )
    began = time.perf_counter()
    rewriter.run()
    return time.perf_counter() - began


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
