"""The specification of a runner, and the instances of an hf.Operator.

The instances of an operator are keys, numbered from zero, each in its own key group. Every batch touches the
first instance, and all instances after their number has changed, so that state written for a different number
is never used unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from holdfast.errors import Invalid
from holdfast.worker.arrays import whole
from holdfast.worker.declarations.state_descriptors import SETTLED, State
from holdfast.worker.interface import VALUE_PREFIX
from holdfast.worker.runtime.columns import values_of
from holdfast.worker.runtime.event_dispatcher import HandlerFailed
from holdfast.worker.state.layout import ROWS, decode, fingerprint_of, form_from_json
from holdfast.worker.task_facts import local_property

if TYPE_CHECKING:
    from holdfast.worker.interface import Touched
    from holdfast.worker.runtime.context import KeyContext
    from holdfast.worker.state.store import MemoryStore


INSTANCE = "instance"
MOST_INSTANCES = 128
_COUNT = b"instances"
PROPERTY = "holdfast.instances."


@dataclass(frozen=True, slots=True)
class Shares:
    """The state that each instance gets after their number has changed.

    Attributes:
        before: The former number of instances.
        table: One column of lists per state, one row per instance.
    """

    before: int
    table: pa.Table

    def of(self, instance: int, state: str) -> list[Any]:
        """Return the elements of a list state for one instance."""
        row = whole(self.table.column(state)).slice(instance, 1)
        return values_of(row.flatten())

    def write(self, path: str) -> None:
        """Write the shares to a local file."""
        table = self.table.replace_schema_metadata({_COUNT: str(self.before).encode()})
        with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)

    @classmethod
    def read(cls, path: str) -> Shares:
        """Read the shares from a local file."""
        with pa.OSFile(path) as file:
            table = pa.ipc.open_file(file).read_all()
        return cls(int(table.schema.metadata[_COUNT]), table)


@dataclass(frozen=True, slots=True)
class Instances:
    """The instances of an operator, as its tasks use them.

    Attributes:
        operator: The user's name of the operator.
        count: The number of instances.
        shares: The state assigned to the instances, or None to read it from the task's local properties.
    """

    operator: str
    count: int
    shares: Shares | None = None

    @property
    def property(self) -> str:
        """Return the name of the local property that reports a changed number to a query's tasks."""
        return f"{PROPERTY}{self.operator}"

    def given(self) -> Shares | None:
        """Return the state assigned to the instances in this run, or None if their number has not changed."""
        if self.shares is not None:
            return self.shares
        told = self._describe()
        if told is None:
            return None
        from pyspark import SparkFiles

        return Shares.read(SparkFiles.get(told["file"]))

    def touched(self) -> int:
        """Return the number of instances that each batch touches, with or without events."""
        before = self.shares.before if self.shares is not None else (self._describe() or {}).get("before", 0)
        return max(self.count, before) if before else 1

    def _describe(self) -> dict[str, Any] | None:
        text = local_property(self.property)
        return None if text is None else json.loads(text)


class Settler:
    """A loader of the state assigned to instances after their number has changed."""

    def __init__(self, instances: Instances, states: Sequence[State], on_restore: Any) -> None:
        self._instances = instances
        self._names = [state.name for state in states if state.name != SETTLED]
        self._on_restore = on_restore
        self._shares: Shares | None = None
        self._asked = False

    def enter(self, state: Any, ctx: KeyContext) -> None:
        """Load the state assigned to an instance if the number of instances has changed.

        Raises:
            Invalid: The number has changed, but no state was redistributed.
            HandlerFailed: `on_restore` raised an exception.
        """
        settled, count = getattr(state, SETTLED), self._instances.count
        if settled is not None and settled[1] == count and not self._assigned_shares():
            return
        shares = self._assigned_shares()
        if shares is None and settled is not None:
            raise Invalid(
                "the number of instances changed, but the state was not redistributed",
                code="HF-E2496",
                where=f"operator {self._instances.operator}",
                found=f"instances={count}, and state of {settled[1]} instances",
                hint="start the query with Holdfast: hf.sink(…).start(…) or `holdfast run`",
            )
        if settled is not None and settled[1] == count:
            return  # it was assigned in an earlier batch of this run
        instance = ctx.key[0]
        if instance >= count:
            state.clear()
            delattr(state, SETTLED)
            for timer in ctx.timers() if ctx._has_timers else ():
                ctx.cancel_timer(timer.name, timer.clock)
            return
        if shares is not None:
            for name in self._names:
                getattr(state, name).set(shares.of(instance, name))
        setattr(state, SETTLED, (self._instances.operator, count))
        if shares is not None and self._on_restore is not None:
            try:
                self._on_restore(state, ctx)
            except Exception as error:
                raise HandlerFailed(self._on_restore) from error

    def _assigned_shares(self) -> Shares | None:
        if not self._asked:
            self._shares, self._asked = self._instances.given(), True
        return self._shares


