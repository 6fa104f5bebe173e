"""Tables between Spark and an operator, where Spark's own serializer makes a Python object of each row.

The serializer of `transformWithState` takes the rows apart one by one, and puts out a batch for each group,
most of them empty. For a task with an operator of ours the two streams carry tables. Spark's loop over the
groups runs all the same and finds none: it calls once for timers, and once at the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import IO, Any, Protocol

import pyarrow as pa


class Exchanging(Protocol):
    """What reads a task's rows and answers them in tables."""

    def receive(self, arriving: Iterator[pa.RecordBatch]) -> None:
        """Learn where the rows of the task come from."""
        ...

    def answers(self) -> Iterator[pa.RecordBatch]:
        """What there is to answer since the last time; asked for after each of Spark's calls."""
        ...


class _Graft:
    """Stands in for the two methods of Spark's serializer; hands on what is not for a task of ours."""

    def __init__(self) -> None:
        self._task: Exchanging | None = None
        self._is_in = False

    def expect(self, task: Exchanging) -> None:
        self._task = task
        if not self._is_in:
            self._put_in()
            self._is_in = True

    def _put_in(self) -> None:
        from pyspark.sql.pandas import serializers

        # Up to 4.2 the serializer finds the groups; since then the loop does, over plain tables.
        of_groups = getattr(serializers, "TransformWithStateInPySparkRowSerializer", None)
        spoken_for: Any = of_groups or serializers.ArrowStreamSerializer
        load, dump = spoken_for.load_stream, spoken_for.dump_stream

        def load_stream(serializer: Any, stream: IO[bytes]) -> Iterator[Any]:
            task, self._task = self._task, None
            serializer.holdfast_task = task
            if task is None:
                groups: Iterator[Any] = load(serializer, stream)
                return groups
            task.receive(iter(pa.ipc.open_stream(stream)))
            return _no_groups() if of_groups is not None else iter(())

        def dump_stream(serializer: Any, calls: Iterator[Any], stream: IO[bytes]) -> None:
            task = getattr(serializer, "holdfast_task", None)
            if task is None:
                dump(serializer, calls, stream)
            else:
                _write(task, calls, stream)

        spoken_for.load_stream, spoken_for.dump_stream = load_stream, dump_stream


_graft = _Graft()


def expect(task: Exchanging) -> None:
    """Let the task that this worker is setting up exchange tables.

    To be called while the worker unpickles the task's function: the serializer's methods are looked up after
    that. Functions of others go on as they were.
    """
    _graft.expect(task)


def _no_groups() -> Iterator[Any]:
    """What the loop up to 4.2 is given for a partition without rows."""
    from pyspark.sql.streaming.stateful_processor_util import (
        TransformWithStateInPandasFuncMode as Mode,
    )

    yield Mode.PROCESS_TIMER, None, None
    yield Mode.COMPLETE, None, None


def _write(task: Exchanging, calls: Iterator[Any], stream: IO[bytes]) -> None:
    """Let Spark's loop make its calls, and write what the task answers to each."""
    from pyspark.serializers import write_int
    from pyspark.sql.pandas.serializers import SpecialLengths

    answers = (answer for _ in calls for answer in task.answers())
    first = next(answers, None)
    if first is None:
        return
    # Spark waits for this word until the first answer is there, so that an error before it can be told.
    write_int(SpecialLengths.START_ARROW_STREAM, stream)  # type: ignore[no-untyped-call]  # it carries no types
    with pa.RecordBatchStreamWriter(stream, _column(first).schema) as writer:
        for answer in chain((first,), answers):
            writer.write_batch(_column(answer))


def _column(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch as one column with a field for each of its own, which is how Spark takes it."""
    return pa.RecordBatch.from_arrays(
        [pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema))], names=["_0"]
    )
