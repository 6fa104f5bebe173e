"""Runs a processor over passes of plain rows, with state in plain dicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from touched import InMemoryTouched, Memory

from holdfast.worker.declarations.processor import definition_of
from holdfast.worker.interface import Arrivals, Moment, Outcome, Runner
from holdfast.worker.runtime.row_runner import RowRunner
from holdfast.worker.runtime.runner_spec import RunnerSpec
from holdfast.worker.runtime.table_runner import TableRunner

INSTANT = pa.timestamp("us", "UTC")
EVENTS = pa.schema([("user", pa.string()), ("amount", pa.float64()), ("ts", INSTANT)])
KEYS = pa.schema([("user", pa.string())])


class Passes:
    """A processor, its state, and one pass after another."""

    def __init__(
        self,
        processor: Any,
        output: Mapping[str, pa.DataType],
        *,
        streams: Mapping[str, pa.Schema] | None = None,
        keys: pa.Schema = KEYS,
        time: str | None = "ts",
        clock: str = "event",
        on_error: str = "fail",
        table: bool = False,
    ) -> None:
        self.streams = dict(streams) if streams is not None else {"events": EVENTS}
        self.definition = definition_of(processor, tuple(self.streams))
        self.memory = Memory(self.definition.states, keys)
        make = TableRunner if table else RowRunner
        spec = RunnerSpec(
            operator="regulars",
            output=pa.schema(list(output.items())),
            key_names=tuple(keys.names),
            stream_names=tuple(self.streams),
            time_columns=tuple(time for _ in self.streams),
            default_clock=clock,
            on_error=on_error,
        )
        self.runner: Runner = make(self.definition, processor, spec)
        self.outcome: Outcome | None = None

    def run(
        self,
        *events: Sequence[Mapping[str, Any]],
        now: int = 0,
        watermark: int | None = 0,
        touch: Sequence[tuple[Any, ...]] = (),
        batch: int = 1,
    ) -> list[dict[str, Any]]:
        """One pass; `touch` names keys besides those of the events, such as those with timers."""
        names = self.memory.schema.names
        given = list(events) + [()] * (len(self.streams) - len(events))
        order = dict.fromkeys(tuple(row[name] for name in names) for rows in given for row in rows)
        touched = InMemoryTouched(self.memory, list(order | dict.fromkeys(touch)))
        place = {key: at for at, key in enumerate(touched.order)}
        arrivals = [
            Arrivals(
                pa.Table.from_pylist(list(rows), schema=schema),
                np.array([place[tuple(row[name] for name in names)] for row in rows], np.int64),
            )
            for rows, schema in zip(given, self.streams.values(), strict=True)
        ]
        self.outcome = self.runner.run(arrivals, touched, Moment(now, watermark, batch))
        self.memory.keep(touched, self.outcome)
        assert self.outcome.output.schema.names == self.outcome.output.column_names
        return list(self.outcome.output.to_pylist())

    @property
    def columns(self) -> list[str]:
        """The columns that the last pass changed."""
        assert self.outcome is not None
        return list(self.outcome.columns)


def event(user: str, amount: float | None = 1.0, ms: int | None = 0) -> dict[str, Any]:
    """An event of the usual schema."""
    return {"user": user, "amount": amount, "ts": None if ms is None else ms * 1_000}