def settled_in(store: MemoryStore) -> str | None:
    """Return the operator whose instances a store contains, or None if its keys are not instances."""
    for group in store.groups:
        stored = store.load(group)
        forms = {mark: form_from_json(fields) for mark, fields in json.loads(stored.forms or b"{}").items()}
        for blob in (*stored.base, *stored.log):
            form = forms.get(fingerprint_of(blob).hex())
            rows = None if form is None or SETTLED not in form.states else decode(form, blob).get(ROWS)
            cells = [] if rows is None else values_of(rows.column(f"{VALUE_PREFIX}{SETTLED}"))
            name = next((settled[0] for settled in cells if settled is not None), None)
            if name is not None:
                return str(name)
    return None


def settled_counts(touched: Touched) -> set[int]:
    """Return the numbers of instances for which the stored state was written."""
    cells = values_of(touched.stored(f"{VALUE_PREFIX}{SETTLED}"))
    return {settled[1] for settled in cells if settled is not None}


def redistributed(touched: Touched, states: Sequence[State], before: int, count: int) -> Shares:
    """Distribute the state of the former instances over `count` new ones.

    A list is split evenly, in the order of instances: the sizes of the parts differ by at most one. Each
    instance gets the complete union list.

    Args:
        touched: The former instances.
        states: The operator's states.
        before: The former number of instances.
        count: The new number of instances.
    """
    instances = np.array(touched.keys.column(0).to_pylist(), np.int64)
    order = [int(at) for at in np.argsort(instances) if instances[at] < before]
    columns: dict[str, pa.Array] = {}
    for state in states:
        if state.name == SETTLED:
            continue
        elements = touched.elements(state.name)
        rows = np.concatenate(
            [np.arange(elements.starts[at], elements.starts[at + 1]) for at in order] or [np.arange(0)]
        ).astype(np.int64)
        every = whole(elements.rows.column("v")).take(pa.array(rows))
        if state.union:
            bounds = np.arange(count + 1) * len(every)
            every = pa.concat_arrays([every] * count)
        else:
            bounds = np.arange(count + 1) * len(every) // count
        columns[state.name] = pa.ListArray.from_arrays(pa.array(bounds, pa.int32()), every)
    return Shares(before, pa.table(columns))


def own_group(instance: int) -> int:
    """Return the key group of an instance, which no other instance shares."""
    return instance


@dataclass(frozen=True, slots=True)
class RunnerSpec:
    """The specification of a runner: names, columns and options.

    Attributes:
        operator: The name of the operator, for error messages.
        output: The schema of the output.
        key_names: The names of the key columns.
        stream_names: The names of the streams, in the order of their connection.
        time_columns: The event-time column of each stream, or None.
        delay_ms: The longest delay of the streams' watermarks.
        chained: The indexes of the streams with rows that come before due timers; these rows are arrivals
            of their own, which precede those of all streams.
        default_clock: "event" if the streams have a watermark, else "processing".
        on_error: The handling of events whose handler raises: "fail" or "dead-letter".
        parts: The name of the stream of parts, which follows all others, or None if hot keys are not split.
        instances: The instances of an hf.Operator, whose stream follows all others, or None.
        before: Whether the processor runs before the shuffle, on the events of one batch only.
    """

    operator: str
    output: pa.Schema
    key_names: tuple[str, ...]
    stream_names: tuple[str, ...]
    time_columns: tuple[str | None, ...]
    default_clock: str
    on_error: str = "fail"
    parts: str | None = None
    instances: Instances | None = None
    before: bool = False
    chained: tuple[int, ...] = ()
    delay_ms: int = 0
