"""A sink that writes a query's rows to Redis or Cassandra by key, for other services to read."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from holdfast.engine.cluster import send_package
from holdfast.errors import Invalid
from holdfast.external.shared_rows import KEY_TYPES
from holdfast.layout import OPERATOR_NAME
from holdfast.stream.event_time import quoted, type_of
from holdfast.stream.keyed.blobs_in_database import server_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from holdfast.config.database_stores import Cassandra, Redis
    from holdfast.worker.state.cassandra_blobs import CassandraBlobServer
    from holdfast.worker.state.redis_blobs import RedisBlobServer

_WHERE: Final = "holdfast.sink(…).share"
_KEY: Final = "__holdfast_key_"


@dataclass(frozen=True, slots=True)
class RowTarget:
    """The rows of a name in a database, as a query writes them.

    Attributes:
        server: The address of the database.
        name: The name of the rows.
        keys: The key columns.
        delete_when: The SQL condition under which a row deletes that of its key, or None.
    """

    server: RedisBlobServer | CassandraBlobServer
    name: str
    keys: tuple[str, ...]
    delete_when: str | None

    @classmethod
    def of(
        cls,
        frame: DataFrame,
        database: Redis | Cassandra,
        name: str | None,
        keys: Sequence[str],
        delete_when: str | None,
    ) -> RowTarget:
        """Return a target after checking the query's columns; contacts no server.

        Raises:
            Invalid: The name, a key or the condition is invalid, or the database is not supported.
            Unsupported: The client library of the database is not installed.
        """
        if name is None or not re.fullmatch(OPERATOR_NAME, name):
            raise Invalid(
                "shared rows need a name" if name is None else "invalid name for shared rows",
                code="HF-E2547",
                where=_WHERE,
                found=None if name is None else repr(name),
                expected="a letter, then letters, digits, '-', '_' and '.'",
                hint='name the sink: hf.sink(frame, name="visits").share(…)',
            )
        keys = [keys] if isinstance(keys, str) else list(keys)
        if not keys or len(set(keys)) < len(keys) or not set(keys) <= set(frame.columns):
            raise Invalid(
                "invalid key columns for shared rows",
                code="HF-E2548",
                where=_WHERE,
                found=f"keys={keys}",
                expected="at least one of " + ", ".join(frame.columns),
                hint='name each key column once, as in keys=["customer"]',
            )
        for key in keys:
            kind = type_of(frame, key)
            if kind not in KEY_TYPES:
                raise Invalid(
                    f"key column {key!r} of shared rows has an unsupported type",
                    code="HF-E2549",
                    where=_WHERE,
                    found=kind,
                    expected=", ".join(KEY_TYPES),
                    hint=f'add a key of text: withColumn("{key}_text", col("{key}").cast("string"))',
                )
        target = cls(server_of(database, f"{_WHERE}: database"), name, tuple(keys), delete_when)
        target.packed(frame)  # Spark checks the condition
        return target

    def claim(self, spark: SparkSession) -> int:
        """Return the number of a new start of the sink, after which former starts are rejected.

        It also makes this package importable in the session's tasks.

        Raises:
            Invalid: The rows have other key columns, or the database rejects the user or the password.
            Unavailable: The database does not answer.
        """
        from holdfast.worker.row_writer import row_table

        send_package(spark)
        return row_table(self.server, self.name).claim(json.dumps(self.keys))

    def packed(self, frame: DataFrame) -> DataFrame:
        """Return the key columns, each row as JSON, and whether it deletes the row of its key."""
        from pyspark.sql import functions as F  # noqa: N812 - the package imports without Spark

        keys = [F.col(quoted(key)).alias(f"{_KEY}{at}") for at, key in enumerate(self.keys)]
        row = F.to_json(F.struct(*(quoted(name) for name in frame.columns)), {"ignoreNullFields": "false"})
        deleted = F.lit(False) if self.delete_when is None else F.expr(self.delete_when)
        return frame.select(*keys, row.alias("row"), F.coalesce(deleted, F.lit(False)).alias("deleted"))

    def write(self, batch: DataFrame, query_id: str, batch_id: int, start: int) -> None:
        """Write a batch's rows, in one Spark job.

        Raises:
            Conflict: A later start has claimed the rows.
            Unavailable: The database does not answer.
        """
        from holdfast.worker.row_writer import RowWriter, row_table, superseded

        table = row_table(self.server, self.name)
        newest = table.start()
        if newest != start:
            raise superseded(self.name, start, newest)
        writer = RowWriter(self.server, self.name, start, batch_id)
        self.packed(batch).mapInArrow(writer.__call__, "rows bigint").collect()
        table.finish(start, batch_id, query_id)
