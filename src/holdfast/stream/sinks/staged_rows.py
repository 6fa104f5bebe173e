"""A batch's rows brought into a database by the executors, each its own partitions.

All of them write to one table that belongs to this attempt of the batch. A task copies its rows in a
transaction of its own and answers with its number and how many they were. So a task that dies leaves nothing,
and of a task that ran twice the rows of one run count: those whose number Spark has passed on to the driver.

The table is named after the sink's token and the batch. What a failed attempt has left is dropped by the next
one, which has a greater token, and nobody ever reads it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import holdfast.errors as kinds
from holdfast.errors import HoldfastError, Unavailable
from holdfast.stream.sinks.databases.database import TASK, Connection, PartitionLoader, refusals

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ANSWER: Final = "task bigint, row_count bigint, error string"


@dataclass(frozen=True, slots=True)
class StagedRows:
    """Where the rows of a batch are.

    Attributes:
        table: The table, as SQL names it.
        tasks: The tasks whose rows count.
        count: How many rows these have brought.
    """

    table: str
    tasks: tuple[int, ...]
    count: int

    @property
    def condition(self) -> str:
        """What is true of a row that counts, in SQL."""
        return f"{TASK} IN ({', '.join(map(str, self.tasks))})" if self.tasks else "false"


def stage_from_executors(batch: DataFrame, table: str, loader: PartitionLoader, target: str) -> StagedRows:
    """Let the executors bring a batch's rows into a table; computes the batch, in one Spark job.

    No row comes to the driver, only what each task has to say.

    Args:
        batch: The rows; its columns are those of the table but for the last, `holdfast_task`.
        table: The table, as SQL names it.
        loader: Connects to the database from an executor and copies rows.
        target: The table for which they are, as errors name it.

    Raises:
        HoldfastError: What an executor met, as the database's own error is translated.
    """
    answers = batch.mapInArrow(copied_by(loader, table, target), _ANSWER).collect()
    for answer in answers:
        if answer.error is not None:
            raise _raised(answer.error)
    tasks = sorted(answer.task for answer in answers)
    return StagedRows(table, tuple(tasks), sum(answer.row_count for answer in answers))


def require_all(connection: Connection, staged: StagedRows) -> None:
    """See that the table has what the tasks said that they brought.

    Raises:
        Unavailable: It has not, as when a server has lost them that came back without its log.
    """
    (count,) = connection.execute(
        f"SELECT count(*) FROM {staged.table} WHERE {staged.condition}"  # noqa: S608  ours
    ).fetchone()
    if count != staged.count:
        raise Unavailable(
            "the rows of a batch are not all in its staging table",
            where=staged.table,
            found=str(count),
            expected=str(staged.count),
            hint="start the query again: it repeats the batch",
        )


def copied_by(loader: PartitionLoader, table: str, target: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """What an executor does with the Arrow batches of a partition."""

    def copy(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        task = -1 if context is None else context.taskAttemptId()
        count, error = 0, None
        # Nothing is opened for a partition without rows.
        filled = (batch for batch in batches if batch.num_rows)
        first = next(filled, None)
        if first is not None:
            try:
                with refusals(loader, target):
                    count = loader.load_partition(table, _chained(first, filled), task)
            except HoldfastError as ours:
                error = json.dumps({"kind": type(ours).__name__, "fact": ours.fact, **ours.facts()})
                for _ in filled:  # a worker reads its input to the end
                    pass
        yield pa.RecordBatch.from_pydict(
            {
                "task": pa.array([task], pa.int64()),
                "row_count": pa.array([count], pa.int64()),
                "error": pa.array([error], pa.string()),
            }
        )

    return copy


def _chained(first: Any, others: Iterator[Any]) -> Iterator[Any]:
    yield first
    yield from others


def _raised(text: str) -> HoldfastError:
    said = json.loads(text)
    kind, fact = getattr(kinds, said.pop("kind")), said.pop("fact")
    error: HoldfastError = kind(fact, **said)
    return error


def columns_with_task(columns: Sequence[str]) -> str:
    """The columns of a staging table, in SQL."""
    return ", ".join([*columns, f"{TASK} BIGINT NOT NULL"])
