"""Tables in place of rows between Spark's serializer and an operator; other functions notice nothing."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.serializers import read_int
from pyspark.sql import Row
from pyspark.sql.pandas import serializers
from pyspark.sql.types import LongType, StructType

from holdfast.worker import operator
from holdfast.worker.counts import COUNTS
from holdfast.worker.operator import _Graft, answer_batch
from holdfast.worker.packets import PACKET, answer_schema
from holdfast.worker.passes import TaskOutput, packets_in
from holdfast.worker.state.group_numbers import EVEN

# Spark 4.3 has no serializer for these tasks; what the workers do there is tested with its queries.
KIND: Any = getattr(serializers, "TransformWithStateInPySparkRowSerializer", None)
if KIND is None:
    pytest.skip("this Spark finds the groups outside of its serializer", allow_module_level=True)
START = serializers.SpecialLengths.START_ARROW_STREAM
OUTPUT = pa.schema([pa.field("n", pa.int64(), nullable=False), pa.field("who", pa.string())])


class Doubling:
    """Answers the numbers that arrive, doubled, a table for each call of Spark's that asks for some."""

    def __init__(self) -> None:
        self.arriving: Iterator[pa.RecordBatch] = iter(())

    def receive(self, arriving: Iterator[pa.RecordBatch]) -> None:
        self.arriving = arriving

    def answers(self) -> Iterator[pa.RecordBatch]:
        for batch in self.arriving:
            yield pa.RecordBatch.from_pydict({"n": [2 * n for n in batch.column(0).to_pylist()]})


@pytest.fixture
def graft(monkeypatch: pytest.MonkeyPatch) -> _Graft:
    """A graft of this test's own, which is taken out again at its end."""
    for name in ("load_stream", "dump_stream"):
        monkeypatch.setattr(KIND, name, getattr(KIND, name))
    # The worker's own expects a task where a function was unpickled in this process and not run.
    monkeypatch.setattr(operator._graft, "_task", None)
    return _Graft()


def _serializer() -> Any:
    made = KIND(arrow_max_records_per_batch=100)  # it carries no types
    made.key_offsets = [0]
    return made


def _sent(*batches: list[int]) -> io.BytesIO:
    stream = io.BytesIO()
    with pa.RecordBatchStreamWriter(stream, pa.schema([("n", pa.int64())])) as writer:
        for numbers in batches:
            writer.write_batch(pa.RecordBatch.from_pydict({"n": numbers}))
    stream.seek(0)
    return stream


def _answered(stream: io.BytesIO) -> list[int]:
    """What Spark would read: its word for the beginning, and batches of one column of structs."""
    stream.seek(0)
    assert read_int(stream) == START  # type: ignore[no-untyped-call]  # as above
    return [row["_0"]["n"] for batch in pa.ipc.open_stream(stream) for row in batch.to_pylist()]


def test_a_task_that_is_expected_reads_and_answers_tables(graft: _Graft) -> None:
    graft.expect(Doubling())
    serializer, answers = _serializer(), io.BytesIO()
    calls = serializer.load_stream(_sent([1, 2], [3]))
    serializer.dump_stream(calls, answers)
    assert _answered(answers) == [2, 4, 6]


def test_the_next_task_of_the_same_worker_is_sparks_own_again(graft: _Graft) -> None:
    graft.expect(Doubling())
    serializer = _serializer()
    serializer.dump_stream(serializer.load_stream(_sent([1])), io.BytesIO())

    answers = io.BytesIO()
    kind = StructType().add("n", LongType())
    found = [
        (key, [row.n for row in rows or ()]) for _, key, rows in serializer.load_stream(_sent([7, 7, 8]))
    ]
    serializer.dump_stream(([(iter([Row(n=sum(rows))]), kind)] for key, rows in found if key), answers)
    assert found[:2] == [((7,), [7, 7]), ((8,), [8])]
    assert _answered(answers) == [14, 8]


def test_where_nothing_is_answered_spark_is_told_nothing(graft: _Graft) -> None:
    graft.expect(Doubling())
    serializer, answers = _serializer(), io.BytesIO()
    serializer.dump_stream(serializer.load_stream(_sent()), answers)
    assert answers.getvalue() == b""


def test_packets_are_read_by_the_names_of_their_columns() -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "payload": [b"first", None],
            "seq": [4, -1],
            "part": [3, -1],
            "stream": [0, -1],
            "key_group": [EVEN.number_of(1), EVEN.number_of(2)],
        }
    ).select([*PACKET[1:], PACKET[0]])
    first, second = packets_in(batch, EVEN)
    assert (first.group, first.stream, first.part, first.seq) == (1, 0, 3, 4)
    assert first.payload is not None
    assert bytes(first.payload) == b"first"
    assert (second.group, second.stream, second.payload) == (2, -1, None)


def test_rows_and_counts_are_answered_side_by_side() -> None:
    schema = answer_schema(OUTPUT)
    rows = pa.RecordBatch.from_arrays([pa.array([1, 2, 3]), pa.array(["a", None, "c"])], schema=OUTPUT)
    part = answer_batch(TaskOutput(rows.slice(1)), schema, COUNTS)
    counts = answer_batch(TaskOutput(counts={"events": 5, "keys": 2}), schema, COUNTS)
    assert part.to_pylist() == [{"rows": [{"n": 2, "who": None}, {"n": 3, "who": "c"}], "counts": None}]
    assert counts.to_pylist() == [
        {"rows": None, "counts": [{"events": 5, "keys": 2}.get(name) for name in COUNTS]}
    ]
    assert part.schema == counts.schema
