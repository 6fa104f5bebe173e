"""State of parallel instances (`hf.operate`), and changes of the number of instances.

The number of instances is independent of Spark's partitions: an instance is a key group, and moves with it.
If a query starts with a different number than its checkpoint has, the lists are read from the last committed
batch, redistributed and sent to the tasks, and the first batch loads them. Until that batch is committed the
checkpoint is unchanged, and a repeated start redistributes the same lists again.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from holdfast.config.checks import whole
from holdfast.engine.connect import is_connect
from holdfast.engine.session.workers import send_file
from holdfast.errors import Invalid, Unsupported
from holdfast.quantities import counted
from holdfast.stream.event_time import names_of, quoted, require_columns, require_stream
from holdfast.stream.keyed.blobs_in_database import groups_elsewhere, with_blobs
from holdfast.stream.keyed.keyed_stream import Input, KeyedStream
from holdfast.stream.operator_check import (
    INSTANCES,
    Defined,
    check_operators,
    note_blobs,
    settle,
    told_checkpoint,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from holdfast.worker.runtime.runner_spec import Shares
    from holdfast.worker.state.key_index import Keys
    from holdfast.worker.state.store import MemoryStore


_WHERE = "holdfast.operate(…)"


def operate(df: DataFrame, *, instances: int, by: str | Iterable[str] = ()) -> KeyedStream:
    """Distribute a stream's rows to parallel instances, each with its own state.

    Use it for state that belongs to a worker instead of a key, such as a buffer of rows to write together, or
    the position in a side input. Continue with `.process(operator, output=…, name=…)`, where the operator is
    an `hf.Operator`.

    The number of instances may change from one start to the next: lists are split evenly among the instances,
    and each instance gets all elements of union lists. This requires that Holdfast starts the query; if it is
    started in a different way, it fails before it commits anything.

    Args:
        df: A stream.
        instances: The number of instances, at most 128. Instances in excess of the number of cores do not
            increase throughput.
        by: The columns whose equal values go to the same instance; by default rows are distributed in turn.

    Raises:
        Invalid: The frame is not a stream or has a column `instance`, or the number is out of range.

    Example:
        class Trays(hf.Operator):
            waiting = hf.list("string")

            def on_event(self, event, state, ctx):
                state.waiting.append(event.drink)
                if len(state.waiting) == 10:
                    yield {"drinks": list(state.waiting)}
                    state.waiting.clear()


        trays = hf.operate(events, instances=2).process(Trays(), output="drinks array<string>", name="trays")
        assert trays.columns == ["drinks"]
    """
    from pyspark.sql import functions as F  # noqa: N812 - the package imports without Spark

    from holdfast.worker.runtime.runner_spec import INSTANCE, MOST_INSTANCES, own_group

    whole(instances, f"{_WHERE}: instances", least=1, most=MOST_INSTANCES)
    require_stream(df, where=_WHERE)
    if INSTANCE in df.columns:
        raise Invalid(
            "a column has a name that Holdfast reserves",
            code="HF-E2332",
            where=_WHERE,
            found=INSTANCE,
            hint="rename the column with withColumnRenamed",
        )
    columns = names_of(by, where=_WHERE)
    require_columns(df, columns, where=_WHERE)
    # Rows without an instance get one where they are packed, because Spark has no running number for a
    # stream.
    chosen = F.pmod(F.xxhash64(*map(quoted, columns)), F.lit(instances)) if columns else F.lit(None)
    numbered = df.withColumn(INSTANCE, chosen.cast("int"))
    return KeyedStream(
        (Input(numbered, (INSTANCE,), "event"),), MOST_INSTANCES, placement=own_group, instances=instances
    )


@contextmanager
def checked_operators(
    frame: DataFrame, checkpoint: str, *, trial: bool = False, history: bool = False
) -> Iterator[None]:
    """Check a query's operators against its checkpoint, and pass state and settings to them while it starts.

    Call it while no query uses the checkpoint, and start the query inside.

    Args:
        frame: The frame of the query.
        checkpoint: The checkpoint of the query.
        trial: Whether the output is discarded, so that the query must not write blobs to a database.
        history: Whether the input is a history, which processors handle in the order of event time.

    Raises:
        Invalid: The code would lose or misread state.
        Unavailable: The storage of the checkpoint does not answer.
    """
    from holdfast.worker.operator import (
        BLOBS_PROPERTY,
        HISTORY_PROPERTY,
        IN_DATABASE,
        IN_STORE,
        PERIODS_PROPERTY,
    )
    from holdfast.worker.state.layout import periods_as_text

    if is_connect(frame):
        _check_over_connect(frame, checkpoint)
        yield
        return
    context = frame.sparkSession.sparkContext
    told = list(told_checkpoint(frame, checkpoint))
    try:
        if history:
            told.append(HISTORY_PROPERTY)
            context.setLocalProperty(HISTORY_PROPERTY, "true")
        for operator, before in check_operators(frame, checkpoint):
            if not isinstance(operator, Defined):
                continue
            periods = operator.periods(before)
            if len(periods) > 1:
                told.append(f"{PERIODS_PROPERTY}{operator.layout.operator}")
                context.setLocalProperty(told[-1], periods_as_text(periods))
            product = operator.blobs_left(before)
            if product is not None:
                _refuse_blobs_elsewhere(frame, checkpoint, operator, before or {}, product)
            if operator.blobs is not None:
                told.append(f"{BLOBS_PROPERTY}{operator.layout.operator}")
                context.setLocalProperty(told[-1], IN_STORE if trial else IN_DATABASE)
            if operator.instances is None:
                continue
            known = (before or {}).get(INSTANCES, [])
            if not known or known == [operator.instances.count]:
                continue
            shares = _shares(frame, checkpoint, operator, known)
            if shares is None:
                continue
            name = f"holdfast-{uuid.uuid4().hex}.arrow"
            send_file(frame.sparkSession, name, shares.write)
            key = operator.instances.property
            context.setLocalProperty(key, json.dumps({"file": name, "before": shares.before}))
            told.append(key)
        yield
    finally:
        for key in told:
            context.setLocalProperty(key, None)  # type: ignore[arg-type]  # None removes the property


def _check_over_connect(frame: DataFrame, checkpoint: str) -> None:
    """Check operators over Spark Connect, where a client cannot set properties on the driver.

    Raises:
        Invalid: The code would lose or misread state.
        Unsupported: The number of instances has changed, so state would have to be redistributed.
    """
    for operator, before in check_operators(frame, checkpoint):
        if not isinstance(operator, Defined):
            continue
        product = operator.blobs_left(before)
        if product is not None:
            _refuse_blobs_elsewhere(frame, checkpoint, operator, before or {}, product)
        known = (before or {}).get(INSTANCES, [])
        if operator.instances is not None and known not in ([], [operator.instances.count]):
            raise Unsupported(
                "the number of instances cannot be changed over Spark Connect",
                code="HF-E7111",
                where=f"operator {operator.layout.operator}",
                found=f"instances={operator.instances.count}",
                expected=f"instances={' or '.join(map(str, known))}",
                hint="start the query once in a classic session with the new number, then use Connect again",
            )


def _refuse_blobs_elsewhere(
    frame: DataFrame, checkpoint: str, operator: Defined, noted: Mapping[str, Any], product: str
) -> None:
    """Raise an error for an operator whose `blobs=` was removed while blobs remain in that database.

    Raises:
        Invalid: Some blobs are still in the database.
    """
    from holdfast.worker.state.blob_store import blobs_elsewhere

    count = groups_elsewhere(frame, checkpoint, operator.layout, noted["forms"])
    if count:
        there = f"{counted(count, 'key group')} there"
        raise blobs_elsewhere(f"operator {operator.layout.operator}", there, product)
    note_blobs(frame, checkpoint, operator)


def _shares(frame: DataFrame, checkpoint: str, operator: Defined, before: Sequence[int]) -> Shares | None:
    """Return the redistributed state of an operator's instances, or None if their number is unchanged.

    This runs a few small Spark jobs over the state of the operator.
    """
    from holdfast.engine.spark_state import stored_groups
    from holdfast.worker.runtime.runner_spec import redistributed, settled_counts, settled_in

    if operator.instances is None:
        return None
    for found in stored_groups(frame.sparkSession, checkpoint):
        store = with_blobs(found, operator.blobs, operator.layout.operator)
        if settled_in(store) != operator.layout.operator:
            continue
        opened = _open_instances(store, operator)
        counts = settled_counts(opened)
        if counts == {operator.instances.count}:
            settle(frame, checkpoint, operator)
            return None
        if len(counts) > 1 or not counts <= set(before):
            raise Invalid(
                "the checkpoint has state of an unexpected number of instances",
                code="HF-E2333",
                where=f"operator {operator.layout.operator}",
                found=f"state of {' and '.join(map(str, sorted(counts)))} instances",
                expected=f"state of {' or '.join(map(str, before))} instances",
                hint="restore a savepoint from before the change with `holdfast restore SP CHECKPOINT`",
            )
        return redistributed(opened, operator.layout.states, counts.pop(), operator.instances.count)
    return None


def _open_instances(store: MemoryStore, operator: Defined) -> Keys:
    """Return all instances with their state, converted to the current schema."""
    from holdfast.worker.interface import Moment
    from holdfast.worker.state.partition import Partition

    partition = Partition(operator.layout, store, token=lambda: b"unused!!")
    partition.open(store.groups, Moment(0, None, None))
    return partition.touch([], partition.rows())
