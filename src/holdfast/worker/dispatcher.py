"""The function that takes the place of Spark's dispatcher in a transformWithState task.

Spark calls it once for timers and once at the end; the rows come in tables, see `worker.exchange`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from holdfast.worker.interface import Moment
from holdfast.worker.lane import answer_schema
from holdfast.worker.operator import Operator, Task
from holdfast.worker.passes import Answer, packets_in
from holdfast.worker.table_exchange import expect
from holdfast.worker.task_facts import batch_number

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor_api_client import StatefulProcessorApiClient


class Dispatcher:
    """Answers Spark's calls for one operator; unpickled anew for each task."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator
        self._arriving: Iterator[pa.RecordBatch] = iter(())
        self._answers: Iterator[Answer] = iter(())

    def __getstate__(self) -> Operator:
        return self._operator

    def __setstate__(self, operator: Operator) -> None:
        Dispatcher.__init__(self, operator)
        expect(self)

    def receive(self, arriving: Iterator[pa.RecordBatch]) -> None:
        """Learn where the packets of the task come from."""
        self._arriving = arriving

    def answers(self) -> Iterator[pa.RecordBatch]:
        """The rows and counts that have come of Spark's last call."""
        schema = answer_schema(self._operator.lane.output)
        answers, self._answers = self._answers, iter(())
        names = self._operator.lane.count_names
        for answer in answers:
            yield answer_batch(answer, schema, names)

    def call(self, client: StatefulProcessorApiClient, mode: Any, _key: Any, _rows: Any) -> Iterator[Any]:
        """Answer one of Spark's calls."""
        from pyspark.sql.streaming.stateful_processor_api_client import (
            StatefulProcessorHandleState as State,
        )
        from pyspark.sql.streaming.stateful_processor_util import (
            TransformWithStateInPandasFuncMode as Mode,
        )

        from holdfast.worker.state.spark_store import PipelinedStore

        if mode == Mode.PRE_INIT:
            client.set_handle_state(State.PRE_INIT)
            PipelinedStore(client, self._operator.lane.layout.numbering).declare()
        elif mode == Mode.PROCESS_TIMER:
            self._answers = self._run(client)
        else:
            client.set_handle_state(State.TIMER_PROCESSED)
            client.remove_implicit_key()
            client.set_handle_state(State.CLOSED)
        return iter(())

    def _run(self, client: StatefulProcessorApiClient) -> Iterator[Answer]:
        """All of a task: its packets, then the groups whose timers are due."""
        from pyspark.sql.streaming.stateful_processor_api_client import (
            ExpiredTimerIterator,
            StatefulProcessorHandleState,
        )

        from holdfast.worker.state.spark_store import PipelinedStore

        numbering = self._operator.lane.layout.numbering
        store = PipelinedStore(client, numbering)
        store.declare()
        client.set_handle_state(StatefulProcessorHandleState.INITIALIZED)
        watermark = client._get_watermark_timestamp() if self._operator.event_time else None
        moment = Moment(client._get_batch_timestamp(), watermark, batch_number())
        task = Task(self._operator, store, moment)
        for batch in self._arriving:
            yield from task.collect(packets_in(batch, numbering))
        client.set_handle_state(StatefulProcessorHandleState.DATA_PROCESSED)
        waking: list[int] = []
        if moment.watermark_ms is not None:
            timers = ExpiredTimerIterator(client, moment.watermark_ms)
            waking = [numbering.group_at(int(number)) for (number,), _ in timers]
        yield from task.finish(waking)


def answer_batch(answer: Answer, schema: pa.Schema, names: Sequence[str]) -> pa.RecordBatch:
    """An answer as a row for Spark: the rows of it in one list, and its counts in another."""
    of_rows = schema.field("rows").type
    if answer.rows is None:
        rows = pa.nulls(1, of_rows)
    else:
        struct = pa.StructArray.from_arrays(answer.rows.columns, fields=list(of_rows.value_type))
        rows = pa.ListArray.from_arrays(pa.array([0, len(struct)], pa.int32()), struct)
    counts = pa.array([answer.listed(names)], schema.field("counts").type)
    return pa.RecordBatch.from_arrays([rows, counts], schema=schema)
