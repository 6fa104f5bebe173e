"""The warm-up of a standby driver: the job's queries run over batches without rows, away from its checkpoint.

The first batches of a Spark session are slow, because the JVM loads and interprets its classes and the Python
workers import their modules. A standby driver has that behind it. No function of the user gets a row, no sink
is opened, and no ledger is claimed.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.config.cluster_settings import Manager, manager_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType

    from holdfast.stream.sinks.query_sink import Sink

# Batches after the third of a session take as long as the third.
BATCHES: Final = 3
_LOOK_S: Final = 0.05
# Sinks that Spark writes itself and that can write to a directory which is thrown away.
_FILES: Final = frozenset({"parquet", "json", "csv", "orc", "text", "delta"})


def warm_up(
    built: Callable[[], Sequence[Sink]], spark: SparkSession, told: threading.Event
) -> tuple[int, str | None]:
    """Run the job's queries over batches without rows.

    Args:
        built: Builds the queries.
        spark: The session.
        told: Set when the driver takes over; the warm-up then ends early.

    Returns:
        The number of batches that ran, and the reason why some did not.
    """
    if manager_of(str(spark.sparkContext.master)) is not Manager.LOCAL:
        return 0, "the executors of the cluster are left to the running driver"
    batches, note = 0, None
    with tempfile.TemporaryDirectory(prefix="holdfast-standby-", ignore_cleanup_errors=True) as folder:
        try:
            for number, sink in enumerate(built()):
                batches += _run(sink, spark, Path(folder) / str(number), told)
        except Exception as error:  # the driver that takes over reports what is wrong with the job
            note = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
    return batches, note


def _run(sink: Sink, spark: SparkSession, folder: Path, told: threading.Event) -> int:
    """Run one query and return the number of its batches."""
    from holdfast.engine.file_manager import choose_file_manager
    from holdfast.engine.queries.dry_run import with_files
    from holdfast.engine.queries.watch import failure_text
    from holdfast.stream.keyed.operator_state import checked_operators
    from holdfast.stream.trials import query_of

    if told.is_set():
        return 0
    frame, mode = query_of(sink)
    made = with_files(frame, _Inputs(spark, folder / "in"), most_files=1)
    place = (folder / "checkpoint").as_uri()
    writing = made.writeStream.outputMode(mode).option("checkpointLocation", place)
    if sink.kind in _FILES:
        writing = writing.format(sink.kind).option("path", (folder / "out").as_uri())
    else:
        writing = writing.foreachBatch(_discard)
    with checked_operators(made, place, trial=True), choose_file_manager(spark, place):
        query = writing.trigger(availableNow=True).start()
    _await(query, told)
    text = failure_text(query)
    if text is not None:
        raise RuntimeError(text.strip().partition("\n")[0])
    return sum(1 for progress in query.recentProgress if "addBatch" in dict(progress.durationMs))


def _discard(batch: DataFrame, _batch_id: int) -> None:
    batch.collect()


def _await(query: StreamingQuery, told: threading.Event) -> None:
    while query.isActive:
        if told.wait(_LOOK_S):
            query.stop()


class _Inputs:
    """Directories of Parquet files without rows, one for each source, made when a source asks for it."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self._made = 0

    def __call__(self, schema: StructType) -> str:
        place = self._folder / str(self._made)
        self._made += 1
        self._spark.createDataFrame([], schema).coalesce(1).write.parquet(place.as_uri())
        written = next(place.glob("part-*"))
        for number in range(1, BATCHES):
            shutil.copyfile(written, place / f"{number}.parquet")
        return place.as_uri()


def memory_of_group() -> int:
    """Return the memory of this process and its children in bytes; pages that they share count once."""
    own, total = os.getpgrp(), 0
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            if os.getpgid(int(place.name)) == own:
                text = (place / "smaps_rollup").read_text()
                total += next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))
    return total << 10
