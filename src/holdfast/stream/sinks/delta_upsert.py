"""An upsert of a query's rows into a Delta table, each batch exactly once.

A batch is one MERGE with the id of the query and the number of the batch. Delta stores both in the commit and
skips a MERGE that it already has. The id and the number are settings of the session, and each query has its
own session, so queries of one driver do not interfere.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.errors import Invalid, Unavailable
from holdfast.quantities import counted
from holdfast.stream.event_time import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructField, StructType


def require_keys(keys: Sequence[str], columns: Sequence[str], table: str) -> None:
    """Check that the key columns exist and are given once.

    Raises:
        Invalid: There is no key column, or one is not a column of the query or is given twice.
    """
    if not keys or len(set(keys)) < len(keys) or not set(keys) <= set(columns):
        raise Invalid(
            "invalid key columns for an upsert",
            code="HF-E2355",
            where=f"the query written to {table!r}",
            found=f"keys={list(keys)}",
            expected="at least one of " + ", ".join(columns),
            hint='name each key column once, as in keys=["order_id"]',
        )


def null_key(where: str, rows: int, keys: Sequence[str]) -> Invalid:
    """Return the error for a batch with a null in a key column."""
    return Invalid(
        "the key of an upsert is null",
        code="HF-E2356",
        where=where,
        found=f"{counted(rows, 'row')} of the batch with null in {' or '.join(keys)}",
        hint="filter out rows with a null key, or fill the key with `coalesce`",
    )


def repeated_key(where: str, rows: int, key: str) -> Invalid:
    """Return the error for a batch with several rows for the same key."""
    return Invalid(
        "a batch has several rows for one key",
        code="HF-E2357",
        where=where,
        found=f"{rows} rows for {key}",
        expected="one row per key, because the order of rows is undefined",
        hint="aggregate by the key first, or add a column to the key",
    )


_TXN: Final = "spark.databricks.delta.write.txn"
_VIEW: Final = "holdfast_batch"
_DELETES: Final = "holdfast_deletes"
# Delta's error classes for a conflict with a concurrent writer.
_BEATEN: Final = re.compile(
    r"DELTA_(CONCURRENT_\w+|METADATA_CHANGED\w*|PROTOCOL_CHANGED\w*)|Concurrent(Append|DeleteRead|DeleteDelete"
    r"|Transaction|Write)Exception|(MetadataChanged|ProtocolChanged)Exception"
)
_TRIES: Final = 10
_FIRST_WAIT_S: Final = 0.1
_LONGEST_WAIT_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class DeltaUpsert:
    """The upsert of a query's rows into a Delta table.

    Attributes:
        table: The table as an SQL name.
        target: The table or path as given by the user.
        columns: The columns of the query.
        keys: The key columns.
        delete_when: The SQL condition under which a row of the query deletes the row with its key, or None.
        evolves: Whether missing columns are added to the table.
    """

    table: str
    target: str
    columns: tuple[str, ...]
    keys: tuple[str, ...]
    delete_when: str | None = None
    evolves: bool = False

    @classmethod
    def of(
        cls,
        target: str,
        schema: StructType,
        keys: Sequence[str],
        delete_when: str | None,
        *,
        is_path: bool,
        evolves: bool,
    ) -> DeltaUpsert:
        """Return an upsert after checking the keys against a query's schema; opens and creates nothing.

        Raises:
            Invalid: There is no key column, or one is not a column of the query or is given twice.
        """
        require_keys(keys, schema.names, target)
        table = _table_of_path(target) if is_path else target
        return cls(table, target, tuple(schema.names), tuple(keys), delete_when, evolves)

    def prepare(self, spark: SparkSession, schema: StructType, partition_by: Sequence[str]) -> None:
        """Create the table if missing, and check that it has the query's columns, or add them.

        Raises:
            Invalid: The table lacks a column, and columns are not added.
        """
        spread = f" PARTITIONED BY ({', '.join(map(quoted, partition_by))})" if partition_by else ""
        spark.sql(f"CREATE TABLE IF NOT EXISTS {self.table} ({_definitions(schema)}) USING delta{spread}")
        missing = self._missing(spark, schema)
        if missing and not self.evolves:
            raise Invalid(
                "the Delta table lacks columns of the query",
                code="HF-E2358",
                where=self.target,
                found=", ".join(sorted(self._there(spark))),
                expected=", ".join(self.columns),
                hint='add the columns with ALTER TABLE, or write .delta(…, mergeSchema="true")',
            )
        if missing:
            # A MERGE adds new columns only with `SET *`, which would also add Holdfast's own column.
            try:
                spark.sql(f"ALTER TABLE {self.table} ADD COLUMNS ({_definitions(missing)})")
            except Exception:
                if self._missing(spark, schema):
                    raise  # otherwise a concurrent query has added them

    def _there(self, spark: SparkSession) -> set[str]:
        """Return the names of the table's columns, in lower case."""
        return {name.lower() for name in spark.sql(f"SELECT * FROM {self.table}").columns}  # noqa: S608 - quoted names

    def _missing(self, spark: SparkSession, schema: StructType) -> list[StructField]:
        """Return the columns of the query that the table lacks."""
        there = self._there(spark)
        return [field for field in schema if field.name.lower() not in there]

    def write(
        self, batch: DataFrame, query_id: str, batch_id: int, pause: Callable[[float], None] = time.sleep
    ) -> None:
        """Merge a batch's rows into the table by key, exactly once.

        The batch is computed once and persisted until it is written. Its state is computed even if the table
        already has the batch.

        Raises:
            Invalid: A key is null, or occurs twice in the batch.
            Unavailable: Every attempt conflicted with a concurrent writer.
        """
        kept = batch.persist()
        try:
            if self._rows(kept):
                session = batch.sparkSession
                kept.createOrReplaceTempView(_VIEW)
                with _as_batch(session, query_id, batch_id):
                    self.merge(session, pause)
        finally:
            kept.unpersist()

    def merge(self, session: SparkSession, pause: Callable[[float], None]) -> None:
        """Run the MERGE; repeat it after a conflict with a concurrent writer.

        Raises:
            Unavailable: Every attempt conflicted with a concurrent writer.
        """
        statement, wait_s = self.statement(), _FIRST_WAIT_S
        for tried in range(1, _TRIES + 1):
            try:
                session.sql(statement)
            except Exception as error:
                if not _BEATEN.search(f"{type(error).__name__} {error}"):
                    raise
                if tried == _TRIES:
                    raise Unavailable(
                        "the MERGE into the Delta table conflicted with concurrent writers in every attempt",
                        code="HF-E5056",
                        where=self.target,
                        found=f"{counted(tried, 'conflict')}, the last: {str(error).partition(chr(10))[0]}",
                        hint=(
                            "do not run OPTIMIZE or other jobs on the partitions that this query writes,"
                            " or run them less often"
                        ),
                    ) from error
            else:
                return
            pause(wait_s)
            wait_s = min(wait_s * 2, _LONGEST_WAIT_S)

    def statement(self) -> str:
        """Return the MERGE statement for a batch."""
        on = " AND ".join(f"t.{quoted(key)} = s.{quoted(key)}" for key in self.keys)
        others = [quoted(column) for column in self.columns if column not in self.keys]
        names = ", ".join(map(quoted, self.columns))
        values = ", ".join(f"s.{quoted(column)}" for column in self.columns)
        source = f"SELECT *, {self._deletes()} AS {_DELETES} FROM {_VIEW}"  # noqa: S608 - quoted names
        parts = [
            f"MERGE {'WITH SCHEMA EVOLUTION ' if self.evolves else ''}INTO {self.table} t",
            f"USING ({source}) s ON {on}",
            f"WHEN MATCHED AND s.{_DELETES} THEN DELETE" if self.delete_when is not None else "",
            f"WHEN MATCHED THEN UPDATE SET {', '.join(f't.{name} = s.{name}' for name in others)}"
            if others
            else "",
            f"WHEN NOT MATCHED AND NOT s.{_DELETES} THEN INSERT ({names}) VALUES ({values})",  # noqa: S608 - quoted names
        ]
        return " ".join(part for part in parts if part)

    def _deletes(self) -> str:
        return "false" if self.delete_when is None else f"coalesce({self.delete_when}, false)"

    def _rows(self, batch: DataFrame) -> int:
        """Return the number of a batch's rows, after checking their keys; reads all of the batch."""
        from pyspark.sql import functions as F  # noqa: N812

        keys = [F.col(quoted(key)) for key in self.keys]
        lacking = F.greatest(*(F.isnull(key) for key in keys), F.lit(False))
        groups = batch.groupBy(*keys).agg(F.count("*").alias("holdfast_rows"))
        (found,) = groups.agg(
            F.sum("holdfast_rows").alias("rows"),
            F.sum(F.when(lacking, F.col("holdfast_rows"))).alias("lacking"),
            F.max("holdfast_rows").alias("most"),
            F.max_by(F.to_json(F.struct(*keys)), "holdfast_rows").alias("key"),
        ).collect()
        if found["lacking"]:
            raise null_key(self.target, found["lacking"], self.keys)
        if (found["most"] or 0) > 1:
            raise repeated_key(self.target, found["most"], found["key"])
        return int(found["rows"] or 0)


def _definitions(fields: Iterable[StructField]) -> str:
    """Return columns as SQL column definitions."""
    return ", ".join(f"{quoted(field.name)} {field.dataType.simpleString()}" for field in fields)


def _table_of_path(path: str) -> str:
    """Return the SQL name of a path; a relative path is resolved against the working directory."""
    whole = path if ":/" in path else str(Path(path).absolute())
    return f"delta.{quoted(whole)}"


@contextmanager
def _as_batch(session: SparkSession, query_id: str, batch_id: int) -> Iterator[None]:
    """Set the query's id and the batch for all Delta writes of the session in the block."""
    session.conf.set(f"{_TXN}AppId", query_id)
    session.conf.set(f"{_TXN}Version", str(batch_id))
    try:
        yield
    finally:
        session.conf.unset(f"{_TXN}AppId")
        session.conf.unset(f"{_TXN}Version")
