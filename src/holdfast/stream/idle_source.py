"""The source of ticks for a stream that may be idle, as a Python data source of Spark.

It runs on the driver's machine, in a separate process that Spark starts. Most of the time it reports no new
offset, so that Spark plans no batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader
from pyspark.sql.types import StructType

from holdfast.clock import now_ms
from holdfast.engine.described import IDLE_PLACE, IDLE_TICKS
from holdfast.storage import open_storage
from holdfast.stream.idleness import IdleWatch, Told, offset_of, tick_of, ticks_between

IDLE_AFTER = "idle_after_ms"
# The only column: the event time of a tick.
AT_MS = "at_ms"


class IdleTicks(DataSource):
    """The data source of ticks."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return IDLE_TICKS

    def schema(self) -> str:
        """Return the Spark schema of a tick."""
        return f"{AT_MS} long"

    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:  # noqa: ARG002, N802 - Spark's
        """Return a reader for one run of a query."""
        return _Reader(self.options)


class _Reader(SimpleDataSourceStreamReader):
    def __init__(self, options: Mapping[str, str]) -> None:
        told = Told.read(options[IDLE_PLACE])
        self._watch = IdleWatch(open_storage(told.checkpoint), told, int(options[IDLE_AFTER]))

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's
        return offset_of(0)

    def read(self, start: dict[str, int]) -> tuple[Iterator[tuple[int]], dict[str, int]]:
        end = offset_of(self._watch.next(tick_of(start), now_ms()))
        return self.readBetweenOffsets(start, end), end

    def readBetweenOffsets(  # noqa: N802 - Spark's
        self, start: dict[str, int], end: dict[str, int]
    ) -> Iterator[tuple[int]]:
        return iter([(at_ms,) for at_ms in ticks_between(start, end)])
